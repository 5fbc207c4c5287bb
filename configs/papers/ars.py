"""Tables and figures of ARS-RAG."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from jaxrag.configs import ars, errr
from jaxrag.configs.papers.models import model, with_method
from jaxrag.configs.parts import ARS, Variant
from jaxrag.methods.ars import rewards
from jaxrag.methods.ars.bandit.job import LAMBDAS, TrainBandit, bandit_of
from jaxrag.methods.ars.bandit.settings import BanditTraining, NeuralUcb, RewardScheme
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.ranker.job import RANKER
from jaxrag.methods.ars.rewards import MakeRewards
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Chosen, Generated, Ranked, RewriteOrder, Shuffled
from jaxrag.reproduction import rewrite_figures as figures
from jaxrag.reproduction.bars import bars
from jaxrag.reproduction.measures import JOB
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.reproduction.tables import Declarations, Figure, Line, Maker, Scale, Setting, Table
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.training.student.checkpoint import OPTIMIZER

REWRITER = "Llama3.3:70B"
"""Rewrites and judges, whichever model answers."""

Order = Literal["generated", "ranked"]
_DATASETS = ("boolq", "hotpotqa", "medmcqa", "strategyqa")


def _questions(scale: Scale, dataset: str) -> str:
    small = "hotpotqa_distractor" if dataset == "hotpotqa" else dataset
    return {"tiny": "tiny", "small": small, "paper": f"paper-{dataset}"}[scale]


def _with_models(run: Run, generator: str, setting: Setting) -> Run:
    """The run with the model that answers, and the one that rewrites; unchanged where small."""
    if not setting.paper:
        return run
    run = dataclasses.replace(run, model=model(generator), index=run.index and ARS.paper["index"])
    method: Any = run.method
    if generator == REWRITER or not isinstance(getattr(method, "rewriter", None), Rewriter):
        return run
    return with_method(run, rewriter=dataclasses.replace(method.rewriter, model=model(REWRITER)))


def _run(method: str, generator: str, setting: Setting, **changes: Any) -> Run:
    """A method of configs/ars.py; ``changes`` are of the method's settings."""
    run: Any = ars.METHODS[method].make(Variant(method, setting.data))
    return with_method(_with_models(run, generator, setting), **changes)


def _line(method: str) -> Line:
    return Line(lambda row, setting: _run(method, _generator(row), setting))


def _generator(row: PrintedRow) -> str:
    return row.generator or REWRITER


def _ranker(setting: Setting) -> RewriteRanker:
    """A ranker trained on labels of the data set.

    Small models judge badly, so gold passages are their labels. medmcqa marks none: there boolq's
    ranker orders the rewrites.
    """
    transfer = not setting.paper and setting.dataset == "medmcqa"
    if transfer:
        setting = setting._replace(dataset="boolq", data=_questions(setting.scale, "boolq"))
    method, label = ("make_labels", "model") if setting.paper else ("make_gold_labels", "gold")
    labels: Any = ars.METHODS[method].make(Variant(method, setting.data))
    labels = dataclasses.replace(labels, run=_with_models(labels.run, REWRITER, setting))
    clinical = setting.sizes == "paper" and setting.dataset == "medmcqa"
    job = ars.RANKERS["paper-medmcqa" if clinical else setting.sizes]
    job = dataclasses.replace(job, labels=str(setting.directory(labels)), label=label)
    return RewriteRanker(str(setting.directory(job) / RANKER), transfer=transfer)


def _order(order: Order, setting: Setting) -> RewriteOrder:
    return Generated() if order == "generated" else Ranked(ranker=_ranker(setting))


def _rewards(order: Order, generator: str, setting: Setting) -> MakeRewards:
    """The table of the answers' rewards by K."""
    job: Any = ars.METHODS["make_rewards"].make(Variant("make_rewards", setting.data))
    run = _with_models(job.run, generator, setting)
    context = ars.PAPER_CONTEXT if setting.paper else None
    run = with_method(run, order=_order(order, setting), context=context)
    return MakeRewards(ars.rewarded(run))


def _bandit(order: Order, generator: str, setting: Setting) -> TrainBandit:
    """Five seeds under the weights and under every lambda; the diagonal of Z."""
    tables = (str(setting.directory(_rewards(order, generator, setting))),)
    if setting.sizes == "paper":
        return TrainBandit(tables)
    if setting.sizes == "small":
        return TrainBandit(tables, 10, NeuralUcb(width=50), (), BanditTraining(dimensions=32))
    return TrainBandit(tables, 10, NeuralUcb(width=8), (), BanditTraining(3, 32, 4), seeds=2)


def _whole(setting: Setting) -> TrainBandit:
    """The bandit of the weighted rewards with the whole matrix Z, as eqs 11 and 12 print it."""
    job = _bandit("ranked", REWRITER, setting)
    learner = dataclasses.replace(job.learner, confidence="dual")
    training = job.training
    if setting.sizes == "paper":  # exact up to `learner.pulls` plays of an arm
        training = dataclasses.replace(training, epochs=10)
    return dataclasses.replace(job, learner=learner, training=training, penalties=())


def _chosen(order: Order, generator: str, setting: Setting) -> Chosen:
    """K by the bandit of this seed that learned from the weighted rewards."""
    job = _bandit(order, generator, setting)
    job = dataclasses.replace(job, seeds=max(job.seeds, setting.seed + 1))
    table = Path(job.tables[0]).name
    path = bandit_of(setting.directory(job), table, RewardScheme(), setting.seed)
    context = ars.PAPER_CONTEXT if setting.paper else None
    return Chosen(CountBandit(str(path), context=context))


def _with_bandit(order: Order, method: str, generator: str, setting: Setting) -> Run:
    count = _chosen(order, generator, setting)
    return _run(method, generator, setting, order=_order(order, setting), count=count)


def _ars(generator: str, setting: Setting) -> Run:
    return _with_bandit("ranked", "ars", generator, setting)


def _rafe(row: PrintedRow, setting: Setting) -> Run:
    """The rewriter learns the large model's queries, then by PPO what a reranker prefers."""
    pairs: Any = ars.METHODS["make_pairs_rafe"].make(Variant("make_pairs_rafe", setting.data))
    pairs = dataclasses.replace(pairs, run=_with_models(pairs.run, REWRITER, setting))
    training: Any = ars.METHODS["train_rafe"].make(Variant("train_rafe", setting.data))
    training = dataclasses.replace(training, run=_with_models(training.run, REWRITER, setting))
    if setting.scale == "tiny":  # of 8 questions
        pairs = dataclasses.replace(pairs, run=with_method(pairs.run, held_out=0.5))
    if setting.sizes == "small":
        ppo = dataclasses.replace(training.training, steps=40)
        training = dataclasses.replace(training, training=ppo)
    student = dataclasses.replace(errr.STUDENTS[setting.sizes], pairs=str(setting.directory(pairs)))
    started = str(setting.directory(student) / OPTIMIZER)
    trained = setting.directory(dataclasses.replace(training, checkpoint=started)) / OPTIMIZER
    run: Any = _run("rafe", _generator(row), setting)
    rewriter = run.method.rewriter
    written = dataclasses.replace(rewriter.model, checkpoint=str(trained))
    return with_method(run, rewriter=dataclasses.replace(rewriter, model=written))


_MAIN: Mapping[str, Line] = {
    "no_retrieval": _line("few_shot"),
    "cot_prompting": _line("chain_of_thought"),
    "flare": _line("flare"),
    "self_rag": _line("self_rag_prompted"),
    "rafe": Line(_rafe),
    "cor": _line("cor"),
    "fairrag": _line("fairrag"),
    "rankrag": _line("rankrag"),
    "ars_rag": Line(lambda row, setting: _ars(_generator(row), setting)),
}
_ABLATION: Mapping[str, Line] = {
    "no_retrieval": _MAIN["no_retrieval"],
    "standard_rag": _line("rag"),
    "rewriter_10": _line("rewriter10"),
    "rewriter_ranker_top5": Line(
        lambda row, setting: _run("top", _generator(row), setting, order=_order("ranked", setting))
    ),
    "rewriter_bandit": Line(
        lambda row, setting: _with_bandit("generated", "bandit", _generator(row), setting)
    ),
    "ars_rag": _MAIN["ars_rag"],
}
_RANKED_REWARDS = Line(lambda row, setting: _rewards("ranked", REWRITER, setting))
_PENALTY = Line(
    lambda row, setting: _bandit("ranked", REWRITER, setting),
    {"accuracy": figures.under_penalty("correct"), "mean_k": figures.under_penalty("k")},
    {figures.REWARDS: _RANKED_REWARDS.job},
)


def _answers_by_k(order: RewriteOrder, setting: Setting) -> Run:
    """Answers from the first 1, 2, ... rewrites of another order, to the test questions."""
    job = _rewards("generated", REWRITER, setting)
    assert isinstance(job.run.method, rewards.Config)
    method = dataclasses.replace(job.run.method, order=order, context=None)
    data: Any = dataclasses.replace(job.run.data, part="test")  # pyright: ignore
    return dataclasses.replace(job.run, method=method, data=data)


def _timed(method: str, setting: Setting) -> Run:
    """A run of which nothing is stored, so that its seconds are of the whole work."""
    run = _ars(REWRITER, setting) if method == "ars" else _run(method, REWRITER, setting)
    return dataclasses.replace(run, store="memory", limit=0 if setting.paper else 20)


_STRATEGIES: Mapping[str, Maker] = {
    "generated": lambda row, setting: _rewards("generated", REWRITER, setting),
    "worst": lambda row, setting: _answers_by_k(
        Ranked(reverse=True, ranker=_ranker(setting)), setting
    ),
    **{
        f"random {seed}": lambda row, setting, seed=seed: _answers_by_k(Shuffled(seed), setting)
        for seed in range(5)
    },
    "rag": lambda row, setting: _run("rag", REWRITER, setting),
    "ars": lambda row, setting: _ars(REWRITER, setting),
}
"""Jobs of Figure 4 beside the ranked rewards."""

_SMALL_RANKER = (
    "At smaller scales the ranker learns from gold passages instead of the model's verdicts; for "
    "medmcqa, which marks none, it is boolq's."
)
TABLES = {
    "ars/table1": Table(
        _questions,
        _MAIN,
        notes=(
            "RaFe's rewriter is not stated: here a T5 learns the large model's queries, and then "
            "by PPO to find passages that a reranker scores highly.",
            "Self-RAG, RankRAG and CoR need models trained for them, and the paper does not say "
            "how it ran them on these generators: here their judgements are asked for by prompts.",
            "Precision is the mean over classes.",
            _SMALL_RANKER,
        ),
    ),
    "ars/table2": Table(_questions, _ABLATION, notes=(_SMALL_RANKER,)),
    "ars/table3": Table(
        _questions,
        {"ars_rag_penalty": _PENALTY},
        notes=("A question's value is its mean over the seeds of the bandit.",),
    ),
    "ars/figure4": Table(
        _questions,
        {"rewriter_ranker_topk": Line(_RANKED_REWARDS.job, others=_STRATEGIES)},
        measures={"best_fixed_k": figures.best_fixed_k},
        draw=figures.strategies,
    ),
}


_BANDIT: Mapping[str, Callable[[Setting], Job]] = {
    JOB: lambda setting: _bandit("ranked", REWRITER, setting),
    figures.REWARDS: lambda setting: _rewards("ranked", REWRITER, setting),
}
_PIPELINES = {"Original": "judge", "ARS-RAG": "ars"}
FIGURES = {
    "ars/figure5": Figure(
        "weighted reward of bandits with the diagonal of Z and with all of it, by epoch: mean and "
        "standard deviation over seeds",
        _DATASETS,
        _questions,
        _BANDIT | {figures.WHOLE: _whole},
        figures.rewards_by_epoch,
    ),
    "ars/figure6": Figure(
        "K that the bandit chose for the test questions after the last epoch",
        _DATASETS,
        _questions,
        _BANDIT,
        figures.kept_histograms,
    ),
    "ars/figure7": Figure(
        "K that bandits chose under penalties lambda",
        ("boolq",),
        _questions,
        _BANDIT,
        functools.partial(
            figures.kept_histograms,
            schemes=tuple(RewardScheme(penalty=penalty).name for penalty in LAMBDAS),
        ),
    ),
    "ars/figure8": Figure(
        "seconds of the pipeline that judges every passage, and of ARS-RAG",
        _DATASETS,
        _questions,
        {job: lambda setting, job=job: _timed(job, setting) for job in _PIPELINES.values()},
        functools.partial(
            bars,
            measures={label: figures.seconds(job) for label, job in _PIPELINES.items()},
            y_title="seconds a question",
            percent=False,
        ),
        {label: (job,) for label, job in _PIPELINES.items()},
    ),
}
LEFT_OUT = {
    "ars/figure1": "an example of a question and its rewrites",
    "ars/figure2": "a picture of the method",
    "ars/figure3": "a picture of the bandit",
    **{f"ars/table{n}": "a prompt; ours are in jaxrag/steps/prompts" for n in range(4, 8)},
}
DECLARED = Declarations(TABLES, FIGURES, LEFT_OUT)
