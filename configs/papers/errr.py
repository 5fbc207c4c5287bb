"""Tables of ERRR."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrag.configs import errr
from jaxrag.configs.papers.models import with_method
from jaxrag.configs.parts import Variant
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.reproduction.measures import total_cost, wall_seconds
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.reproduction.tables import Declarations, Line, Scale, Setting, Table
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.wiki_dpr.index import WikiDpr
from jaxrag.runs.run import Run
from jaxrag.training.student.checkpoint import OPTIMIZER

_HIT = Worth(exact_match=0.0, f1=0.0)
"""Rewards passages that hold an answer, without the reader: for small models."""

_STEPS = {"tiny": 2, "small": 40}
"""Steps of PPO at smaller scales."""


def _questions(scale: Scale, dataset: str) -> str:
    return {"tiny": "tiny", "small": dataset, "paper": f"paper-{dataset}"}[scale]


def _run(method: str, row: PrintedRow, setting: Setting) -> Run:
    """A method of configs/errr.py on the row's number of questions, with its retriever."""
    run: Any = errr.METHODS[method].make(Variant(method, setting.data))
    count = row.questions.get(setting.dataset)
    if setting.scale != "tiny" and count and count < run.data.test:
        run = dataclasses.replace(run, data=dataclasses.replace(run.data, test=count))
    return _searching(run, row, setting)


def _searching(run: Run, row: PrintedRow, setting: Setting) -> Run:
    """The web, or WikiDPR with its published vectors; smaller scales search their passages."""
    if not setting.paper or run.index is None:
        return run
    web = row.retriever == "brave_web_search"
    return dataclasses.replace(run, index=Web() if web else WikiDpr(exact=True))


def _student(setting: Setting, kind: str) -> str:
    """The directory of a T5 that has learned the frozen variant's queries."""
    method = f"make_pairs_{kind}"
    pairs: Any = errr.METHODS[method].make(Variant(method, setting.data))
    if setting.scale == "tiny":  # of 8 questions
        pairs = dataclasses.replace(pairs, run=with_method(pairs.run, held_out=0.5))
    job = dataclasses.replace(errr.STUDENTS[setting.sizes], pairs=str(setting.directory(pairs)))
    if kind == "rrr" and setting.sizes == "paper":
        job = dataclasses.replace(job, max_target=errr.RRR_TOKENS)
    return str(setting.directory(job) / OPTIMIZER)


def _rewriter(row: PrintedRow, setting: Setting) -> str:
    """The directory of RRR's T5: distilled from the frozen variant, then by PPO over its index."""
    method = "train_rrr_qa" if setting.paper else "train_rrr_hit"
    job: Any = errr.METHODS[method].make(Variant(method, setting.data))
    assert isinstance(job, TrainRrr)
    run = _searching(job.run, row, setting)
    job = dataclasses.replace(job, run=run, checkpoint=_student(setting, "rrr"))
    if not setting.paper:
        job = dataclasses.replace(job, worth=_HIT)
    if setting.sizes != "paper":
        training = dataclasses.replace(job.training, steps=_STEPS[setting.sizes])
        job = dataclasses.replace(job, training=training, evaluation_limit=100)
    return str(setting.directory(job) / OPTIMIZER)


def _with_student(run: Any, field: str, checkpoint: str) -> Run:
    writer = getattr(run.method, field)
    model = dataclasses.replace(writer.model, checkpoint=checkpoint)
    method = dataclasses.replace(run.method, **{field: dataclasses.replace(writer, model=model)})
    return dataclasses.replace(run, method=method)


def _trainable_errr(row: PrintedRow, setting: Setting) -> Run:
    run = _run("trainable_errr", row, setting)
    return _with_student(run, "optimizer", _student(setting, "errr"))


def _trainable_rrr(row: PrintedRow, setting: Setting) -> Run:
    run = _run("trainable_rrr", row, setting)
    return _with_student(run, "rewriter", _rewriter(row, setting))


def _self_rag(row: PrintedRow, setting: Setting) -> Run:
    """The released checkpoint; small models are asked for the same judgements."""
    return _run("self_rag" if setting.paper else "self_rag_prompted", row, setting)


_LINES: Mapping[str, Line] = {
    "no_retrieval": Line(lambda row, setting: _run("direct", row, setting)),
    "standard_rag": Line(lambda row, setting: _run("rag", row, setting)),
    "react": Line(lambda row, setting: _run("react", row, setting)),
    "frozen_rrr": Line(lambda row, setting: _run("frozen_rrr", row, setting)),
    "trainable_rrr": Line(_trainable_rrr),
    "frozen_errr": Line(lambda row, setting: _run("frozen_errr", row, setting)),
    "trainable_errr": Line(_trainable_errr),
    "self_rag": Line(_self_rag),
}


def _timed(line: Line) -> Line:
    """The line with nothing taken from the store, so that its seconds are of the whole work."""

    def make(row: PrintedRow, setting: Setting) -> Run:
        return dataclasses.replace(line.job(row, setting), store="memory")  # pyright: ignore

    return Line(make)


_T5 = (
    "RRR's T5 starts from queries that the frozen variant wrote, since the checkpoint of its "
    "authors that ERRR starts from has no stated source."
)
TABLES = {
    "errr/table2": Table(
        _questions,
        _LINES,
        notes=(_T5, "At smaller scales the passages of the data set stand for the web."),
    ),
    "errr/table3": Table(_questions, _LINES, notes=(_T5,)),
    "errr/table4": Table(
        _questions,
        {name: _timed(line) for name, line in _LINES.items()},
        measures={"cost_usd": total_cost, "latency_s": wall_seconds},
        notes=(
            "Cost: tokens of the generator at the list price of gpt-3.5-turbo on 2024-02-16, 0.5 "
            "and 1.5 dollars for a million tokens read and written ($JAXRAG_PRICES names a list of "
            "your own); a trained T5 and searches cost nothing. The paper states neither prices, "
            "nor the retriever, nor the model of Self-RAG: here WikiDPR and the released "
            "checkpoint, whose tokens are counted at the same price.",
            "Cost and seconds are sums over all questions; the paper has 200. It does not say how "
            "many it asked at once: here a server has up to 64 open requests.",
        ),
    ),
}
LEFT_OUT = {
    "errr/figure1": "a picture of the method",
    "errr/table1": "the prompts; ours are in jaxrag/steps/prompts",
    "errr/table5": "two examples in a text",
}
DECLARED = Declarations(TABLES, {}, LEFT_OUT)
