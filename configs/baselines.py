"""The baselines of all papers' tables: METHOD@DATA.

Source: docs/methods, "Baselines", "ERRR: baselines" and "ARS-RAG: baselines".

    jaxrag run --config configs/baselines.py:react@popqa --workdir runs/react

Each paper's config has the baselines of its tables, too, on the paper's questions and with its
models: ``configs/errr.py:react@popqa``.

On the questions of PAIRS and DTR (``quickstart``, ``factbook``, ``hotpotqa``, ``squad``, ``nq``;
Qwen2.5-7B-Instruct, bge-large-en-v1.5 and bge-reranker-base for ``paper-hotpotqa`` and so on):

- ``no_retrieval``: the model's own knowledge. ``standard_rag``: the best passages for the question.
- ``rerank``: the passages that a reranker scores highest among the ten best.
- ``hyde``: a passage that the model writes is the search query. ``q2d``: copies of the question
  joined with such a passage. ``cot``: copies of the question joined with the model's reasoning.
- ``llm_judge``: the model judges whether to retrieve.
- ``dpr_ais``: dual paths and AIS for every question (PAIRS and DTR without their gates).
- ``bm25``: needs ``pip install 'jaxrag[bm25]'``. ``contriever``, ``contriever_ms``, ``e5``,
  ``dpr``: retrievers of R3's Table 1 from the hub (`jaxrag.retrieval.dense.published_encoders`).
  All read as ``standard_rag`` does.
  DPR by distance is ``--config.index.metric=l2``; ten passages, as in half of R3's columns, are
  ``--config.method.candidates.n=10 --config.method.select.k=10``.

On the questions of ERRR (``factbook``, ``factbook_known``, ``popqa``, ``ambigqa``, ``hotpotqa``)
and on the other papers' sets (``paper-nq`` and ``paper-triviaqa`` of R3, ``boolq``, ``strategyqa``,
``medmcqa`` of ARS-RAG, ...); Qwen2.5-7B-Instruct and bge-large-en-v1.5 for ``paper-popqa`` and so
on, unless said otherwise:

- ``react``: thoughts, actions and observations. ``ircot``: each sentence of reasoning is searched
  for.
- ``adaptive_rag``: no, one or several searches, chosen by a trained classifier,
  ``--config.method.complexity.classifier.checkpoint=DIRECTORY``: a T5, or for
  ``adaptive_rag_decoder`` a model of our decoder. ``adaptive_rag_none``, ``adaptive_rag_single``,
  ``adaptive_rag_multi``: every question in one of these ways, without a classifier. `configs.errr`
  trains the classifier.
- ``self_rag``: needs its model, ``--config.model.checkpoint=DIRECTORY`` of
  selfrag/selfrag_llama2_7b; ``paper-``: from the hub, over Contriever. ``self_rag_prompted``: an
  emulation, named so in tables: SmolLM2 is prompted for the judgements that a Self-RAG model makes
  by reflection tokens. Both give short answers, from the best of 5 passages, each read alone. Long
  answers: ``--config.method.form=long``; always or never retrieving:
  ``--config.method.retrieve=always``.
- ``dragin``: retrieves at words that are uncertain and that later text attends to; the words that
  they attend to are the query. ``seakr``: retrieves for steps whose samples are far apart in the
  model's hidden states, and chooses passages and answers by the same measure. Only the local
  engine runs them. ``paper-``: Llama-2-7b-chat and BM25, the released settings for HotpotQA.

On the questions of ARS-RAG (``factbook``, ``boolq``, ``strategyqa``, ``hotpotqa_distractor``,
``medmcqa``, ``arc_challenge``) and on the sets above, with the models of `configs.ars`; settings of
small models are not tuned:

- ``few_shot``: demonstrations without retrieval. ``chain_of_thought``: reasoning without retrieval.
- ``flare``: retrieval where the next sentence is uncertain. ``fairrag``: a stochastic retriever.
- ``rankrag``, ``cor``: the model that answers selects passages, or ranks their ids; prompted
  instead of tuned.

RaFe, a row of ARS-RAG's table, is in `configs.ars`, since its rewriter must be trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrag.configs import data
from jaxrag.configs.parts import (
    ARS,
    BGE,
    CLOSED,
    PAIRS,
    PASSAGE_TOKENS,
    QWEN_7B,
    SMALL,
    Entry,
    K,
    Setup,
    job_of,
)
from jaxrag.engines.local.engine import Local
from jaxrag.methods.baselines import chain_of_thought, cor, fairrag, few_shot, rankrag
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.methods.iterative import adaptive_rag, flare, ircot, react
from jaxrag.methods.iterative.adaptive_rag import Classified, OneStrategy
from jaxrag.methods.iterative.ircot import Interleaving
from jaxrag.methods.retrieve_and_read import (
    COT,
    DPR_AIS,
    HYDE,
    LLM_JUDGE,
    NO_RETRIEVAL,
    Q2D,
    RERANK,
    STANDARD_RAG,
)
from jaxrag.methods.self_rag import self_rag
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import contriever, dpr, e5
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.runs.job import Job
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.steps.reader import Reader


class Baseline(NamedTuple):
    """A method's settings for a small model and its paper's, and the changes of each to a run."""

    small: Any
    paper: Any
    small_run: Mapping[str, Any] = {}
    paper_run: Mapping[str, Any] = {}


def entries(baselines: Mapping[str, Baseline], setup: Setup) -> dict[str, Entry]:
    """Baselines as METHODs on a paper's questions."""
    return {name: setup.entry(*baseline) for name, baseline in baselines.items()}


def prompted(baselines: Mapping[str, Baseline], prompts: str) -> dict[str, Baseline]:
    """Baselines whose paper's settings have another set of prompts, and `PASSAGE_TOKENS`."""
    changes: dict[str, Any] = {"prompts": prompts, "passage_tokens": PASSAGE_TOKENS}
    return {
        name: baseline._replace(
            paper=dataclasses.replace(
                baseline.paper, reader=dataclasses.replace(baseline.paper.reader, **changes)
            )
        )
        for name, baseline in baselines.items()
    }


_OTHERS = {**data.ARS, **data.PAIRS, **data.R3}
TURNS = Setup(
    {**data.ERRR, **{name: one for name, one in _OTHERS.items() if name not in data.ERRR}},
    {"model": Local(), "index": Exact()},
    {"model": Local(QWEN_7B), "index": Scann(BGE)},
)
"""Methods that retrieve in turns, and Self-RAG: ERRR's questions, and beside them the other papers'
(R3's nq and triviaqa, ARS-RAG's closed sets)."""

_ARS = ARS._replace(
    questions={**ARS.questions, **{n: q for n, q in TURNS.questions.items() if n not in data.ARS}}
)
"""ARS-RAG's baselines, likewise."""


def _preset(preset: Any, **small: Any) -> Baseline:
    return Baseline(dataclasses.replace(preset, reader=SMALL, **small), preset)


_NEITHER = {"index": None, "reranker": None}
_ONE = OnePath(n=K)
_TOP = Top(k=K)

SINGLE_SEARCH = {
    "no_retrieval": _preset(NO_RETRIEVAL)._replace(small_run=_NEITHER, paper_run=_NEITHER),
    "standard_rag": _preset(STANDARD_RAG, candidates=_ONE, select=_TOP),
    "rerank": _preset(RERANK, candidates=OnePath(n=10), select=Rerank(k=K)),
    "hyde": _preset(HYDE, candidates=OnePath(n=K, by="pseudo"), select=_TOP),
    "q2d": _preset(Q2D, candidates=OnePath(n=K, by="expanded"), select=_TOP),
    "cot": _preset(COT, candidates=OnePath(n=K, by="expanded"), select=_TOP),
    "llm_judge": _preset(LLM_JUDGE, candidates=_ONE, select=_TOP),
    "dpr_ais": _preset(DPR_AIS, select=AIS(k=K)),
}
"""Of PAIRS' and DTR's tables."""

E5_TUNED = "hub:intfloat/e5-base"
"""R3's E5: of the series of "e5-base-unsupervised", tuned on NLI, NQ and MS MARCO."""

RETRIEVERS = {
    name: SINGLE_SEARCH["standard_rag"]._replace(
        small_run={"index": index}, paper_run={"index": index}
    )
    for name, index in {
        "bm25": Bm25(),
        "contriever": Exact(contriever("hub:facebook/contriever")),
        "contriever_ms": Exact(contriever()),
        "e5": Exact(e5(E5_TUNED)),
        "dpr": Exact(dpr()),
    }.items()
}
"""Standard RAG over the retrievers of R3's tables."""

SELF_RAG_MODEL = "hub:selfrag/selfrag_llama2_7b"
SELF_RAG = {
    "self_rag": Baseline(
        self_rag.Config(),
        self_rag.Config(),
        {"model": Local("")},
        {"model": Local(SELF_RAG_MODEL), "index": Exact(contriever())},
    ),
    "self_rag_prompted": Baseline(
        self_rag.Config(
            mode="prompted",
            reader=dataclasses.replace(CLOSED, prompts="self_rag_small", by="text"),
            segment_tokens=32,
            depth=4,
        ),
        self_rag.Config(mode="prompted", reader=Reader(prompts="self_rag")),
        {"label": "self_rag (prompted)"},
        {
            "label": "self_rag (prompted)",
            "model": Local(QWEN_7B),
            "index": Exact(contriever()),
        },
    ),
}
"""Of ERRR's and ARS-RAG's tables."""

_ITERATIVE = dataclasses.replace(CLOSED, prompts="iterative_small")
_INSPECTING = Reader(prompts="inspecting_small", answer_tokens=16, passage_tokens=48)
_LOOP = Interleaving(k=K, max_passages=3, max_steps=3, sentence_tokens=40)
_LLAMA = {"model": Local("hub:meta-llama/Llama-2-7b-chat-hf"), "index": Bm25()}

THETA = 2.5
"""DRAGIN's for SmolLM2: the first texts of 16 of 20 training questions of factbook score above it,
as found by ``--config.data.part=train --config.method.theta=1e9``."""

THRESHOLD = 7.2
"""SeaKR's for SmolLM2 and the residual stream: 16 of 20 training questions of factbook have a first
step above it, as found by ``--config.data.part=train --config.method.threshold=1e9``."""


def _adaptive(complexity: adaptive_rag.Complexity) -> Baseline:
    return Baseline(
        adaptive_rag.Config(
            complexity=complexity,
            candidates=_ONE,
            select=_TOP,
            loop=_LOOP,
            answer_from="passages",
            reader=_ITERATIVE,
        ),
        adaptive_rag.Config(complexity=complexity),
    )


ITERATIVE = {
    "react": Baseline(
        react.Config(
            max_steps=4,
            step_tokens=64,
            pages=react.Pages(n=5, show=K),
            on_limit="answer",
            reader=_ITERATIVE,
        ),
        react.Config(),
    ),
    "ircot": Baseline(ircot.Config(_LOOP, reader=_ITERATIVE), ircot.Config()),
    "adaptive_rag": _adaptive(Classified()),
    "adaptive_rag_decoder": _adaptive(Classified(Local(""))),
    "adaptive_rag_none": Baseline(
        adaptive_rag.Config(None, complexity=OneStrategy("none"), reader=_ITERATIVE),
        adaptive_rag.Config(None, complexity=OneStrategy("none")),
    ),
    "adaptive_rag_single": _adaptive(OneStrategy("single")),
    "adaptive_rag_multi": _adaptive(OneStrategy("multi")),
    "dragin": Baseline(
        dragin.Config(
            theta=THETA,
            query_words=12,
            candidates=_ONE,
            select=_TOP,
            reader=_INSPECTING,
            tokens=64,
            max_retrievals=3,
        ),
        dragin.Config(),
        paper_run=_LLAMA,
    ),
    "seakr": Baseline(
        seakr.Config(
            threshold=THRESHOLD,
            state="residual",
            samples=3,
            k=2,
            max_steps=3,
            max_passages=1,
            reader=_INSPECTING,
            tokens=32,
        ),
        seakr.Config(),
        paper_run=_LLAMA,
    ),
}
"""Retrieval in turns."""

_SHORT = dataclasses.replace(CLOSED, prompts="baselines_small")
_WRITTEN = dataclasses.replace(_SHORT, by="text")  # of methods that read a text of their own
_NO_INDEX = {"index": None}
ARS_BASELINES = {
    "few_shot": Baseline(few_shot.Config(_SHORT), few_shot.Config(), _NO_INDEX, _NO_INDEX),
    "chain_of_thought": Baseline(
        chain_of_thought.Config(_WRITTEN, reasoning_tokens=64),
        chain_of_thought.Config(reasoning_tokens=PASSAGE_TOKENS),
        _NO_INDEX,
        _NO_INDEX,
    ),
    "flare": Baseline(
        flare.Config(
            candidates=_ONE, select=_TOP, reader=_WRITTEN, sentence_tokens=32, max_sentences=4
        ),
        flare.Config(),
    ),
    "fairrag": Baseline(fairrag.Config(OnePath(n=5), k=K, reader=_SHORT), fairrag.Config()),
    "rankrag": Baseline(rankrag.Config(OnePath(n=5), k=K, reader=_SHORT), rankrag.Config()),
    "cor": Baseline(cor.Config(OnePath(n=3), k=K, ranking_tokens=16, reader=_SHORT), cor.Config()),
}
"""Of ARS-RAG's Table 1."""

METHODS = {
    **entries(SINGLE_SEARCH, PAIRS),
    **entries(RETRIEVERS, PAIRS),
    **entries(ITERATIVE | SELF_RAG, TURNS),
    **entries(ARS_BASELINES, _ARS),
}


def get_config(variant: str = "standard_rag@quickstart") -> Job:
    """The run of METHOD@DATA."""
    return job_of(variant, METHODS, example="standard_rag@quickstart")
