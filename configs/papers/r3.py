"""Tables and figures of R3.

At smaller scales SmolLM2 stands for all generators; those to which R3 is transferred read with
other prompts, which makes them another environment. SiDR_MS is the untrained SiDR over
all-MiniLM-L6-v2, DPR_MS and DPR_TQA are trained for a few steps from it; BM25 and all-MiniLM-L6-v2
stand for the retrievers from the hub. NQ, HotpotQA and ARC-Challenge have folders of their own, the
factbook stands for the other sets.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from jaxrag.configs import errr, r3
from jaxrag.configs.baselines import ARS_BASELINES, E5_TUNED, ITERATIVE, SELF_RAG, Baseline
from jaxrag.configs.data import SOURCES, training_of
from jaxrag.configs.papers.models import model, passages, with_method
from jaxrag.configs.parts import SMALL
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import DataSettings
from jaxrag.data.draw import Draw
from jaxrag.engines.local.engine import Local
from jaxrag.methods.baselines import replug
from jaxrag.methods.iterative import adaptive_labels
from jaxrag.methods.r3 import answer_probability
from jaxrag.methods.r3 import r3 as method
from jaxrag.methods.r3.jobs import RETRIEVER, TrainDpr, TrainR3, TrainSidr, kept
from jaxrag.methods.r3.labels import Rules, Sampling
from jaxrag.methods.r3.settings import R3Training, SupervisedTraining, Update
from jaxrag.reproduction.bars import bars
from jaxrag.reproduction.measures import JOB
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.reproduction.retriever_figures import (
    accuracy_curves,
    any_of,
    gain,
    of_retriever,
    passages_scored,
)
from jaxrag.reproduction.tables import Declarations, Figure, Line, Scale, Setting, Table
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import contriever, dpr, e5
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.retriever_comparison import RetrieverComparison
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.training.student.checkpoint import OPTIMIZER

SETS = ("nq", "triviaqa", "hotpotqa", "pubhealth", "arc_challenge")
"""Data sets that R3 evaluates."""

TRAINED_WITH = "Llama3-8B"
"""The generator of every training."""

ON_POLICY = (0.5, 0.625, 0.75, 0.875, 1.0)
"""Table 7's 0, 25, 50, 75 and 100 % of the on-policy phase, the second half of a training."""

_OWN = {"nq": "nq", "hotpotqa": "hotpotqa", "arc_challenge": "arc_challenge"}
_READER = dataclasses.replace(SMALL, closed_tokens=4)
_TRANSFERRED = Reader(prompts="r3", answer_tokens=16, passage_tokens=48, closed_tokens=4)
_TRAINED_ON = {"ms": "msmarco", "nq": "nq", "tqa": "triviaqa"}
_UPDATE = Update(learning_rate=5e-5, temperature=25)
_DPR_START = Dpr(max_length=128)
_SIZES: Mapping[str, dict[str, Any]] = {
    "tiny": {"depth": 6, "limit": 12, "evaluation_limit": 6},
    "small": {"depth": 10, "limit": 200, "evaluation_limit": 100},
    "paper": {},
}


def _data(scale: Scale, dataset: str) -> str:
    if scale == "small":
        return _OWN.get(dataset, "factbook")
    return "tiny" if scale == "tiny" else f"paper-{dataset}"


def _test(setting: Setting) -> DataSettings:
    return Benchmark(setting.dataset) if setting.paper else SOURCES[setting.data].test


def _train(setting: Setting) -> DataSettings:
    return training_of(setting.dataset)[0] if setting.paper else SOURCES[setting.data].train


def _run(setting: Setting, answering: Any, index: Any, generator: str | None, label: str) -> Run:
    """Answers the test questions; a label distinguishes retrievers in tables of runs."""
    reader = model(generator or TRAINED_WITH) if setting.paper else Local()
    limit = 8 if setting.scale == "tiny" else 0
    return Run(answering, _test(setting), reader, index, label=label, limit=limit)


def _reads(row: PrintedRow, setting: Setting) -> method.Config:
    k = passages(row, setting) if row.passages else 1
    reads = method.Config(candidates=OnePath(n=k), select=Top(k=k))
    if setting.paper:
        return reads
    reader = _READER if row.generator in (None, TRAINED_WITH) else _TRANSFERRED
    return dataclasses.replace(reads, reader=reader)


# Retrievers


def sidr(name: str, setting: Setting) -> Sidr:
    """SiDR_MS, SiDR_NQ or SiDR_TQA, by "ms", "nq" and "tqa"."""
    if name == "ms" and not setting.paper:
        return r3.START
    start = Sidr() if setting.paper else r3.START
    job = _supervised("sidr", name, setting)
    return dataclasses.replace(start, checkpoint=str(setting.directory(job) / RETRIEVER))


def own_dpr(name: str, setting: Setting) -> Dpr:
    """DPR_MS or DPR_TQA, by "ms" and "tqa"."""
    start = Dpr() if setting.paper else _DPR_START
    job = _supervised("dpr", name, setting)
    return dataclasses.replace(start, checkpoint=str(setting.directory(job) / RETRIEVER))


_SMALL_TRAININGS: Mapping[str, tuple[Any, Any, Update]] = {
    "sidr": (TrainSidr, r3.START, _UPDATE),
    "dpr": (TrainDpr, _DPR_START, Update(form="dpr", learning_rate=5e-5)),
}
"""Job, start and update of the trainings at smaller scales."""


def _supervised(kind: str, name: str, setting: Setting) -> TrainSidr | TrainDpr:
    """The training of a retriever on one set, before R3."""
    dataset = _TRAINED_ON[name]
    steps, batch = (2, 4) if setting.sizes == "tiny" else (40, 16)
    if setting.paper:
        job: Any = r3.get_config(f"train_{kind}@paper-{dataset}")
        if setting.sizes != "paper":
            lengths: dict[str, Any] = {"steps": steps, "batch": batch, "microbatch": 4}
            training = dataclasses.replace(job.training, **lengths, warmup_epochs=0, evaluations=2)
            limit = _SIZES[setting.sizes]["evaluation_limit"]
            job = dataclasses.replace(job, training=training, evaluation_limit=limit)
        return dataclasses.replace(job, evaluated_later=tuple(map(Benchmark, SETS)))
    make, start, update = _SMALL_TRAININGS[kind]
    training = SupervisedTraining(steps=steps, batch=batch, microbatch=4, update=update)
    data = SOURCES[_data(setting.scale, dataset)].train
    return make(start, (data,), Bm25(), training, leakage="drop")


def _start(dataset: str) -> str:
    """The SiDR that R3 starts from in Table 1."""
    return "nq" if dataset == "nq" else "ms"


DENSE: Mapping[str, tuple[Any, Any]] = {
    "contriever": (contriever("hub:facebook/contriever"), None),
    "contriever_ms": (contriever(), Exact()),
    "e5_unsup": (e5("hub:intfloat/e5-base-unsupervised"), None),
    "e5": (e5(E5_TUNED), Exact()),
    "dpr_nq": (dpr(), Exact()),
}
"""Encoders, and what stands for them at smaller scales; None: BM25."""


def _index(name: str, setting: Setting) -> Any:
    if name.startswith("sidr_"):
        return sidr(name.removeprefix("sidr_"), setting)
    if name in ("dpr_ms", "dpr_tqa"):
        return own_dpr(name.removeprefix("dpr_"), setting)
    encoder, small = DENSE[name]
    return Exact(encoder) if setting.paper else small or Bm25()


def _retriever(name: str) -> Line:
    """Standard RAG over a retriever, with R3's prompts; "sidr" is the one that R3 starts from."""

    def make(row: PrintedRow, setting: Setting) -> Run:
        retriever = f"sidr_{_start(setting.dataset)}" if name == "sidr" else name
        reads, index = _reads(row, setting), _index(retriever, setting)
        label = retriever if setting.paper or isinstance(index, Sidr | Dpr) else index.name
        return _run(setting, reads, index, row.generator, f"rag_{label}")

    return Line(make)


# R3


def training(
    setting: Setting, start: str = "ms", generator: str = TRAINED_WITH, **changes: Any
) -> TrainR3:
    """R3's training on a data set; ``changes`` are fields of the job, or of its training."""
    job_fields = ("search", "reindex_every", "reindex_epochs")
    of_job = {name: changes.pop(name) for name in job_fields if name in changes}
    fields: dict[str, Any] = {"evaluations": 20, "keep": ON_POLICY[:-1]}
    if not setting.paper:
        fields["update"] = _UPDATE
    if setting.sizes != "paper":
        tiny = setting.sizes == "tiny"
        steps, batch = (8, 4) if tiny else (40, 8)
        fields |= {"evaluations": 2 if tiny else 4, "save_every": steps // 2}
        fields |= {"steps": steps, "batch": batch, "microbatch": batch // 2}
    dense = start.startswith("dpr_")
    return TrainR3(
        own_dpr(start.removeprefix("dpr_"), setting) if dense else sidr(start, setting),
        _train(setting),
        _test(setting),
        model(generator) if setting.paper else Local(),
        method.Config() if setting.paper else method.Config(reader=_READER),
        R3Training(**fields | changes),
        leakage="drop",
        **_SIZES[setting.sizes] | of_job,
    )


def _divergence(setting: Setting) -> Update:
    """KL divergence instead of the contrastive loss."""
    return dataclasses.replace(Update() if setting.paper else _UPDATE, objective="kl")


def _tuned(setting: Setting, job: TrainR3, share: float = 1.0) -> Sidr:
    """The retriever after a share of a training."""
    start = Sidr() if setting.paper else r3.START
    return dataclasses.replace(start, checkpoint=str(setting.directory(job) / kept(share)))


def _r3(start: str = "", **changes: Any) -> Line:
    def make(row: PrintedRow, setting: Setting) -> Run:
        job = training(setting, start or _start(setting.dataset), **changes)
        index = _tuned(setting, job, share_of(row))
        return _run(setting, _reads(row, setting), index, row.generator, "r3")

    return Line(make)


def share_of(row: PrintedRow) -> float:
    """The share of the training after which a row of Table 7 is measured; 1 elsewhere."""
    progress = row.other.get("progress_percent", 100)
    return 0.5 + progress / 200


# Rows of other papers


def _other(baseline: Baseline, generator: str = "") -> Line:
    """Another paper's method on R3's questions; at paper scale with its own retriever."""

    def make(row: PrintedRow, setting: Setting) -> Run:
        changes = dict(baseline.paper_run if setting.paper else baseline.small_run)
        index = changes.pop("index", Bm25() if setting.paper else Exact())
        answering = baseline.paper if setting.paper else baseline.small
        run = _run(setting, answering, index, None, changes.pop("label", ""))
        if setting.paper:
            return dataclasses.replace(run, model=model(generator) if generator else run.model)
        return run

    return Line(make)


def _self_rag(row: PrintedRow, setting: Setting) -> Run:
    """The released checkpoint, or one that a variable names; small models are prompted instead."""
    baseline = SELF_RAG["self_rag" if setting.paper else "self_rag_prompted"]
    answering = baseline.paper if setting.paper else baseline.small
    over_sidr = row.method == "self_rag_llama3_8b_sidr"
    index: Any = sidr("ms", setting) if over_sidr else Exact()
    if not over_sidr and setting.paper:
        index = baseline.paper_run["index"]
    run = _run(setting, answering, index, None, row.method if over_sidr else "self_rag")
    if row.passages:
        k = passages(row, setting)
        run = with_method(run, candidates=OnePath(n=k), select=Top(k=k))
    if not setting.paper:
        return run
    spec = os.environ.get(SELF_RAG_CHECKPOINTS.get(row.method, ""), "")
    return dataclasses.replace(run, model=Local(spec) if spec else baseline.paper_run["model"])


SELF_RAG_CHECKPOINTS = {
    "self_rag_mistral_7b": "JAXRAG_SELF_RAG_MISTRAL",
    "self_rag_llama3_8b": "JAXRAG_SELF_RAG_LLAMA3",
    "self_rag_llama3_8b_sidr": "JAXRAG_SELF_RAG_LLAMA3",
}
"""Variables that name checkpoints of other authors, which the paper does not name."""


def _classifier(setting: Setting) -> str:
    """The directory of Adaptive-RAG's classifier, trained on labels of the same data set."""
    excluded = ("right", "bias", "held_out")
    names = [f.name for f in dataclasses.fields(adaptive_labels.Config) if f.name not in excluded]
    baseline = ITERATIVE["adaptive_rag"]
    answering = baseline.paper if setting.paper else baseline.small
    bias: Any = "multi" if setting.data.endswith("hotpotqa") else "single"
    labels = adaptive_labels.Config(bias=bias, **{name: getattr(answering, name) for name in names})
    index: Any = Bm25() if setting.paper else Exact()
    run = _run(setting, labels, index, "Llama-3.1-8B-Instruct", "")
    limit = {"tiny": 12, "small": 100, "paper": 400}[setting.sizes]
    training = dataclasses.replace(run, data=_train(setting), limit=limit)
    pairs = adaptive_labels.MakeComplexityPairs(training)
    student = dataclasses.replace(errr.STUDENTS[setting.sizes], task="labels")
    best = dataclasses.replace(student.training, best="accuracy")
    job = dataclasses.replace(student, pairs=str(setting.directory(pairs)), training=best)
    return str(setting.directory(job) / OPTIMIZER)


def _adaptive_rag(row: PrintedRow, setting: Setting) -> Run:
    line = _other(ITERATIVE["adaptive_rag"], "Llama-3.1-8B-Instruct")
    run: Any = line.job(row, setting)
    complexity = run.method.complexity
    classifier = dataclasses.replace(complexity.classifier, checkpoint=_classifier(setting))
    complexity = dataclasses.replace(complexity, classifier=classifier)
    return dataclasses.replace(run, method=dataclasses.replace(run.method, complexity=complexity))


def _replug(row: PrintedRow, setting: Setting) -> Run:
    """The ensemble, over SiDR trained by REPLUG's LSR with the same model, instead of Contriever.

    Relevance in the ensemble is as soft as in the training.
    """
    divergence = dataclasses.replace(
        _divergence(setting), temperature=_UPDATE.temperature, target_temperature=0.1
    )
    reindex = {"tiny": 4, "small": 20, "paper": 3000}[setting.sizes]
    lengths: dict[str, Any] = {"steps": 25_000, "batch": 64} if setting.sizes == "paper" else {}
    job = training(
        setting, generator=row.generator or TRAINED_WITH, phases="online", update=divergence,
        search="reindexed", reindex_every=reindex, **lengths,
    )  # fmt: skip
    answering = replug.Config(
        OnePath(n=10 if setting.paper else 4), temperature=divergence.temperature
    )
    if not setting.paper:
        answering = dataclasses.replace(answering, reader=SMALL)
    return _run(setting, answering, _tuned(setting, job), row.generator, "")


_OPEN_LABELS = {
    name: f"no checkpoint is named by the paper: name one by ${variable}"
    for name, variable in SELF_RAG_CHECKPOINTS.items()
    if not os.environ.get(variable)
}
_REPRODUCED = "Llama-3.1-8B-Instruct"
_LINES: dict[str, Line] = {
    "standard_rag_sidr": _retriever("sidr"),
    "standard_rag_contriever_ms": _retriever("contriever_ms"),
    "standard_rag_e5": _retriever("e5"),
    "adaptive_rag": Line(_adaptive_rag),
    **{name: _other(ITERATIVE[name], _REPRODUCED) for name in ("ircot", "dragin", "seakr")},
    "flare": _other(ARS_BASELINES["flare"], _REPRODUCED),
    "replug": Line(_replug),
    "r3": _r3(),
    **{name: Line(_self_rag) for name in ("self_rag_llama2_7b", *SELF_RAG_CHECKPOINTS)},
}


_NOTES = (
    "At smaller scales BM25 stands for Contriever and E5-unsup, all-MiniLM-L6-v2 for "
    "Contriever_MS, E5 and DPR_NQ, SiDR over it, untrained, for SiDR_MS, DPR from it, trained for "
    "a few steps, for DPR_MS and DPR_TQA, and SmolLM2 for all generators, with other prompts where "
    "R3 is transferred.",
)
_OTHERS_NOTES = (
    "The paper quotes the rows of other methods: Adaptive-RAG with T5-XXL, and IR-CoT, DRAGIN, "
    "SeaKR and FLARE in a setting that it calls 15-shot, without saying whether these are "
    "demonstrations or passages. Here all of them answer without demonstrations, at paper scale "
    "with Llama-3.1-8B-Instruct over BM25, DRAGIN and SeaKR with the thresholds that were released "
    "for Llama-2-7B-chat, and Adaptive-RAG's classifier is a T5-large.",
    "REPLUG, printed as 3-shot, reads ten passages without demonstrations. Its retriever is SiDR "
    "instead of Contriever.",
)


_TABLE_4 = [
    "contriever", "e5_unsup", "dpr_ms", "sidr_ms", "dpr_nq", "sidr_nq", "dpr_tqa", "sidr_tqa",
    "contriever_ms", "e5",
]  # fmt: skip
_ANY = Line(
    lambda row, setting: _retriever("sidr_ms").job(row, setting),
    {"accuracy": any_of("contains", _TABLE_4), "ir_accuracy@1": any_of("ir_accuracy", _TABLE_4)},
    {name: _retriever(name).job for name in _TABLE_4},
)


def _ranked(row: PrintedRow, setting: Setting) -> Run:
    """Training questions, read in the order of SiDR_MS or of the answer's probability."""
    run: Any = _retriever("sidr_ms").job(row, setting)
    limit = {"tiny": 8, "small": 100, "paper": 1000}[setting.sizes]
    depth = {"tiny": 6, "small": 10, "paper": 100}[setting.sizes]
    data = _train(setting)
    if setting.paper:  # at random, as in the paper
        data, limit = Draw(data, part="train", train=limit, test=0), 0
    # both rows order the same passages; SiDR may know some of these questions, as the paper's does
    index = dataclasses.replace(run.index, m=depth)
    run = dataclasses.replace(run, data=data, limit=limit, index=index, leakage="keep")
    if row.method == "sidr_ms_rank_by_relevance":
        return run
    reads = run.method
    by_answer = answer_probability.Config(OnePath(n=depth), reads.select.k, reads.reader)
    return dataclasses.replace(run, method=by_answer, label="")


def _tuning(row: PrintedRow, setting: Setting) -> TrainR3:
    return training(setting, _start(setting.dataset))


def _sampled(sampling: Sampling) -> Line:
    # A is the default, so that its training is that of the other tables
    return _r3("ms", **({} if sampling == "A" else {"rules": Rules(sampling=sampling)}))


_GAIN = Line(
    _LINES["r3"].job,
    {"documents_scored_per_query": passages_scored("training"), "accuracy_gain": gain("before")},
    {"training": _tuning, "before": _LINES["standard_rag_sidr"].job},
)
TABLES = {
    "r3/table1": Table(
        _data,
        _LINES,
        {"ra_dit": "it tunes a model of 65 billion parameters; weights are not public"},
        unnamed=_OPEN_LABELS,
        notes=(*_NOTES, *_OTHERS_NOTES),
    ),
    "r3/table2": Table(_data, {"r3": _GAIN}),
    "r3/table4": Table(
        _data,
        {**{name: _retriever(name) for name in _TABLE_4}, "any_retriever_upper_bound": _ANY},
        notes=_NOTES,
    ),
    "r3/table5": Table(
        _data, {f"r3_sampling_{name.lower()}": _sampled(name) for name in ("A", "B", "C")}
    ),
    "r3/table6": Table(
        _data,
        {f"sidr_ms_rank_by_{name}": Line(_ranked) for name in ("relevance", "answer_probability")},
    ),
    "r3/table7": Table(_data, {"r3": _r3("ms")}, notes=_NOTES),
    "r3/table8": Table(
        _data,
        {
            "standard_rag_sidr_ms": _retriever("sidr_ms"),
            "r3_from_sidr_ms": _r3("ms"),
            "standard_rag_sidr_nq": _retriever("sidr_nq"),
            "r3_from_sidr_nq": _r3("nq"),
        },
    ),
}

_PHASES: Mapping[str, Callable[[Setting], TrainR3]] = {
    "offline only": lambda setting: training(setting, phases="offline"),
    "online only": lambda setting: training(setting, phases="online"),
    "offline + online": training,
    "offline + online (KL)": lambda setting: training(setting, update=_divergence(setting)),
}


def _reindexed(setting: Setting) -> TrainR3:
    """From DPR_MS, re-indexed every 15 of 80 epochs; its inner products need no temperature."""
    if setting.sizes == "paper":
        return training(setting, "dpr_ms", search="reindexed", reindex_epochs=15.0)
    update = Update() if setting.paper else dataclasses.replace(_UPDATE, temperature=1)
    every = 2 if setting.sizes == "tiny" else 8
    return training(setting, "dpr_ms", search="reindexed", reindex_every=every, update=update)


_SEARCHES: Mapping[str, Callable[[Setting], TrainR3]] = {
    "R3": training,
    "w/o re-rank": lambda setting: training(setting, search="beta"),
    "w/o semi-para": _reindexed,
}


def _progress(title: str, jobs: Mapping[str, Any]) -> Figure:
    draw = functools.partial(accuracy_curves, trainings=[*jobs])
    series = {label: (label,) for label in jobs}
    return Figure(title, ("nq", "pubhealth"), _data, jobs, draw, series, seeds=True)


def _both_searches(setting: Setting) -> RetrieverComparison:
    """Late and full parametric search by the same SiDR; the claim of Appendix H."""
    start = sidr("ms", setting)
    m = 6 if setting.sizes == "tiny" else 20
    indexes = tuple(dataclasses.replace(start, search=how, m=m) for how in ("late", "parametric"))
    limit = {"tiny": 8, "small": 100, "paper": 0}[setting.sizes]
    return RetrieverComparison(indexes, (_test(setting),), depths=(1, 5), cutoff=5, limit=limit)


FIGURES = {
    "r3/appendix_h": Figure(
        "Late and full parametric search",
        ("nq", "triviaqa"),
        _data,
        {JOB: _both_searches},
        functools.partial(
            bars,
            measures={"late": of_retriever(0, "answer@1"), "full": of_retriever(1, "answer@1")},
            y_title="answer@1, %",
        ),
        seeds=True,
    ),
    "r3/figure4": _progress("Offline and online learning", _PHASES),
    "r3/figure5": _progress("Retrieval during the training", _SEARCHES),
    "r3/figure7": _progress("Retrieval during the training", _SEARCHES),
}
LEFT_OUT = {
    "r3/figure1": "a picture of the idea",
    "r3/figure2": "a picture of the training with an example threshold",
    "r3/figure3": "a picture of SiDR",
    "r3/table3": "a comparison in words",
    "r3/figure6": "a picture of SiDR",
    **{f"r3/figure{n}": "examples in a text" for n in range(8, 12)},
    **{
        f"r3/figure{n}": "an example prompt; ours are in jaxrag/steps/prompts"
        for n in range(12, 15)
    },
}
DECLARED = Declarations(TABLES, FIGURES, LEFT_OUT)
