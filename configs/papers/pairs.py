"""Tables and figures of PAIRS."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from jaxrag.configs import pairs
from jaxrag.configs.papers.models import (
    passages,
    questions,
    reading,
    three,
    with_method,
    with_models,
)
from jaxrag.configs.parts import Variant
from jaxrag.methods.gold_geometry import GoldGeometry
from jaxrag.methods.pairs import Config as PairsConfig
from jaxrag.reproduction import gold_figures
from jaxrag.reproduction.bars import bars
from jaxrag.reproduction.gate_figures import ALWAYS, GROUPS, Metric, in_group
from jaxrag.reproduction.measures import JOB
from jaxrag.reproduction.printed.tables import PrintedRow, printed_tables
from jaxrag.reproduction.tables import Declarations, Figure, Line, Setting, Table
from jaxrag.runs.run import Run

ALL_SETS = ("hotpotqa", "2wiki", "nq", "webq", "squad", "triviaqa")

SMALL_AGREEMENT = 0.4
"""Least token F1 of two answers that agree, for SmolLM2, whose answers are seldom equal."""


def _run(method: str, row: PrintedRow | None, setting: Setting) -> Run:
    """A method of configs/pairs.py with the row's models and number of passages."""
    run: Any = pairs.METHODS[method].make(Variant(method, setting.data))
    if isinstance(run.method, PairsConfig) and (setting.ratio or not setting.paper):
        agreement: Any = run.method.gate
        printed = _main_row(row.generator if row else None)
        f1 = setting.threshold(printed, "retriever_activation_ratio", SMALL_AGREEMENT)
        gate = dataclasses.replace(agreement, test="f1", f1=f1)
        run = dataclasses.replace(with_method(run, gate=gate), label=f"{method} f1={f1}")
    if row is None:
        return run
    if row.passages:
        run = reading(run, passages(row, setting))
    return with_models(run, row, setting)


def _main_row(generator: str | None) -> PrintedRow:
    """PAIRS in Table 2, which prints ratios of retrieval; of one generator if it has that."""
    rows = [row for row in printed_tables()["pairs/table2"].rows if row.method == "pairs"]
    return next((row for row in rows if row.generator == generator), rows[0])


def _line(method: str) -> Line:
    return Line(lambda row, setting: _run(method, row, setting))


def _table(*methods: str) -> Table:
    return Table(questions, {name: _line(name) for name in methods})


def _f1(dataset: str) -> str:
    """F1 as printed on a data set."""
    metric = printed_tables()["pairs/table2"].metric_of("F1", dataset)
    assert metric is not None
    return metric


def _group(name: Any) -> Line:
    metrics: dict[str, Metric] = {"EM": "exact_match", "F1": _f1}
    return Line(
        lambda row, setting: _run("pairs", row, setting),
        {printed: in_group(name, metric) for printed, metric in metrics.items()},
        {ALWAYS: lambda row, setting: _run("dpr_ais", row, setting)},
    )


def _geometry(setting: Setting) -> GoldGeometry:
    return pairs.METHODS["gold_geometry"].make(Variant("gold_geometry", setting.data))  # pyright: ignore


def _alpha(row: PrintedRow, setting: Setting) -> GoldGeometry:
    job: Any = pairs.METHODS["alpha"].make(Variant("alpha", setting.data))
    return job


_ABLATIONS = (
    "dpr_ais",
    *(f"dpr_ais_{name}" for name in ("wo_dpr_q", "wo_dpr_p", "wo_ais_2q1p", "wo_ais_1q2p")),
)
TABLES = {
    "pairs/table2": _table(
        "no_retrieval", "standard_rag", "hyde", "q2d", "cot", "pairs", "dpr_ais", "rerank",
        "dpr_ais_rerank",
    ),
    "pairs/table3": Table(questions, {name: three(_line(name)) for name in _ABLATIONS}),
    "pairs/table4": _table("dpr_ais", "dpr_ais_dynamic"),
    "pairs/table5": _table("pairs", "pairs_exclude_num"),
    "pairs/table7": _table("standard_rag", "pairs", "dpr_ais"),
    "pairs/table8": Table(questions, {name: _group(name) for name in GROUPS}, datasets=ALL_SETS),
    "pairs/figure10": Table(
        questions,
        {"dpr_ais_dynamic": Line(_alpha)},
        measures=gold_figures.ALPHA_FIT,
        draw=gold_figures.alpha_scatter,
    ),
}  # fmt: skip


def _groups(metric: Metric, printed: str) -> Figure:
    return Figure(
        f"{printed} of questions by the gate's decision",
        ALL_SETS,
        questions,
        {
            JOB: lambda setting: _run("pairs", None, setting),
            ALWAYS: lambda setting: _run("dpr_ais", None, setting),
        },
        functools.partial(
            bars,
            measures={group: in_group(group, metric) for group in GROUPS},
            y_title=f"{printed}, %",
            legend=GROUPS,
        ),
    )


def gold_figures_of(
    paper: str, first: int, geometry: Callable[[Setting], GoldGeometry]
) -> dict[str, Figure]:
    """Four figures of hotpotqa's gold passages, which PAIRS and DTR print under other numbers."""
    drawn = {
        "cosine of questions and gold documents": gold_figures.similarities,
        "rank of gold documents in the search by the question": gold_figures.ranks,
        "documents around the question, xy": gold_figures.positions,
        "documents around the question, polar": functools.partial(
            gold_figures.positions, polar=True
        ),
    }
    return {
        f"{paper}/figure{n}": Figure(title, ("hotpotqa",), questions, {JOB: geometry}, draw)
        for n, (title, draw) in enumerate(drawn.items(), first)
    }


FIGURES = {
    "pairs/figure3": _groups("exact_match", "EM"),
    "pairs/figure11": _groups(_f1, "F1"),
    **gold_figures_of("pairs", 5, _geometry),
}
LEFT_OUT = {
    "pairs/table1": "sizes of data sets; docs/data.md has them",
    "pairs/table6": "the list of symbols",
    "pairs/figure1": "a picture of the method",
    "pairs/figure2": "a picture of the method",
    "pairs/figure4": "an example in the text",
    "pairs/figure9": "the prompts; docs/methods/pairs.md describes them",
    "pairs/figure12": "an example in the text",
    "pairs/figure13": "an example in the text",
}
DECLARED = Declarations(TABLES, FIGURES, LEFT_OUT)
