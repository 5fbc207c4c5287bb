"""The report of a bandit job: one self-contained HTML page, and its tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core import durable_files, jsonl
from jaxrag.core.json_text import parse_json
from jaxrag.core.printable import html_text
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.report.document import configs, document, machines
from jaxrag.evaluation.report.tables import Grid, p_text
from jaxrag.methods.ars.bandit.figures import figures
from jaxrag.types import InputError

CURVES, SUMMARY = "curves.jsonl", "bandit.json"
ENDS = ("mean", "low", "high")
SCORES = {"correct": "accuracy %", "exact_match": "EM %", "f1": "F1 %"}
READING = (
    "All values are of the test questions under the K chosen for each after the last epoch, "
    "without exploration; n: questions. A value of several seeds is each question's mean over the "
    "seeds, its 95 % interval a bootstrap over questions; ±: sample standard deviation of the "
    "seeds' means.",
    "Reward: the base reward (1 or 0; of open answers 1 for an exact match, otherwise F1) times "
    "w_k, or minus lambda * k. Oracle: the best K of each question in hindsight, the smallest of "
    "equals. Regret: reward of the oracle minus reward. Best fixed K: the K with the highest mean "
    "reward on the training questions; the difference from it is paired, p by sign flips, not "
    "adjusted for multiple comparisons. Random K: the exact mean over all K.",
    "No language model was called: the rewards of all K had been stored.",
)


def write_bandit_report(directory: str | Path, out_html: str | Path) -> list[Grid]:
    """Writes the page, and its tables beside it under the same name ending in .md.

    Returns, for each reward table, the policies under the weights and the learner under each
    lambda. InputError where ``directory`` is not that of a finished bandit job.
    """
    path = Path(directory)
    head, file = read_run(path), path / SUMMARY
    if not file.is_file():
        raise InputError(f"{path} holds no {SUMMARY}: run the bandit job to its end first.")
    try:
        tables = parse_json(file.read_text("utf-8"))["tables"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not a {SUMMARY} ({error!r}); run the job again.") from error
    lines = jsonl.read(path / CURVES, key="training")
    grids = [grid for table in tables for grid in tables_of(table)]
    markdown = "\n".join([*(grid.markdown() for grid in grids), *READING, ""])
    questions = " and ".join(
        f"{t['questions']['train']:,} + {t['questions']['test']:,} questions of {t['table']}"
        for t in tables
    )
    page = document(
        title=f"How many rewrites: {', '.join(table['table'] for table in tables)}",
        lede=f"{len(lines):,} trainings from stored rewards; training and test: {questions}.",
        facts=[*_facts(head.config), *machines(head.environments)],
        sections="\n".join(_section(table, lines) for table in tables),
        reading=READING,
        markdown=markdown,
        configs=configs([(path.name, head.config, head.environments)]),
    )
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    durable_files.write_text(out, page)
    durable_files.write_text(out.with_suffix(".md"), markdown)
    return grids


def tables_of(table: Mapping[str, Any]) -> list[Grid]:
    """A reward table's policies under the weights, and the learner under each lambda."""
    grids = [policies(table), lambdas(table)]
    return [grid for grid in grids if grid.rows]


def policies(table: Mapping[str, Any]) -> Grid:
    """The policies under the weights: scores, K, regret, and difference from the best fixed K."""
    unpenalised = [row for row in table["results"] if row["penalty"] is None]
    means = [row["means"] for row in unpenalised]
    # of closed questions EM and F1 equal accuracy
    scores = {name: heading for name, heading in SCORES.items()
              if name == "correct" or any(m[name] != m["correct"] for m in means)}  # fmt: skip
    rows = [
        (
            _label(row),
            f"{row['means']['reward']['n']:,}",
            _plain(row, "reward", 3),
            f"{row['std']['reward']:.3f}" if row["std"] else "–",
            *(_percent(row, name) for name in scores),
            _plain(row, "k", 1),
            _plain(row, "regret", 3),
            _against(row),
        )
        for row in unpenalised
    ]
    heads = (table["table"], "n", "reward", "± over\nseeds", *scores.values(), "mean K", "regret")
    return Grid((*heads, "over best\nfixed K"), rows)


def lambdas(table: Mapping[str, Any]) -> Grid:
    """The learner under each penalty."""
    rows = []
    for row in table["results"]:
        if row["penalty"] is None or not row["seeds"]:
            continue
        cells = [f"{row['penalty']:g}", _percent(row, "correct"), _plain(row, "k", 1),
                 _plain(row, "reward", 3), _against(row)]  # fmt: skip
        rows.append(tuple(cells))
    heads = (f"{table['table']}: lambda", "accuracy %", "mean K", "reward", "over best\nfixed K")
    return Grid(heads, rows)


def _label(row: Mapping[str, Any]) -> str:
    if row["policy"] == "best fixed K":
        return f"best fixed K (= {row['best_fixed']})"
    return row["policy"] + (f", {row['seeds']} seeds" if row["seeds"] > 1 else "")


def _plain(row: Mapping[str, Any], name: str, digits: int, factor: int = 1) -> str:
    mean, low, high = (f"{factor * row['means'][name][end]:.{digits}f}" for end in ENDS)
    return f"{mean} [{low}, {high}]"


def _percent(row: Mapping[str, Any], name: str) -> str:
    return _plain(row, name, 1, 100)


def _against(row: Mapping[str, Any]) -> str:
    gain = row["over_best_fixed"]
    if row["policy"] == "best fixed K" or math.isnan(gain["p"]):
        return "–"
    return f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}] p{p_text(gain['p'])}"


def _section(table: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    mine = [line for line in lines if line["table"] == table["table"]]
    if plots.has_matplotlib():
        drawn = f'<div class="figures">{"".join(figures(table, mine))}</div>'
    else:
        drawn = f"<p>No {html_text(plots.MISSING)}; then run the job again.</p>"
    return (
        f"<section><h2>{html_text(table['table'])}</h2>"
        f"{''.join(grid.html() for grid in tables_of(table))}"
        f"<h3>Learning and choosing</h3>{drawn}</section>"
    )


def _facts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings for the page's head."""
    parts = {name: config.get("bandit", {}).get(name, {}) for name in ("learner", "training")}
    return [
        (name.capitalize(), ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in values.items()))
        for name, values in parts.items()
        if values
    ]
