"""Turns a selector job's directory into one self-contained HTML page and its tables as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core import durable_files, jsonl
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.document import configs, document, machines
from jaxrag.evaluation.report.tables import Grid, p_text
from jaxrag.methods.ars.bandit import figures as selector_figures
from jaxrag.types import InputError

CURVES, SUMMARY = "curves.jsonl", "selector.json"
SCORES = {"correct": "accuracy %", "exact_match": "EM %", "f1": "F1 %"}
READING = (
    "All figures are of the test questions under the K that was chosen for each after the last "
    "epoch, without exploration unless the settings say so; n: questions. A figure of several "
    "seeds is each question's mean over them, its 95 % interval a bootstrap over questions; ±: "
    "sample standard deviation of the seeds' means.",
    "Reward: the base reward (1 or 0; of open answers 1 for an exact match, else F1) times "
    "w_k, or less lambda * k. Regret: what the oracle, the best K of each question in hindsight "
    "and the smallest of equals, has more. Best fixed K: the one K of the highest mean reward on "
    "the training questions; the difference from it is paired, p by sign flips, not adjusted for "
    "several comparisons. Random K: the mean over all K, exactly.",
    "No language model was called: rewards of all K were stored before.",
)


class Results(NamedTuple):
    """A selector job's directory as it was read.

    Attributes:
      path: the directory.
      config, environments: as `records.Run` has them.
      tables: of selector.json.
      lines: of curves.jsonl.
    """

    path: Path
    config: dict[str, Any]
    environments: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    lines: list[dict[str, Any]]


def read_selector(path: str | Path) -> Results:
    """Reads what a selector job wrote.

    Raises:
      InputError: it is no such directory, or not finished.
    """
    head, file = read_run(path), Path(path) / SUMMARY
    if not file.is_file():
        raise InputError(f"{path} holds no {SUMMARY}: run the selector job to its end first.")
    try:
        tables = json.loads(file.read_text("utf-8"))["tables"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not a {SUMMARY} ({error!r}); run the job again.") from error
    lines = jsonl.read(Path(path) / CURVES, key="training")
    return Results(Path(path), head.config, head.environments, tables, lines)


def write_selector_report(directory: str | Path, out_html: str | Path) -> list[Grid]:
    """Writes the page, and its tables beside it under the same name ending in .md.

    Returns:
      The tables: of each reward table its policies, then its lambdas where there are any.

    Raises:
      InputError: ``directory`` is not a finished selector job's.
    """
    found = read_selector(directory)
    grids = [grid for table in found.tables for grid in tables_of(table)]
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    durable_files.write_text(out, _page(found))
    durable_files.write_text(out.with_suffix(".md"), _markdown(found))
    return grids


def tables_of(table: Mapping[str, Any]) -> list[Grid]:
    """A reward table's policies under the weights, and the learner under each lambda."""
    grids = [policies(table), lambdas(table)]
    return [grid for grid in grids if grid.rows]


def policies(table: Mapping[str, Any]) -> Grid:
    """The policies under the weights: scores, K, regret, and against the best fixed K."""
    shown = [row for row in table["results"] if row["penalty"] is None]
    scores = {name: told for name, told in SCORES.items() if _tells(shown, name)}
    rows = []
    for row in shown:
        cells = [f"{row['means']['reward']['n']:,}", _plain(row, "reward", 3)]
        cells += [f"{row['std']['reward']:.3f}" if row["std"] else "–"]
        cells += [_percent(row, name) for name in scores]
        cells += [_plain(row, "k", 1), _plain(row, "regret", 3), _against(row)]
        rows.append((_label(row), *cells))
    heads = (table["table"], "n", "reward", "± over\nseeds", *scores.values(), "mean K", "regret")
    return Grid((*heads, "over best\nfixed K"), rows)


def _tells(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether a score is another one than accuracy: of closed questions all are the same."""
    means = [row["means"] for row in rows]
    return name == "correct" or any(one[name] != one["correct"] for one in means)


def lambdas(table: Mapping[str, Any]) -> Grid:
    """The learner under each penalty, and beside it what the paper prints for this data set."""
    paper = printed(table["dataset"])
    rows = []
    for row in table["results"]:
        if row["penalty"] is None or not row["seeds"]:
            continue
        cells = [
            f"{row['penalty']:g}",
            _percent(row, "correct"),
            _plain(row, "k", 1),
            _plain(row, "reward", 3),
            _against(row),
        ]
        if paper:
            at = paper.get(row["penalty"], {})
            accuracy, k = at.get("accuracy"), at.get("mean_k")
            cells += [
                "–" if accuracy is None else f"{accuracy:.1f}",
                "–" if k is None else f"{k:.1f}",
            ]
        rows.append(tuple(cells))
    heads = (f"{table['table']}: lambda", "accuracy %", "mean K", "reward", "over best\nfixed K")
    return Grid(heads + (("accuracy %\nprinted", "mean K\nprinted") if paper else ()), rows)


def printed(dataset: str) -> dict[float, Mapping[str, Any]]:
    """The rows of ARS-RAG's table 3 by lambda; none for a data set that it is not about."""
    file = resources.files("jaxrag.methods.ars.bandit").joinpath("paper_selector.json")
    content = json.loads(file.read_text("utf-8"))
    return {row["penalty"]: row for row in content["rows"] if content["dataset"] == dataset}


def _label(row: Mapping[str, Any]) -> str:
    if row["policy"] == "best fixed K":
        return f"best fixed K (= {row['best_fixed']})"
    return row["policy"] + (f", {row['seeds']} seeds" if row["seeds"] > 1 else "")


def _plain(row: Mapping[str, Any], name: str, digits: int) -> str:
    one = row["means"][name]
    return f"{one['mean']:.{digits}f}{_ends(one, 1, digits)}"


def _percent(row: Mapping[str, Any], name: str) -> str:
    one = row["means"][name]
    return f"{100 * one['mean']:.1f}{_ends(one, 100, 1)}"


def _ends(one: Mapping[str, Any], factor: float, digits: int) -> str:
    return f" [{factor * one['low']:.{digits}f}, {factor * one['high']:.{digits}f}]"


def _against(row: Mapping[str, Any]) -> str:
    one = row["over_best_fixed"]
    if row["policy"] == "best fixed K" or math.isnan(one["p"]):
        return "–"
    return f"{one['mean']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}] p{p_text(one['p'])}"


def _markdown(found: Results) -> str:
    grids = [grid for table in found.tables for grid in tables_of(table)]
    return "\n".join([*(grid.markdown() for grid in grids), *READING, ""])


def _page(found: Results) -> str:
    questions = " and ".join(
        f"{t['questions']['train']:,} + {t['questions']['test']:,} questions of {t['table']}"
        for t in found.tables
    )
    names = ", ".join(table["table"] for table in found.tables)
    return document(
        title=f"How many rewrites: {names}",
        lede=f"{len(found.lines):,} trainings from stored rewards; training and test: {questions}.",
        facts=[*_facts(found.config), *machines(found.environments)],
        sections="\n".join(_section(table, found.lines) for table in found.tables),
        reading=READING,
        markdown=_markdown(found),
        configs=configs([(found.path.name, found.config, found.environments)]),
    )


def _section(table: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    mine = [line for line in lines if line["table"] == table["table"]]
    figures = [
        selector_figures.learning(table, mine),
        selector_figures.side_by_side(table, mine),
        selector_figures.policy_bars(table),
        selector_figures.choices(table),
        selector_figures.penalties(table),
    ]
    note = ""
    if lambdas(table).rows and printed(table["dataset"]):
        note = (
            '<p class="note">Printed: ARS-RAG, table 3, boolq, 400 test questions; its generator '
            "is not stated, and the accuracy at 0.03 is missing.</p>"
        )
    return (
        f"<section><h2>{escape(table['table'])}</h2>"
        f"{''.join(grid.html() for grid in tables_of(table))}{note}"
        f'<h3>Learning and choosing</h3><div class="figures">{"".join(figures)}</div></section>'
    )


def _facts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings for the page's head."""
    given = config.get("selector", {})
    told = []
    for name in ("learner", "training"):
        values = given.get(name, {})
        words = [f"{key.replace('_', ' ')} {value}" for key, value in values.items()]
        told.append((name.capitalize(), ", ".join(words)))
    return [(name, words) for name, words in told if words]
