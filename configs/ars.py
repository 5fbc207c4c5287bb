"""ARS-RAG: its strategies and ablations, their baselines, its tables and trainings: METHOD@DATA.

Source: docs/methods, "ARS-RAG". All steps from nothing to answers: docs/methods/ars.md.

    jaxrag run --config configs/ars.py:ars@factbook --workdir runs/ars \\
        --config.method.order.ranker.checkpoint=runs/ranker/ranker \\
        --config.method.count.bandit.checkpoint=DIRECTORY
    jaxrag run --config configs/ars.py:rewriter10@factbook --workdir runs/r10

- hardware: 2 CPU cores, 2026-11-23
- minutes: not measured; 4.8 s a question with nothing stored
- score: EM 22.0 [14.0, 30.0], F1 28.1 [20.2, 36.6] on 100 questions, with SmolLM2; ``rewriter10``,
  which needs no training, EM 27.0 [19.0, 36.0]

Strategies; those with a star need ``--config.method.order.ranker.checkpoint=DIRECTORY``, those with
two ``--config.method.count.bandit.checkpoint=DIRECTORY``:

- ``llm``: no retrieval; ``rag``: the question itself is searched for.
- ``rewriter5``, ``rewriter10``: the first 5, or all 10 rewrites, in the order of generation.
- ``random``: 5 in random order. ``top`` *: the 5 best. ``worst`` *: the 5 worst.
- ``judge``: the original pipeline, whose language model judges every passage of every rewrite.
- ``bandit`` **: as many as the bandit chooses, in the order of generation. ``ars`` * **: ARS-RAG.

Another number of rewrites: ``--config.method.count.k=3``. Closed questions are answered by the
generated text (``--config.method.reader.by=text``), the most probable option (``logprob``), or,
with SmolLM2, the most probable option relative to a content-free prompt (``calibrated``).

The baselines of Table 1 are METHODs, too, as in `configs.baselines`: ``few_shot`` (LLM),
``chain_of_thought`` (COT), ``flare``, ``fairrag``, ``rankrag``, ``cor``, ``self_rag``,
``self_rag_prompted``; and ``rafe``, whose rewriter is trained in three steps: ``make_pairs_rafe``,
``configs/errr.py:train_optimizer@SIZE`` of these pairs, and ``train_rafe``, PPO whose reward is a
reranker's score of the passages found, ``--config.checkpoint=DIRECTORY``. The run takes
``--config.method.rewriter.model.checkpoint=DIRECTORY``.

Tables of questions to train on and, for rewards, to evaluate:

- ``make_labels``: which passages of each rewrite are relevant, by the model and by the gold
  passages. Small models judge by log-probability (``--config.run.method.judge.by=word`` parses the
  written verdict, as the paper does, ``--config.run.method.compared=1`` does both).
- ``make_gold_labels``: the same by the gold passages alone, without calls to the model.
- ``make_rewards``: rewards of the answers from the first 1, 2, ... 10 rewrites as generated.
- ``make_ranked_rewards``: the same with rewrites in the order of a trained ranker,
  ``--config.run.method.order.ranker.checkpoint=DIRECTORY``.

DATA: `configs.data`; ``jaxrag list data`` prints the names. 100 drawn test questions of each, 300
others to train on. ``paper-NAME``: Qwen2.5-32B-Instruct and nomic-embed-text from the hub, 1,600
questions to train on and 400 to evaluate, drawn from the published sets and searched in their own
contexts; not run by us yet. Another model than the one that answers may rewrite:
``--config.method.rewriter.model=Local``.

Trainings:

- ``train_ranker@SIZE``: RankNet over the rewrites of each question, from ``labels.jsonl`` in
  ``--config.labels=DIRECTORY``. ``--config.label`` chooses the labels: by the model's written
  verdict ("model", the paper's), its log-probabilities ("logprob", as small models judge) or the
  gold passages ("gold"). ``tiny``: 4 steps; ``small``: all-MiniLM-L6-v2, 22 minutes on 2 CPU cores;
  ``paper``: bert-base-uncased, and ``paper-medmcqa``: ClinicalBERT, not run by us.
- ``train_bandit@TABLES``: how many rewrites to keep, from stored rewards; TABLES are directories of
  reward tables with commas between them. No language model is called. The paper's sizes, 5 seeds,
  and four policies. ``train_bandit_sweep@TABLES``: NeuralUCB alone, about a tenth of the work.
  ``train_bandit_full@TABLES``: the whole matrix Z, as the equations print it (exact for up to 300
  training questions). ``train_bandit_released@TABLES``: the bandit of Zhou et al.'s public code.
  ``train_bandit_tiny@TABLES``: for tests.

The embeddings are those of the index's encoder, for ``paper-NAME`` BERT's, or of another one
(``--config.run.method.context=BiEncoder`` of the rewards, and
``--config.method.count.bandit.context=BiEncoder`` of the run).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs import data, errr
from jaxrag.configs.baselines import ARS_BASELINES, SELF_RAG, entries
from jaxrag.configs.parts import ARS, CLOSED, SMALL, Entry, K, Variant, job_of
from jaxrag.data.draw import Draw
from jaxrag.data.factbook import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods.ars import ars
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars import rewards as ars_rewards
from jaxrag.methods.ars.bandit.job import TrainBandit
from jaxrag.methods.ars.bandit.settings import (
    BanditTraining,
    EpsilonGreedy,
    LinUcb,
    NeuralUcb,
    ReleasedNeuralUcb,
    Thompson,
)
from jaxrag.methods.ars.helpers import CountBandit
from jaxrag.methods.ars.labels import MakeLabels
from jaxrag.methods.ars.ranker.job import TrainRanker
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewards import MakeRewards
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Chosen, Fixed, Generated, Judged, Ranked, Shuffled
from jaxrag.methods.baselines import few_shot
from jaxrag.methods.errr import errr_pairs, rrr
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.methods.errr.queries import RRR, Prompted, StudentInput, Trained
from jaxrag.methods.r3 import r3
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath, Search
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError

_SMALL: dict[str, Any] = {
    "rewriter": Rewriter(tokens=200, word_tokens=0, temperature=0.6),
    "search": Search(m=5, read=K),
    "reader": CLOSED,
}
_PAPER: dict[str, Any] = {
    "rewriter": Rewriter(),
    "search": Search(),
    "reader": Reader(prompts="ars", closed_tokens=20),
}
SMALL_JUDGE = RelevanceJudge(by="logprob", prompts=SMALL.prompts, empty="N/A")
"""SmolLM2 writes one word for nearly all passages; its log-probabilities tell them apart."""

RUN = Run(
    method=ars.Config(
        order=Ranked(),  # of the rewrites, by the trained ranker
        count=Chosen(),  # how many are kept, by the trained bandit
        **_SMALL,
    ),
    data=Draw(Factbook(split="train"), Factbook(), part="test", train=300, test=100),
    model=Local(),  # SmolLM2-135M-Instruct
    index=Exact(),  # all-MiniLM-L6-v2
)
"""``ars@factbook``, whole; all other METHOD@DATA differ from it."""

_FIVE = Fixed(5)
STRATEGIES: dict[str, tuple[Any, Any]] = {
    "rewriter5": (Generated(), _FIVE),
    "rewriter10": (Generated(), Fixed(10)),
    "random": (Shuffled(), _FIVE),
    "top": (Ranked(), _FIVE),
    "worst": (Ranked(reverse=True), _FIVE),
    "bandit": (Generated(), Chosen()),
    "ars": (Ranked(), Chosen()),
}
"""Order and number of rewrites."""


def _strategy(small: tuple[Any, Any], paper: tuple[Any, Any] | None = None) -> Entry:
    (order, count), (paper_order, paper_count) = small, paper or small
    if paper_count == Chosen():
        paper_count = Chosen(CountBandit(context=PAPER_CONTEXT))
    return ARS.entry(
        ars.Config(order=order, count=count, **_SMALL),
        ars.Config(order=paper_order, count=paper_count, **_PAPER),
    )


def _labels(variant: Variant) -> MakeLabels:
    judge = RelevanceJudge() if variant.paper else SMALL_JUDGE
    if variant.method == "make_gold_labels":
        judge = None
    settings = _PAPER if variant.paper else _SMALL
    reader = dataclasses.replace(settings["reader"], by="text")  # which writes rewrites alone
    method = ars_labels.Config(judge=judge, **settings | {"reader": reader})
    return MakeLabels(ARS.run(method, variant, part="train"))


def _rewards(variant: Variant) -> MakeRewards:
    order = Ranked() if variant.method == "make_ranked_rewards" else Generated()
    settings = _PAPER if variant.paper else _SMALL
    context = PAPER_CONTEXT if variant.paper else None
    method = ars_rewards.Config(order=order, context=context, **settings)
    return MakeRewards(rewarded(ARS.run(method, variant, part="both")))


def rewarded(run: Run) -> Run:
    """The run of a table of rewards, which has the questions that a ranker was trained on, too.

    The bandit learns from them; it is evaluated on the others.
    """
    ranked = isinstance(run.method, ars_rewards.Config) and isinstance(run.method.order, Ranked)
    return dataclasses.replace(run, leakage="keep") if ranked else run


RANKERS = {
    "tiny": TrainRanker(
        training=RankerTraining(
            steps=4, unit="questions", batch=4, microbatch=1, evaluate_every=2, save_every=2
        ),
        label="logprob",
        max_length=48,
    ),
    "small": TrainRanker(
        training=RankerTraining(
            epochs=8,
            unit="questions",
            batch=16,
            microbatch=2,
            encoder_dropout=0.0,
            warmup=10,
            evaluate_every=30,
            save_every=30,
        ),
        label="logprob",
        max_length=96,
    ),
    "paper": TrainRanker(
        checkpoint="hub:google-bert/bert-base-uncased", held_out=0.0, max_length=256
    ),
    "paper-medmcqa": TrainRanker(
        checkpoint="hub:emilyalsentzer/Bio_ClinicalBERT", held_out=0.0, max_length=512
    ),
}
"""Trainings by size; the paper takes ClinicalBERT for medmcqa."""

PAPER_CONTEXT = BiEncoder("hub:google-bert/bert-base-uncased", max_length=512, normalise=False)
"""The paper's bandit chooses by "the BERT embedding" of the question; its pooling is not stated."""


RAFE = Worth(exact_match=0.0, f1=0.0, hit=0.0, rerank=1.0)
"""Rewards a rewriter by the reranker's mean score of the passages that its queries find."""


def _rafe(variant: Variant) -> Run:
    """A trained rewriter's queries are searched for beside the question."""
    settings = dict(_PAPER if variant.paper else _SMALL)
    del settings["rewriter"]
    tokens = errr.STUDENTS["paper" if variant.paper else "small"].max_target
    rewriter = Trained(StudentInput(RRR, False), tokens=tokens)
    return ARS.run(rrr.Config(rewriter, search_question=True, **settings), variant)


def _rafe_pairs(variant: Variant) -> errr_pairs.MakeQueryPairs:
    prompted, prompts = Prompted(context=False), "errr"
    if not variant.paper:
        prompted, prompts = Prompted(context=False, tokens=48), "errr_small"
    reader = Reader(prompts=prompts)
    method = errr_pairs.Config(prompted, StudentInput(RRR, False), reader=reader)
    return errr_pairs.MakeQueryPairs(ARS.run(method, variant, part="train", index=None))


def _train_rafe(variant: Variant) -> TrainRrr:
    run = _rafe(variant)
    reranker = CrossEncoder("hub:BAAI/bge-reranker-base") if variant.paper else QueryLikelihood()
    train = ARS.data(variant, part="train")
    training: Any = errr.PPO
    lengths: dict[str, Any] = {"max_target": 24}
    if variant.paper:
        training, lengths = errr.PAPER_PPO, {"max_source": 512, "max_target": 128}
    if variant.name == "tiny":
        training = dataclasses.replace(training, steps=2, rollouts=4, batch=2, evaluate_every=1)
    trained = dataclasses.replace(run, data=train, reranker=reranker, label="")
    return TrainRrr(trained, run.data, training=training, worth=RAFE, **lengths)


def _train_bandit(variant: Variant) -> TrainBandit:
    tables = tuple(path for path in variant.name.split(",") if path)
    if not tables:
        raise InputError(f"give {variant.method}@DIRECTORY[,DIRECTORY...] of reward tables.")
    others = (Thompson(), EpsilonGreedy(), LinUcb())
    if variant.method == "train_bandit_tiny":
        training, learner = BanditTraining(epochs=3, dimensions=4), NeuralUcb(width=8)
        return TrainBandit(tables, 10, learner, others, training, penalties=(0.02,), seeds=2)
    if variant.method == "train_bandit_full":
        learner = NeuralUcb(confidence="dual")
        return TrainBandit(tables, learner=learner, training=BanditTraining(epochs=10))
    if variant.method == "train_bandit_released":
        training = BanditTraining(epochs=10, batch=1)
        return TrainBandit(tables, learner=ReleasedNeuralUcb(), training=training)
    if variant.method == "train_bandit_sweep":
        training = BanditTraining(dimensions=32)
        return TrainBandit(tables, learner=NeuralUcb(width=50), training=training)
    return TrainBandit(tables, others=others)


METHODS = {
    "llm": ARS.entry(
        few_shot.Config(reader=CLOSED),
        few_shot.Config(reader=_PAPER["reader"]),
        {"index": None},
        {"index": None},
    ),
    "rag": ARS.entry(
        r3.Config(candidates=OnePath(n=K), select=Top(k=K), reader=CLOSED),
        r3.Config(candidates=OnePath(n=5), select=Top(k=5), reader=_PAPER["reader"]),
    ),
    **{name: _strategy(parts) for name, parts in STRATEGIES.items()},
    "judge": _strategy((Judged(SMALL_JUDGE), _FIVE), (Judged(RelevanceJudge()), _FIVE)),
    **entries(ARS_BASELINES | SELF_RAG, ARS),
    **{name: Entry(_labels, data.ARS) for name in ("make_labels", "make_gold_labels")},
    **{name: Entry(_rewards, data.ARS) for name in ("make_rewards", "make_ranked_rewards")},
    "rafe": Entry(_rafe, data.ARS),
    "make_pairs_rafe": Entry(_rafe_pairs, data.ARS),
    "train_rafe": Entry(_train_rafe, data.ARS),
    "train_ranker": Entry(lambda variant: RANKERS[variant.name], RANKERS),
    **{name: Entry(_train_bandit) for name in
       ("train_bandit", "train_bandit_sweep", "train_bandit_full", "train_bandit_released",
        "train_bandit_tiny")},
}  # fmt: skip


def get_config(variant: str = "rewriter10@factbook") -> Job:
    """The run or the job of METHOD@DATA."""
    return job_of(variant, METHODS, example="rewriter10@factbook")
