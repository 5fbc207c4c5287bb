"""ERRR, RRR and what their tables compare them with: METHOD@DATA.

Source: docs/methods.md, "ERRR: frozen and trainable" and "ERRR: baselines".

    python -m experiments.run --config configs/errr.py:frozen_errr@popqa --workdir runs/errr

Methods:

- ``direct``: no retrieval. ``rag``: the question itself is searched for.
- ``frozen_rrr``: the reader writes queries. ``frozen_errr``: it writes down what it knows before.
- ``trainable_rrr``, ``trainable_errr``: a trained model writes the queries,
  ``--config.method.rewriter.model.checkpoint=DIRECTORY`` of RRR,
  ``--config.method.optimizer.model.checkpoint=DIRECTORY`` of ERRR: a T5, or with ``+decoder``, as
  in ``trainable_errr+decoder@popqa``, a model of our own decoder.

Data: ``tiny``, for tests; ``factbook``, whose test questions are about other countries than those
to train on; ``factbook_known``, whose test questions are new ones about the same countries (a
student that began with random weights writes no name that it has not learned); ``popqa``,
``ambigqa`` and ``hotpotqa`` over the folder wiki_pool. 200 drawn test questions of each, of PopQA
those whose gold passages are known; the questions drawn to train on are others (see
`configs.errr_pairs`). All with SmolLM2 and MiniLM, one short passage read. ``paper-popqa`` and so
on: GPT-3.5-Turbo behind its server, DPR by its distance, 5 passages, as many questions as the paper
has or there are; not run by us.

Each data set has demonstrations of its own, ``--config.method.reader.prompts=errr_small_popqa`` or,
for models that follow instructions, ``errr_popqa``; ``errr`` and ``errr_small`` have general ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs import parts
from configs.parts import K, wiki
from jaxrag.data.draw import Draw
from jaxrag.data.factbook.build import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.engines.server import Server
from jaxrag.methods.errr import errr, rrr
from jaxrag.methods.errr.queries import RRR, Prompted, StudentInput, Trained
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL, STANDARD_RAG
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.retrieval.dense.settings import Exact
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.searches import Search
from jaxrag.types import InputError

DATA = {
    "tiny": Draw(
        Factbook(split="train", countries=3), test_source=Factbook(countries=3), train=8, test=4
    ),
    "factbook": Draw(Factbook(split="train"), test_source=Factbook(), train=1000, test=200),
    "factbook_known": Draw(Factbook(split="train"), train=1000, test=200),
    "popqa": Draw(wiki("popqa"), train=700, test=200, only_gold=True),
    "ambigqa": Draw(wiki("ambigqa", "train"), test_source=wiki("ambigqa"), train=1000, test=200),
    "hotpotqa": Draw(wiki("hotpotqa"), train=300, test=200),
}
PAPER = {
    **DATA,
    "popqa": Draw(wiki("popqa"), train=900, test=997),
    "ambigqa": dataclasses.replace(DATA["ambigqa"], train=2000, test=1000),
    "hotpotqa": Draw(wiki("hotpotqa", "train"), test_source=wiki("hotpotqa"), train=100, test=500),
}
METHODS = ("direct", "rag", "frozen_rrr", "trainable_rrr", "frozen_errr", "trainable_errr")
ENDING = "\nQueries:"
"""Tells a decoder that the question is over."""


def parts_of(variant: str) -> tuple[str, str, str, bool]:
    """Method, student ("decoder" or "") and data of a variant, and whether it is the paper's.

    Raises:
      InputError: no such data, or no such student.
    """
    name, data, paper = parts.parts_of(variant, DATA)
    method, _, student = name.partition("+")
    if student not in ("", "decoder"):
        raise InputError(f"no student {student!r} in {variant!r}: +decoder, or nothing for a T5.")
    return method, student, data, paper


def reader_of(data: str, paper: bool) -> Reader:
    """How the model is asked about some data."""
    shown = "factbook" if data in ("tiny", "factbook_known") else data
    if paper:
        return Reader(prompts=f"errr_{shown}")
    return Reader(prompts=f"errr_small_{shown}", answer_tokens=16, passage_tokens=48)


def prompted(paper: bool, *, context: bool) -> Prompted:
    """How the reader is asked for queries."""
    return Prompted(context=context) if paper else Prompted(context=context, tokens=48)


def student_input(student: str, *, context: bool) -> StudentInput:
    """What a student reads: RRR's without what the reader knows, as in its released code."""
    ending = ENDING if student else ""
    return StudentInput(ending=ending) if context else StudentInput(RRR, False, ending)


def trained(student: str, paper: bool, *, context: bool) -> Trained:
    """A trained writer of queries, whose checkpoint is to be given; RRR's searches 4 beams."""
    reads = student_input(student, context=context)
    model = Local("") if student else Seq2Seq(beams=4 if paper and not context else 1)
    return Trained(reads, model) if context else Trained(reads, model, tokens=50)


def method_of(name: str, student: str, data: str, paper: bool) -> Any:
    """The config of a method.

    Raises:
      InputError: no such method.
    """
    reader, read = reader_of(data, paper), 5 if paper else K
    if name == "direct":
        return dataclasses.replace(NO_RETRIEVAL, reader=reader)
    if name == "rag":
        return dataclasses.replace(
            STANDARD_RAG, candidates=OnePath(n=read), select=Top(k=read), reader=reader
        )
    search = Search(m=5, read=read)
    writers: dict[str, Any] = {
        "frozen_rrr": rrr.Config(prompted(paper, context=False), search, reader=reader),
        "trainable_rrr": rrr.Config(trained(student, paper, context=False), search, reader=reader),
        "frozen_errr": errr.Config(prompted(paper, context=True), search, reader=reader),
        "trainable_errr": errr.Config(trained(student, paper, context=True), search, reader=reader),
    }
    if name not in writers:
        raise InputError(f"no method {name!r}; there are {', '.join(METHODS)}.")
    return writers[name]


def run_on(method: Any, data: str, *, paper: bool, part: str = "test") -> Run:
    """A run of a method on drawn questions."""
    drawn = dataclasses.replace((PAPER if paper else DATA)[data], part=part)
    if not paper:
        return Run(method=method, data=drawn, model=Local(), index=Exact())
    model = Server("gpt-3.5-turbo", "https://api.openai.com/v1", logprobs=False)
    return Run(method=method, data=drawn, model=model, index=Exact(dpr(), metric="l2"))


def get_config(variant: str = "frozen_errr@factbook") -> Run:
    """The run of a method on some data."""
    name, student, data, paper = parts_of(variant)
    if student and not name.startswith("trainable_"):
        raise InputError(f"{name!r} has no student: +decoder is for the trainable methods.")
    run = run_on(method_of(name, student, data, paper), data, paper=paper)
    return dataclasses.replace(
        run,
        label=f"{name}+{student}" if student else name,
        index=None if name == "direct" else run.index,
    )
