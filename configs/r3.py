"""R3: SiDR, a retriever trained for the language model that reads: METHOD@DATA.

Source: docs/methods, "R3"; settings and ablations: docs/training.md.

    jaxrag run --config configs/r3.py:r3@quickstart --workdir runs/r3-answers \\
        --config.index.checkpoint=runs/r3/retriever --config.limit=200
    jaxrag run --config configs/r3.py:train_r3@quickstart --workdir runs/r3
    jaxrag run --config configs/r3.py:train_sidr@wiki --workdir runs/sidr

- hardware: 2 CPU cores, 2026-11-22
- minutes: the run not measured; its training, before it, 21 to 27 beside another one
- score: EM 31.5 [25.0, 38.0], F1 39.0 [32.8, 45.5] on 200 questions, with SmolLM2 and a SiDR of
  R3 in bfloat16, seed 0; before the training EM 29.0 [23.0, 35.5]

Methods:

- ``r3``: reads the passages of a trained SiDR, ``--config.index.checkpoint=DIRECTORY``. Small
  variants also run without one, with the untrained SiDR over all-MiniLM-L6-v2. Other
  searches: ``--config.index.search=beta``, "alpha" or "parametric". Ten passages instead of one:
  ``--config.method.candidates.n=10 --config.method.select.k=10``. ``paper-``: Llama-3-8B, the base
  model, from the hub.
- the baselines of the table, as in `configs.baselines`: ``no_retrieval``, ``standard_rag``,
  ``bm25``, ``contriever``, ``contriever_ms``, ``e5``, ``dpr``. ``paper-``: with R3's prompts, one
  passage and Llama-3-8B; ten passages as for ``r3``.

Data of these: `configs.data`; ``jaxrag list data`` has the names, ``paper-NAME`` are the paper's.

Training questions that are evaluated, too, by normalised text, are an error; the paper's trainings
leave them out (``--config.leakage=drop``).

Jobs:

- ``train_sidr``: SiDR from all-MiniLM-L6-v2, on questions with gold or distant positives and
  negatives of BM25. ``tiny``: 6 steps; ``wiki``: training questions of nq with distant positives
  and of hotpotqa with gold passages, evaluated on hotpotqa and squad, none of whose questions is
  trained on; ``paper-nq``, ``paper-triviaqa``, ``paper-msmarco``: R3's SiDR_NQ and so on, the
  training split of the set, from BERT-base with the released loss and warm-up, evaluated on its dev
  split. The paper's loss is ``--config.training.update.form=paper``. Dropout is BERT's own.
- ``train_dpr``: DPR, two networks whose vectors are those of the first token, on the same
  questions and negatives, by DPR's own loss. ``tiny``: 6 steps; ``paper-nq``, ``paper-triviaqa``,
  ``paper-msmarco``: R3's DPR_NQ and so on, from BERT-base. What it writes is an index's,
  ``Dpr(DIRECTORY)``.
- ``train_r3``: SiDR trained by its passages' effect on the language model's answers. ``tiny``: 4
  steps; ``quickstart``: 100 questions about 40 countries, evaluated on those of 40 others;
  ``factbook``: 1,000 questions about all training countries, evaluated on 400 about the others;
  ``hotpotqa``: the 100 training questions of that folder, which the small model hardly reads;
  ``paper-nq`` and the other sets of the paper: its settings on the training split, from a trained
  SiDR, ``--config.start.checkpoint=DIRECTORY``, with Llama-3-8B. The paper's ablations are
  settings: ``--config.training.phases=offline`` or "online",
  ``--config.training.update.objective=kl``, ``--config.search=beta`` or "reindexed" (SiDR's
  vectors; the paper's ablation, from a DPR, is ``train_r3_from_dpr``),
  ``--config.training.rules.sampling=B`` or "C", ``--config.model.checkpoint`` another model.
- ``recall``: retrievers by the gold passages that they find (`configs.retrieval` compares them on
  any data). ``tiny``: BM25 and the untrained SiDR;
  ``wiki``: with all-MiniLM-L6-v2 on hotpotqa and squad. ``recall_trained@DIRECTORY``: ``wiki`` with
  the four searches of the SiDR trained there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs.baselines import RETRIEVERS, SINGLE_SEARCH, Baseline, entries, prompted
from jaxrag.configs.data import SOURCES, training_of
from jaxrag.configs.parts import R3, SMALL, Entry, K, Variant, job_of
from jaxrag.data.factbook import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods.r3 import r3
from jaxrag.methods.r3.jobs import TrainDpr, TrainR3, TrainSidr
from jaxrag.methods.r3.settings import R3Training, SupervisedTraining, Update
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.job import Job
from jaxrag.runs.retriever_comparison import RetrieverComparison
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top

LLAMA = Local("hub:meta-llama/Meta-Llama-3-8B")
START = Sidr(query_length=32, passage_length=128, shared=True, scale=0.25)
"""all-MiniLM-L6-v2 as an untrained SiDR: its logits are large, and the passages are short."""

RUN = Run(
    method=r3.Config(
        candidates=OnePath(n=K),
        select=Top(k=K),
        reader=dataclasses.replace(SMALL, closed_tokens=20),
    ),
    data=Factbook(countries=40),
    limit=100,
    model=Local(),  # SmolLM2-135M-Instruct
    index=START,  # --config.index.checkpoint=DIRECTORY of a trained SiDR
    reranker=QueryLikelihood(),  # not used
)
"""``r3@quickstart``, whole; all other METHOD@DATA differ from it."""

_TINY, _HOTPOTQA, _NQ = SOURCES["tiny"], SOURCES["hotpotqa"], SOURCES["nq"]
_EVALUATED = (_HOTPOTQA.test, SOURCES["squad"].test)
_PAPER_SETS = tuple(name for name in R3.questions if name.startswith("paper-"))
_TEMPERATURE = 25


def _epochs(variant: Variant) -> float:
    """As many as R3 says of SiDR_MS; on other sets those of SiDR's released code."""
    return 80.0 if variant.data == "msmarco" else SupervisedTraining().epochs


def _train_sidr(variant: Variant) -> TrainSidr:
    if variant.name == "tiny":
        data = (_TINY.train,)
        training = SupervisedTraining(
            steps=6,
            batch=8,
            microbatch=4,
            update=Update(learning_rate=5e-5, temperature=_TEMPERATURE),
            evaluate_every=3,
            save_every=3,
        )
        return TrainSidr(START, data, Bm25(), training, (_TINY.test,), evaluation_limit=8)
    if variant.paper:
        start = Sidr("hub:google-bert/bert-base-uncased")
        train, dev = training_of(variant.data)
        update = Update(form="released", dropout=0.1)
        epochs = _epochs(variant)
        training = SupervisedTraining(epochs=epochs, warmup_epochs=1, update=update, evaluations=20)
        return TrainSidr(start, (train,), Bm25(), training, (dev,), leakage="drop")
    data = (_NQ.train, _HOTPOTQA.train)
    training = SupervisedTraining(
        epochs=3,
        batch=32,
        microbatch=16,
        update=Update(learning_rate=5e-5, warmup=10, temperature=_TEMPERATURE),
        save_every=20,
        evaluate_every=37,
    )
    return TrainSidr(START, data, Bm25(), training, _EVALUATED, evaluation_limit=40)


def _train_dpr(variant: Variant) -> TrainDpr:
    if variant.paper:
        start = Dpr("hub:google-bert/bert-base-uncased")
        train, _ = training_of(variant.data)
        update = Update(form="dpr", dropout=0.1)
        training = SupervisedTraining(epochs=_epochs(variant), warmup_epochs=1, update=update)
        return TrainDpr(start, (train,), Bm25(), training, leakage="drop")
    training = SupervisedTraining(
        steps=6,
        batch=8,
        microbatch=4,
        update=Update(form="dpr", learning_rate=5e-5),
        save_every=3,
    )
    return TrainDpr(Dpr(max_length=128), (_TINY.train,), Bm25(), training)


_FACTBOOK = TrainR3(
    dataclasses.replace(START, passage_length=64, dtype="bfloat16"),
    SOURCES["factbook"].train,
    SOURCES["factbook"].test,
    Local(dtype="bfloat16"),
    r3.Config(reader=RUN.method.reader),
    R3Training(
        steps=120,
        batch=16,
        microbatch=8,
        update=Update(learning_rate=5e-5, temperature=_TEMPERATURE),
        evaluations=1,
        save_every=10,
    ),
    depth=6,
    limit=1000,
    evaluation_limit=400,
)
"""For a gain that 400 questions can show; hours on 2 CPU cores."""


def _train_r3(variant: Variant) -> TrainR3:
    if variant.method == "train_r3_from_dpr":
        return _from_dpr(_train_r3(variant._replace(method="train_r3")), variant.paper)
    if variant.paper:
        train, dev = training_of(variant.data)
        training = R3Training(evaluations=20)
        return TrainR3(Sidr(""), train, dev, LLAMA, r3.Config(), training, leakage="drop")
    test, train, *_ = SOURCES[variant.data]
    if variant.name == "factbook":
        return _FACTBOOK
    method = r3.Config(reader=RUN.method.reader)
    update = Update(learning_rate=5e-5, temperature=_TEMPERATURE)
    if variant.name == "tiny":
        training = R3Training(
            steps=4, batch=4, microbatch=2, update=update, evaluate_every=2, save_every=2
        )
        limits: dict[str, Any] = {"depth": 6, "limit": 12, "evaluation_limit": 6}
        return TrainR3(START, train, test, Local(), method, training, **limits)
    training = R3Training(
        steps=60, batch=16, microbatch=8, update=update, evaluate_every=15, save_every=10
    )
    limits = {"depth": 10, "evaluation_limit": 100}
    if variant.name == "quickstart":
        limits["limit"] = 100
    return TrainR3(START, train, test, Local(), method, training, **limits)


def _from_dpr(job: TrainR3, paper: bool) -> TrainR3:
    """The ablation without SiDR: DPR's vectors, computed again every 15 epochs."""
    start = Dpr("") if paper else Dpr(max_length=128)
    again: dict[str, Any] = {"reindex_epochs": 15.0} if paper else {"reindex_every": 2}
    return dataclasses.replace(job, start=start, search="reindexed", **again)


def _recall(variant: Variant) -> RetrieverComparison:
    """Retrievers, and SiDR untrained and as trained in the directory that the variant names."""
    untrained = tuple(dataclasses.replace(START, search=search) for search in ("late", "beta"))
    if variant.name == "tiny":
        return RetrieverComparison((Bm25(), *untrained), (_TINY.test,), limit=12)
    trained = ()
    if variant.method == "recall_trained":
        trained = tuple(
            dataclasses.replace(START, checkpoint=variant.name, search=search)
            for search in ("late", "beta", "alpha", "parametric")
        )
    return RetrieverComparison((Bm25(), Exact(), *untrained, *trained), _EVALUATED, limit=500)


def _read_as_r3(baseline: Baseline) -> Baseline:
    """The baseline with the paper's generator, prompts and one passage; small models as before."""
    return baseline._replace(paper=r3.Config(), paper_run={"model": LLAMA, **baseline.paper_run})


_WITHOUT = prompted({"no_retrieval": SINGLE_SEARCH["no_retrieval"]}, "r3")["no_retrieval"]
_BASELINES = {
    "no_retrieval": _WITHOUT._replace(paper_run={"model": LLAMA, **_WITHOUT.paper_run}),
    "standard_rag": _read_as_r3(SINGLE_SEARCH["standard_rag"]),
    **{name: _read_as_r3(baseline) for name, baseline in RETRIEVERS.items()},
}
METHODS = {
    "r3": R3.entry(
        RUN.method, r3.Config(), {"index": RUN.index}, {"index": Sidr(""), "model": LLAMA}
    ),
    **entries(_BASELINES, R3),
    "train_sidr": Entry(
        _train_sidr, ("tiny", "wiki", "paper-nq", "paper-triviaqa", "paper-msmarco")
    ),
    "train_dpr": Entry(_train_dpr, ("tiny", "paper-nq", "paper-triviaqa", "paper-msmarco")),
    "train_r3_from_dpr": Entry(_train_r3, ("tiny", *_PAPER_SETS)),
    "train_r3": Entry(_train_r3, ("tiny", "quickstart", "factbook", "hotpotqa", *_PAPER_SETS)),
    "recall": Entry(_recall, ("tiny", "wiki")),
    "recall_trained": Entry(_recall),
}


def get_config(variant: str = "r3@quickstart") -> Job:
    """The run or the job of METHOD@DATA."""
    return job_of(variant, METHODS, example="r3@quickstart")
