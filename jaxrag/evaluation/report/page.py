"""Turns run directories into one self-contained HTML page, and a table in several formats.

The page contains style, script, figures and the traces of all questions. Text from runs is
escaped, or inserted by the page's script as text, never as HTML.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core.durable_files import write_text
from jaxrag.core.printable import html_text, printable
from jaxrag.evaluation import metrics, policy
from jaxrag.evaluation.judgements import JUDGED
from jaxrag.evaluation.need import SEARCHED, SKIPPED, gated_needs
from jaxrag.evaluation.pairing import paired_rows
from jaxrag.evaluation.records import RunRecords, failure, read_passages, read_run
from jaxrag.evaluation.report import export, figures, svg, tables
from jaxrag.evaluation.report.document import configs, document, machines, once, part
from jaxrag.evaluation.report.explorer import explorer
from jaxrag.evaluation.report.svg import mark
from jaxrag.evaluation.summary import (
    BASELINE,
    Row,
    by_dataset,
    labels,
    name_of,
    shown_name,
    summarise_read,
)
from jaxrag.types import InputError

PASSAGE_CHARACTERS = 1_500  # a passage is cut to this length

GROUPS = {
    "accuracy": ("f1", "contains", JUDGED, "precision_positive", "precision_macro"),
    "retrieval": ("recall", "coverage", "hit", "pool_recall", "ir_accuracy", "trigger"),
    "cost per question": metrics.COSTS + metrics.TIMINGS,
}

FIRST = ("trigger", "searches", "llm_calls", "prompt_tokens")
"""Columns that are always shown, beside EM and its difference from the baseline."""

READING = (
    "Brackets: 95 % bootstrap intervals over questions; for a share that is 0 or 1 for every "
    "question, Wilson's; for retrieves of a method without a gate, none. Costs are means per "
    "question. Questions that ended in an error are in no mean. A method that searches for some of "
    "the questions has the baseline's value on these beside its own. IR is undefined for closed "
    "questions.",
    "The uncertainty u of an answer is the mean negative log-likelihood of its tokens, in nats; an "
    "empty answer is infinitely uncertain.",
)


def write_report(
    run_dirs: Sequence[str | Path],
    out_html: str | Path,
    *,
    baseline: str = BASELINE,
    columns: Sequence[str] = (),
) -> list[Row]:
    """Writes the page, and its table beside it: the same name ending in .md, .csv and .tex.

    ``baseline`` is as for `summarise`; ``columns`` are those of .csv and .tex, as for
    `export.runs_csv`. Returns the rows of the table. InputError if there are no runs, one is not a
    run directory, or there is no such column.
    """
    tables.check_columns(columns)
    if not run_dirs:
        raise InputError("a report needs at least one run directory")
    runs = [read_run(path) for path in run_dirs]
    for run in runs:
        if not run.records and "method" not in run.config:
            if (report := run.path / "report.html").is_file():
                raise InputError(f"{run.path} is no run of a method; its own report is {report}.")
            why = failure(run.path) or "see its log.jsonl"
            raise InputError(f"{run.path} stopped before its first step: {why}")
    table = summarise_read(runs, baseline=baseline)
    write_files(Path(out_html), page(runs, table), table, columns)
    return table


def write_files(
    out_html: Path, html: str, table: Sequence[Row], columns: Sequence[str] = ()
) -> None:
    """Writes a report's page, and its table as Markdown, CSV and LaTeX."""
    out_html.parent.mkdir(parents=True, exist_ok=True)
    write_text(out_html, html)
    write_text(out_html.with_suffix(".md"), tables.markdown_table(table))
    write_text(out_html.with_suffix(".csv"), export.runs_csv(table, columns))
    write_text(out_html.with_suffix(".tex"), export.runs_latex(table, columns))


def page(runs: Sequence[RunRecords], table: Sequence[Row]) -> str:
    """The HTML of the report."""
    grouped = by_dataset(runs)
    body = [
        dataset_section(members, [row for row in table if row.dataset == name])
        for name, members in grouped.items()
    ]
    return document(
        title=_title(runs),
        lede=_lede(runs, table),
        facts=facts(runs),
        sections="\n".join([*body, part("questions.html")]),
        reading=READING,
        markdown=tables.markdown_table(table),
        configs=configs((_name(run), run.config, run.environments) for run in runs),
        script=part("browser.js"),
        data=packed(runs),
    )


def _name(run: RunRecords) -> str:
    return f"{name_of(run.config, 'method')} on {name_of(run.config, 'dataset')}"


def _title(runs: Sequence[RunRecords]) -> str:
    datasets = list(by_dataset(runs))
    methods = list(dict.fromkeys(name_of(run.config, "method") for run in runs))
    # without the settings that a sweep writes behind the name, as in "dtr threshold=1"
    words = ([word for word in method.split() if "=" not in word] for method in methods)
    stems = list(dict.fromkeys(map(" ".join, words)))
    subject = f"{len(stems)} methods" if stems[1:] else stems[0]
    if not stems[1:] and methods[1:]:
        subject += f" at {len(methods)} settings"
    where = " and ".join([", ".join(datasets[:-1]), datasets[-1]] if datasets[1:] else datasets)
    return f"{subject} on {where}"


def _lede(runs: Sequence[RunRecords], table: Sequence[Row]) -> str:
    models = dict.fromkeys(shown_name(name_of(run.config, "language_model")) for run in runs)
    days = sorted({str(e.get("started", ""))[:10] for run in runs for e in run.environments} - {""})
    when = f", {days[0]}" if len(days) == 1 else f", {days[0]} to {days[-1]}" if days else ""
    return f"{sum(row.answered for row in table):,} answers by {', '.join(models)}{when}."


def facts(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """Facts for the page's head: models, data, devices and software."""
    texts = {
        "Language model": [_brief(run.config.get("language_model")) for run in runs],
        "Retriever": [_brief(run.config.get("retriever")) for run in runs],
        "Data": [_data(run.config.get("dataset")) for run in runs],
    }
    return once(texts) + machines([e for run in runs for e in run.environments])


def _brief(value: Any) -> str:
    """A part of a config in few words: its name and dtype, or the names of its parts."""
    if not isinstance(value, Mapping):
        return str(value or "")
    if "name" in value:
        dtype = [str(value["dtype"])] if "dtype" in value else []
        return ", ".join([shown_name(str(value["name"])), *dtype])
    return ", ".join(str(key) for key, part in value.items() if isinstance(part, Mapping))


def _data(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value or "")
    counts = [
        f"{value[k]:,} {k}" for k in ("questions", "passages") if isinstance(value.get(k), int)
    ]
    return ": ".join([str(value.get("name", "unnamed")), *[", ".join(counts)] * bool(counts)])


def dataset_section(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    """HTML of one data set's tables and figures; ``rows`` summarise ``runs``."""
    legend = "".join(f"<span>{mark(i)}{html_text(row.label)}</span>" for i, row in enumerate(rows))
    needs = gated_needs(runs)
    about_u, explored = _uncertainty(runs, rows)
    drawn = [
        figures.accuracy_against_cost(rows, "llm_calls", title="LLM calls"),
        figures.accuracy_against_cost(rows, "prompt_tokens", title="prompt tokens"),
        _wins(runs, rows),
        _need(needs, rows),
        *about_u,
    ]
    needed = tables.need_grid(runs, [row.label for row in rows], needs)
    classes = tables.class_grid(rows)
    return (
        f"<section><h2>{html_text(rows[0].dataset)}</h2>"
        f'<p class="finding">{html_text(finding(rows))}</p>{_warnings(rows)}'
        f"{main_table(rows)}{needed.html() if needed else ''}"
        f"{classes.html() if classes else ''}"
        f'<div class="legend" aria-hidden="true">{legend}</div>'
        f'<div class="figures">{"".join(drawn)}</div>{explored}</section>'
    )


def finding(rows: Sequence[Row]) -> str:
    """The main result of the table in one or two sentences, with its interval."""
    scored = [row for row in rows if row.means["exact_match"].n]
    if not scored:
        return "No question has been answered yet."
    top = max(row.means["exact_match"].mean for row in scored)
    best, *equal = [row for row in scored if row.means["exact_match"].mean == top]
    mean, ends = tables.with_interval("exact_match", best.means["exact_match"])
    if equal:
        names = [row.label for row in (best, *equal)]
        who = "All" if len(names) == len(scored) else f"{', '.join(names[:-1])} and {names[-1]}"
        return (
            f"{who} have the {'highest' if who != 'All' else 'same'} exact match, {mean} % {ends}."
        )
    first = f"{best.label} has the highest exact match, {mean} % {ends}"
    compared = best.differences.get("exact_match")
    if compared is None or not compared.n:
        return f"{first}." if len(scored) > 1 else f"Exact match {mean} % {ends}."
    low, high = 100 * compared.low, 100 * compared.high
    how = "excludes" if low > 0 or high < 0 else "includes"
    return (
        f"{first}; the interval of its difference to {best.baseline}, "
        f"{100 * compared.mean:+.1f} points [{low:+.1f}, {high:+.1f}], {how} zero."
    )


def main_table(rows: Sequence[Row]) -> str:
    """The rows as an HTML table, with what its columns mean.

    Columns equal to recall in all rows are left out; those that are not `FIRST` hide behind a
    switch, once the page's script has turned it off.
    """
    columns = [
        (group, name)
        for group, names in GROUPS.items()
        for name in names
        if _worth_showing(name, rows)
    ]
    compared = any(row.differences for row in rows)
    baseline = next((row.baseline for row in rows if row.baseline), "")
    delta = f"<th>ΔEM vs<br>{html_text(baseline)}</th>" if compared else ""
    kinds = {name: _kind(place, columns) for place, (_, name) in enumerate(columns)}
    heads = "".join(
        f'<th{kinds[name]} title="{html_text(tables.DEFINITIONS[name])}">'
        f"{tables.HEADINGS[name].replace(' ', '<br>', 1)}</th>"
        for _, name in columns
    )
    top = svg.nice_top(
        max(
            [row.means["exact_match"].high for row in rows if row.means["exact_match"].n], default=1
        )
    )
    reference = next((r.means["exact_match"].mean for r in rows if not r.differences), math.nan)
    body = []
    for i, row in enumerate(rows):
        em, ends = tables.with_interval("exact_match", row.means["exact_match"])
        strip = figures.forest(
            row.means["exact_match"], i, top=top, reference=reference if compared else math.nan
        )
        cells = "".join(f"<td{kinds[name]}>{_cell(row, name)}</td>" for _, name in columns)
        label = html_text(row.label).replace("_", "_<wbr>")
        body.append(
            f'<tr><td><span class="method">{mark(i)}{label}</span></td>'
            f'<td class="first">{row.answered:,}<small>{_problems(row)}</small></td>'
            f'<td><b>{em}</b><span class="ci">{ends}</span></td><td class="forest">{strip}</td>'
            f"{_delta(row) if compared else ''}{cells}</tr>"
        )
    groups = "".join(
        f'<th colspan="{count + (3 + compared if group == "accuracy" else 0)}">{group}</th>'
        for group, count in {"accuracy": 0, **Counter(group for group, _ in columns)}.items()
    )
    return (
        f'<label class="all"><input type="checkbox" checked autocomplete="off"> All columns</label>'
        f'<div class="wide"><table><thead><tr class="groups more"><th></th>{groups}</tr>'
        f'<tr><th>method</th><th class="first">n</th><th>EM %</th><th></th>{delta}{heads}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{_definitions([name for _, name in columns], baseline)}"
    )


def _definitions(names: Sequence[str], baseline: str) -> str:
    """What the columns mean, to open on a click."""
    terms = {tables.HEADINGS[name]: tables.DEFINITIONS[name] for name in ("exact_match", *names)}
    if baseline:
        terms["ΔEM"] = (
            f"EM minus that of {baseline}, paired on the questions of both; p: sign-flip test, not "
            "adjusted for several comparisons"
        )
    listed = "".join(
        f"<dt>{html_text(term)}</dt><dd>{html_text(text)}</dd>" for term, text in terms.items()
    )
    return (
        "<details><summary>What the columns mean</summary>"
        f'<dl class="terms">{listed}</dl></details>'
    )


def _worth_showing(name: str, rows: Sequence[Row]) -> bool:
    defined = [row for row in rows if row.means[name].n]
    same = all(row.means[name].mean == row.means["recall"].mean for row in defined)
    return bool(defined) and not (name in ("coverage", "hit", "pool_recall") and same)


def _kind(place: int, columns: Sequence[tuple[str, str]]) -> str:
    """Classes of a column: the first of its group but accuracy, and whether it is hidden."""
    group, name = columns[place]
    begins = group != "accuracy" and group != columns[place - 1][0]
    kinds = ["first"] * begins + ["more"] * (name not in FIRST)
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _cell(row: Row, name: str) -> str:
    interval = row.means[name]
    mean, ends = tables.with_interval(name, interval)
    fewer = f"<small>n&nbsp;=&nbsp;{interval.n:,}</small>" if 0 < interval.n < row.answered else ""
    fewer = (
        f"<small>{html_text(text)}</small>" if (text := tables.baseline_text(row, name)) else fewer
    )
    return f"{mean}<small>{ends}</small>{fewer}" if name in tables.PERCENT else mean


def _delta(row: Row) -> str:
    if not row.differences:
        return "<td><small>baseline</small></td>"
    mean, rest = tables.difference_text(row.differences["exact_match"])
    ends, _, p = rest.partition(" p")
    below = "".join(f"<small>{html_text(part)}</small>" for part in (ends, f"p{p}" if p else ""))
    return f"<td>{mean}{below}</td>"


def _problems(row: Row) -> str:
    return tables.errors_text(row) if row.errors else "" if row.finished else "unfinished"


def _warnings(rows: Sequence[Row]) -> str:
    lines = [f"{row.label}: {tables.errors_text(row)}, in no mean." for row in rows if row.errors]
    lines += [
        f"{row.label} is unfinished{f' ({error})' if (error := failure(row.path)) else ''}: "
        "run it again."
        for row in rows
        if not row.finished
    ]
    lines += tables.notes(rows)
    return "".join(f'<p class="warn">{html_text(text)}</p>' for text in lines)


def _wins(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    reference = _reference(rows)
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


def _need(needs: Sequence[Mapping[str, str]], rows: Sequence[Row]) -> str:
    """A bar for each gated run: its questions by the need of a search."""
    bars = [
        (row.label, {kind: list(kinds.values()).count(kind) for kind in (*SKIPPED, *SEARCHED)})
        for row, kinds in zip(rows, needs, strict=True)
        if kinds
    ]
    note = (
        "Questions. Rightly skipped: right without a search; wrongly: Standard RAG is right; in "
        "vain: neither. Searched: repaired: No Retrieval is wrong, this is right; needless: both "
        "are right; in vain: both are wrong; harmed: only No Retrieval is right."
    )
    return figures.stacked("Was the search needed?", bars, note) if bars else ""


def _uncertainty(runs: Sequence[RunRecords], rows: Sequence[Row]) -> tuple[list[str], str]:
    """Figures about u, and the explorer of its threshold; none below 10 direct answers."""
    u, right = metrics.direct_answers(runs[policy.source_of(runs)].records)
    defined = ~np.isnan(u) & ~np.isnan(right)
    if defined.sum() < policy.LEAST:
        return [], ""
    gates = [
        (i, row.label, threshold)
        for i, (run, row) in enumerate(zip(runs, rows, strict=True))
        for threshold in policy.own_thresholds(run)
    ]
    recorded = [
        (i, rows[i].label, 1 - rows[i].means["trigger"].mean, rows[i].means["exact_match"].mean)
        for i, _, _ in gates
        if rows[i].means["exact_match"].n
    ]
    histograms = [figures.uncertainty_histogram(u[defined], right[defined], gates)]
    arms = policy.arms(runs, baseline=_reference(rows))
    if arms is None:
        return histograms, ""
    settings = policy.settings(arms)
    figure = figures.em_against_query_ratio(arms.always, policy.curve(settings), recorded)
    return histograms, explorer(arms, settings, [row.label for row in rows], figure)


def _reference(rows: Sequence[Row]) -> int:
    """Position of the baseline of a data set."""
    return next((i for i, row in enumerate(rows) if not row.differences), 0)


def packed(runs: Sequence[RunRecords]) -> str:
    """Data of the page's script: gzipped JSON in base64, deterministic."""
    plain = [browsable(name, members) for name, members in by_dataset(runs).items()]
    data = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    plain_text = printable(data).encode()
    return base64.b64encode(gzip.compress(plain_text, compresslevel=6, mtime=0)).decode()


def browsable(dataset: str, runs: Sequence[RunRecords]) -> dict[str, Any]:
    """A data set as the page's script reads it.

    ``runs`` are labels; each of ``questions`` has ``answers`` in their order, null for a run
    without this question; ``passages`` maps ids in the traces to title and text, where the runs
    stored them.
    """
    questions: dict[str, dict[str, Any]] = {}
    for position, run in enumerate(runs):
        for record in run.records:
            question = questions.setdefault(
                record["question_id"],
                {
                    "id": record["question_id"],
                    "text": record["question"],
                    "gold": record["gold_answers"],
                    "passages": record.get("gold_passages", []),
                    "answers": [None] * len(runs),
                },
            )
            question["answers"][position] = _answer(record)
    for position, kinds in enumerate(gated_needs(runs)):
        for name, kind in kinds.items():
            questions[name]["answers"][position]["need"] = kind
    texts: dict[str, Any] = {}
    for run in runs:
        for name, passage in read_passages(run.path).items():
            texts.setdefault(name, [passage["title"], passage["text"][:PASSAGE_CHARACTERS]])
    return {
        "dataset": dataset,
        "runs": labels(runs),
        "questions": list(questions.values()),
        "passages": texts,
    }


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in record:
        return {"error": record["error"]}
    scores = metrics.question_scores(record, {})
    return {
        "text": record["prediction"],
        "em": scores.get("exact_match"),
        "f1": _short(scores.get("f1")),
        "contains": scores.get("contains"),
        "trace": _short(record.get("trace", {})),
        "cost": record.get("cost", {}),
    }


def _short(value: Any) -> Any:
    """The same JSON with floats rounded to four digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list) else value
