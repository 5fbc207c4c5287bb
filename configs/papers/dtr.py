"""Tables and figures of DTR.

The curves over uncertainty come from stored direct answers and runs that always retrieve, one of
each for a model size.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from jaxrag.configs import dtr, pairs
from jaxrag.configs.papers.models import (
    model,
    passages,
    questions,
    reading,
    three,
    with_method,
    with_models,
)
from jaxrag.configs.papers.pairs import gold_figures_of
from jaxrag.configs.parts import Variant
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.gold_geometry import GoldGeometry
from jaxrag.reproduction.gate_figures import GainOf, gain_curves, ratio_curves, threshold_curves
from jaxrag.reproduction.printed.tables import PrintedRow, printed_tables
from jaxrag.reproduction.tables import Declarations, Figure, Line, Setting, Table
from jaxrag.runs.run import Run
from jaxrag.steps.gates import JudgeGate

SMALL_THRESHOLDS = {0.001: 0.2, 0.005: 0.4, 0.01: 0.8}
"""In place of the paper's, for SmolLM2, whose answers are less certain."""


def _run(method: str, row: PrintedRow, setting: Setting) -> Run:
    """A method of configs/dtr.py with the row's models and number of passages."""
    run: Any = dtr.METHODS[method].make(Variant(method, setting.data))
    if row.passages:
        run = reading(run, passages(row, setting))
    return with_models(run, row, setting)


def _line(method: str) -> Line:
    return Line(lambda row, setting: _run(method, row, setting))


def _judge(generator: str) -> Line:
    """Standard RAG where a judge wants it; the judge may be another model than the generator."""

    def make(row: PrintedRow, setting: Setting) -> Run:
        run = _run("llm_judge", row, setting)
        judge = model(generator) if setting.paper and generator != row.generator else None
        run = with_method(run, gate=JudgeGate(judge))
        return dataclasses.replace(run, label=row.method if setting.paper else "")

    return Line(make)


def _main_row(threshold: float, generator: str | None) -> PrintedRow | None:
    """The row of Table 2, which prints ratios of retrieval, with a threshold and a generator."""
    rows = printed_tables()["dtr/table2"].rows
    same = (r for r in rows if r.method == f"dtr_u{threshold}" and r.generator == generator)
    return next(same, None)


def _dtr(threshold: float, method: str = "dtr") -> Line:
    def make(row: PrintedRow, setting: Setting) -> Run:
        default = threshold if setting.paper else SMALL_THRESHOLDS[threshold]
        value = setting.threshold(_main_row(threshold, row.generator), "trigger_ratio", default)
        run = with_method(_run(method, row, setting), gate=UncertaintyGate(value))
        return dataclasses.replace(run, label=f"{method} u={value}")

    return Line(make)


_RETRIEVALS = ("standard_rag", "hyde", "q2d", "cot", "dpr_ais")
_BASELINES = {name: _line(name) for name in ("no_retrieval", "standard_rag", "hyde", "q2d", "cot")}
_MAIN = Table(
    questions,
    {
        **_BASELINES,
        "llm_judge_7b": _judge("Qwen2.5-7B-Instruct"),
        "llm_judge_72b": _judge("Qwen2.5-72B-Instruct"),
        "dtr_u0.001": _dtr(0.001),
        "dtr_u0.005": _dtr(0.005),
        "dtr_u0.01": _dtr(0.01),
    },
)
TABLES = {
    "dtr/table2": _MAIN,
    "dtr/table3": Table(
        questions,
        {
            "dtr_u0.001": three(_dtr(0.001)),
            "dtr_wo_ugt": three(_line("dtr_wo_ugt")),
            "dtr_wo_dpr": three(_dtr(0.001, "dtr_wo_dpr")),
            "dtr_wo_ais_1q2p": three(_dtr(0.001, "dtr_wo_ais_1q2p")),
            "dtr_wo_ais_2q1p": three(_dtr(0.001, "dtr_wo_ais_2q1p")),
        },
    ),
    "dtr/table4": Table(questions, {name: three(_line(name)) for name in _RETRIEVALS}),
    "dtr/table6": _MAIN,
    "dtr/table7": _MAIN,
}
SETS = ("hotpotqa", "nq", "triviaqa", "squad", "webq")
SIZES = ("7B", "32B", "72B")
"""Of Qwen2.5-Instruct in the figures. At smaller scales they are one model, drawn once."""

MECHANISMS = {
    "Standard RAG": "standard_rag",
    "HyDE": "hyde",
    "Q2D": "q2d",
    "CoT": "cot",
    "DPR-AIS": "dtr_wo_ugt",
}
"""Runs that always retrieve, by their names in the figures (the paper does not list them)."""


def _sized(method: str, size: str) -> Callable[[Setting], Run]:
    def make(setting: Setting) -> Run:
        run: Any = dtr.METHODS[method].make(Variant(method, setting.data))
        if not setting.paper:
            return run
        return dataclasses.replace(run, model=model(f"Qwen2.5-{size}-Instruct"))

    return make


_DIRECT = {size: _sized("no_retrieval", size) for size in SIZES}
_ALWAYS = {f"{size}, retrieved": _sized("dtr_wo_ugt", size) for size in SIZES}
_BY_MECHANISM = {label: _sized(method, "7B") for label, method in MECHANISMS.items()}
_BY_SIZE = {size: (size,) for size in SIZES}
_SIZE_GAINS = {size: GainOf(size, f"{size}, retrieved") for size in SIZES}
_MECHANISM_GAINS = {label: GainOf("7B", label) for label in MECHANISMS}


def _geometry(setting: Setting) -> GoldGeometry:
    """PAIRS' analysis with DTR's pseudo-contexts."""
    job: Any = pairs.METHODS["gold_geometry"].make(Variant("gold_geometry", setting.data))
    if not setting.paper:
        return job
    run = with_method(job.run, reader=dataclasses.replace(job.run.method.reader, prompts="dtr"))
    return dataclasses.replace(job, run=run)


_BOTH = {**_DIRECT, **_ALWAYS}
FIGURES = {
    "dtr/figure3": Figure(
        "EM without retrieval and query ratio over the threshold",
        ("hotpotqa", "nq"),
        questions,
        _DIRECT,
        functools.partial(threshold_curves, jobs=SIZES),
        _BY_SIZE,
    ),
    "dtr/figure5": Figure(
        "EM gain of retrieving over the threshold",
        ("hotpotqa", "nq"),
        questions,
        {**_BOTH, **_BY_MECHANISM},
        functools.partial(
            gain_curves, blocks={"by size": _SIZE_GAINS, "by retrieval": _MECHANISM_GAINS}
        ),
        {**_SIZE_GAINS, **_MECHANISM_GAINS},
    ),
    **gold_figures_of("dtr", 7, _geometry),
    "dtr/figure16": Figure(
        "EM and F1 without retrieval over the share of least uncertain questions",
        SETS,
        questions,
        _DIRECT,
        functools.partial(ratio_curves, jobs=SIZES),
        _BY_SIZE,
    ),
    "dtr/figure17": Figure(
        "EM gain of retrieving over the threshold, by model size",
        SETS,
        questions,
        _BOTH,
        functools.partial(gain_curves, blocks={"": _SIZE_GAINS}),
        _SIZE_GAINS,
    ),
    "dtr/figure18": Figure(
        "EM gain of retrieving over the threshold, by retrieval",
        SETS,
        questions,
        {"7B": _DIRECT["7B"], **_BY_MECHANISM},
        functools.partial(gain_curves, blocks={"": _MECHANISM_GAINS}),
        _MECHANISM_GAINS,
    ),
}
LEFT_OUT = {
    "dtr/table1": "sizes of data sets; docs/data.md has them",
    "dtr/table5": "the list of symbols",
    "dtr/figure1": "a picture of the method",
    "dtr/figure2": "a picture of the idea",
    "dtr/figure4": "a picture of the method",
    "dtr/figure6": "an example in the text",
    **{f"dtr/figure{n}": "a prompt; docs/methods/dtr.md describes it" for n in range(11, 16)},
    "dtr/figure19": "an example in the text",
}
DECLARED = Declarations(TABLES, FIGURES, LEFT_OUT, {"dtr": dtr.as_released})
