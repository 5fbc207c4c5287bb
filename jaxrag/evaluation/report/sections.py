"""The report's section on one data set: finding, table, figures, the papers' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import metrics
from jaxrag.evaluation.curves import ThresholdCurve, accepted_curve, policy_curve
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.report import explanations, figures, tables, uncertainty_figures
from jaxrag.evaluation.report.html_tables import main_table, mark, papers_table
from jaxrag.evaluation.summary import Row, paired_rows

MOST_POLICIES = 4


def dataset_section(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    """HTML of all there is to see about one data set; ``rows`` are those of ``runs``."""
    legend = "".join(f"<span>{mark(i)}{escape(row.label)}</span>" for i, row in enumerate(rows))
    drawn = [
        figures.accuracy_against_cost(rows, "llm_calls", title="LLM calls"),
        figures.accuracy_against_cost(rows, "prompt_tokens", title="prompt tokens"),
        _wins(runs, rows),
        *_uncertainty(runs, rows),
    ]
    return (
        f"<section><h2>{escape(rows[0].dataset)}</h2>"
        f'<p class="finding">{escape(finding(rows))}</p>{_warnings(rows)}'
        f'<div class="wide">{main_table(rows)}</div>'
        f'<div class="legend" aria-hidden="true">{legend}</div>'
        f'<div class="figures">{"".join(drawn)}</div>{_matches(runs, rows)}'
        f"{papers_table(runs, rows)}</section>"
    )


def finding(rows: Sequence[Row]) -> str:
    """What the table says in a sentence or two, with no more certainty than it has."""
    known = [row for row in rows if row.means["exact_match"].n]
    if not known:
        return "No question has been answered yet."
    best = max(known, key=lambda row: row.means["exact_match"].mean)
    mean, ends = tables.with_interval("exact_match", best.means["exact_match"])
    first = f"{best.label} has the highest exact match, {mean} % {ends}"
    compared = best.differences.get("exact_match")
    if compared is None or not compared.n:
        return f"{first}." if len(known) > 1 else f"Exact match {mean} % {ends}."
    low, high = 100 * compared.low, 100 * compared.high
    how = "excludes" if low > 0 or high < 0 else "includes"
    return (
        f"{first}; the interval of its difference to {best.baseline}, "
        f"{100 * compared.mean:+.1f} points [{low:+.1f}, {high:+.1f}], {how} zero."
    )


def _warnings(rows: Sequence[Row]) -> str:
    lines = [f"{row.label}: {tables.errors_text(row)}, in no mean." for row in rows if row.errors]
    lines += [f"{row.label} is unfinished: run it again." for row in rows if not row.finished]
    return "".join(f'<p class="warn">{escape(text)}</p>' for text in lines)


def _wins(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    reference = next((i for i, row in enumerate(rows) if not row.differences), 0)
    theirs = metrics.score(runs[reference].records)["exact_match"]
    counts, shared = [], 0
    for i, row in enumerate(rows):
        if i == reference:
            continue
        ours = metrics.score(runs[i].records)["exact_match"]
        mine, other = paired_rows(runs[i], runs[reference])
        moved = ours[mine] - theirs[other]
        shared = max(shared, int(np.isfinite(moved).sum()))
        counts.append((i, row.label, int((moved > 0).sum()), int((moved < 0).sum())))
    return figures.wins_and_losses(counts, baseline=rows[reference].label, questions=shared)


def _uncertainty(runs: Sequence[RunRecords], rows: Sequence[Row]) -> list[str]:
    """Figures from the run that holds most direct answers with their u; none without one."""
    found = [metrics.direct_answers(run.records) for run in runs]
    known = [int((~np.isnan(u)).sum()) for u, _ in found]
    source = int(np.argmax(known))
    u, right = found[source]
    asked = ~np.isnan(u) & ~np.isnan(right)
    if asked.sum() < 10:
        return []
    gates = _thresholds(runs, rows)
    recorded = [
        (i, rows[i].label, 1 - rows[i].means["trigger"].mean, rows[i].means["exact_match"].mean)
        for i, _, _ in gates
        if rows[i].means["exact_match"].n
    ]
    policies = _policies(runs, rows, source, u, right)
    return [
        uncertainty_figures.em_against_query_ratio(
            policies, accepted_curve(u[asked], right[asked]), recorded
        ),
        uncertainty_figures.uncertainty_histogram(u[asked], right[asked], gates),
        uncertainty_figures.em_by_uncertainty(u[asked], right[asked]),
    ]


def _matches(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    """Which tokens carried the matches that `experiments.explain` kept; empty without any."""
    parts = []
    for run, row in zip(runs, rows, strict=True):
        drawn = "".join(map(explanations.figure, explanations.read(run.path)))
        if drawn:
            parts.append(
                f"<h3>Which tokens matched: {escape(row.label)}</h3>"
                f'<div class="figures">{drawn}</div>'
            )
    return "".join(parts)


def _thresholds(runs: Sequence[RunRecords], rows: Sequence[Row]) -> list[tuple[int, str, float]]:
    """Position, label and threshold of the runs whose gate compared u with one."""
    found = []
    for i, (run, row) in enumerate(zip(runs, rows, strict=True)):
        gates = (record.get("trace", {}).get("gate", {}) for record in run.records)
        used = {gate["threshold"] for gate in gates if gate.get("name") == "nll"}
        found += [(i, row.label, threshold) for threshold in used]
    return found


def _policies(
    runs: Sequence[RunRecords],
    rows: Sequence[Row],
    source: int,
    u: Float[np.ndarray, " q"],
    right: Float[np.ndarray, " q"],
) -> list[tuple[int, str, ThresholdCurve]]:
    """Curves of the gate in front of each run that retrieved for every question."""
    found = []
    for i, run in enumerate(runs):
        columns = metrics.score(run.records)
        searched = columns["retriever_activation"]
        if not len(searched) or np.nanmin(searched) < 1 or len(found) == MOST_POLICIES:
            continue
        ours, theirs = paired_rows(runs[source], run)
        retrieved = columns["exact_match"][theirs]
        both = ~np.isnan(u[ours]) & ~np.isnan(right[ours]) & ~np.isnan(retrieved)
        if both.sum() >= 10:
            mine = ours[both]
            found.append((i, rows[i].label, policy_curve(u[mine], right[mine], retrieved[both])))
    return found
