"""Tables and figures of DTR."""

from __future__ import annotations

import dataclasses
from typing import Any

from configs import dtr
from configs.papers.models import model, passages, questions, reading, with_method, with_models
from configs.parts import Variant
from jaxrag.evaluation.printed import PrintedRow
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.reproduction.tables import Declarations, Line, Setting, Table
from jaxrag.runs.run import Run
from jaxrag.steps.gates import JudgeGate

SMALL_THRESHOLDS = {0.001: 0.2, 0.005: 0.4, 0.01: 0.8}
"""In place of the paper's, for SmolLM2, whose answers are less certain."""


def _run(method: str, row: PrintedRow, setting: Setting) -> Run:
    """A method of configs/dtr.py with the row's models and number of passages."""
    run: Any = dtr.METHODS[method].make(Variant(method, setting.data))
    if row.passages and "wo_ais" not in method:  # which reads three passages at every scale
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


def _dtr(threshold: float, method: str = "dtr") -> Line:
    def make(row: PrintedRow, setting: Setting) -> Run:
        value = threshold if setting.paper else SMALL_THRESHOLDS[threshold]
        run = with_method(_run(method, row, setting), gate=UncertaintyGate(value))
        return dataclasses.replace(run, label=f"{method} u={value}")

    return Line(make)


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
            "dtr_u0.001": _dtr(0.001),
            "dtr_wo_ugt": _line("dtr_wo_ugt"),
            "dtr_wo_dpr": _dtr(0.001, "dtr_wo_dpr"),
            "dtr_wo_ais_1q2p": _dtr(0.001, "dtr_wo_ais_1q2p"),
            "dtr_wo_ais_2q1p": _dtr(0.001, "dtr_wo_ais_2q1p"),
        },
    ),
    "dtr/table4": Table(questions, {**_BASELINES, "dpr_ais": _line("dpr_ais")}),
    "dtr/table6": _MAIN,
    "dtr/table7": _MAIN,
}
LEFT_OUT = {
    "dtr/figure1": "a picture of the idea",
    "dtr/figure2": "a picture of the method",
}
DECLARED = Declarations(TABLES, {}, LEFT_OUT)
