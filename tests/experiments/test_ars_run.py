"""ARS-RAG from labels to answers: every part of it on small files, as a user would run them."""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest

from jaxrag.configs import ars as ars_config
from jaxrag.data.draw import Draw
from jaxrag.evaluation.records import read_run
from jaxrag.methods.ars import ars
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars import rewards as ars_rewards
from jaxrag.methods.ars.bandit.job import TrainBandit
from jaxrag.methods.ars.bandit.settings import BanditTraining, NeuralUcb
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.labels import MakeLabels
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewards import MakeRewards
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Chosen, Generated, Ranked
from jaxrag.models.bert.rewrite_ranker import untrained_ranker, write_ranker
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.runs.config_file import load
from jaxrag.runs.plan import plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run
from tests.models.bert import small_bert

MORE = """
[rewrite]
chat = false
user = "Q: {question}\\n1."

[relevance]
chat = false
user = "{question} {passage}:"
words = ["a", "the"]
"""


class Made(NamedTuple):
    """What the steps before answering made."""

    root: Path
    run: Run
    ranker: Path
    bandit: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("ars"))


def make(root: Path) -> Made:
    """Labels, an untrained ranker, rewards and a bandit below ``root``."""
    run = load(str(write_small_run(root, questions=20)))
    (root / "prompts.toml").write_text(PROMPTS + MORE)
    common = shared(root)
    judge = RelevanceJudge(prompts=common["reader"].prompts)
    labels = dataclasses.replace(
        run,
        method=ars_labels.Config(judge=judge, **common),
        data=Draw(run.data, None, "train", 12, 4),
    )
    file = MakeLabels(labels).execute(root / "labels").path
    assert len(file.read_text().splitlines()) == 12
    # untrained, for training takes longest to compile and has tests of its own
    trained = root / "ranker"
    begun = untrained_ranker(root / "encoder", dtype=jnp.float32, max_length=32)
    write_ranker(trained, begun, begun_with=root / "encoder")
    rewards = dataclasses.replace(
        run,
        method=ars_rewards.Config(order=Ranked(ranker=RewriteRanker(str(trained))), **common),
        data=Draw(run.data, None, "both", 8, 4),
    )
    table = MakeRewards(rewards).execute(root / "ranked").path.parent
    job = TrainBandit(
        (str(table),),
        arms=4,
        learner=NeuralUcb(width=4),
        training=BanditTraining(epochs=2, batch=4),
        penalties=(),
        seeds=1,
    )
    job.execute(root / "bandits")
    (chooser,) = (path.parent for path in (root / "bandits" / "bandits").rglob("config.json"))
    return Made(root, run, trained, chooser)


def shared(root: Path) -> dict[str, Any]:
    reader = Reader(prompts=str(root / "prompts.toml"), answer_tokens=3)
    return {"rewriter": Rewriter(n=4, tokens=30), "search": Search(m=3), "reader": reader}


def full(made: Made, **changes: Any) -> Run:
    order = Ranked(ranker=RewriteRanker(str(made.ranker)))
    count = Chosen(CountBandit(str(made.bandit)))
    return dataclasses.replace(
        made.run,
        method=ars.Config(order=order, count=count, **shared(made.root)),
        data=Draw(made.run.data, None, "test", 8, 4),
        **changes,
    )


def test_the_whole_method_runs_end_to_end(made: Made, tmp_path: Path) -> None:
    run = full(made)
    told = dict(plan(run))
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 4 and not found["errors"]
    records = read_run(tmp_path / "run")
    assert {"order.ranker", "count.bandit"} <= told.keys()
    helpers = records.config["helpers"]
    assert helpers.keys() == {"count.bandit", "order.ranker"}
    assert helpers["order.ranker"]["ranker"]["weights"] and helpers["count.bandit"]["bandit"]
    for line in records.records:
        kept = line["trace"]["kept"]
        assert 1 <= kept["k"] <= 4 and sorted(kept["numbers"]) == [0, 1, 2, 3]
        assert kept["scores"] == sorted(kept["scores"], reverse=True)
        assert line["cost"]["searches"] == kept["k"] and line["cost"]["rerank_pairs"] == 4
    # the table of rewards has the same answers
    rewards = (made.root / "ranked" / "rewards.jsonl").read_text().splitlines()
    earned = {line["question_id"]: line for line in map(json.loads, rewards)}
    for line in records.records:
        k = line["trace"]["kept"]["k"]
        assert line["prediction"] == earned[line["question_id"]]["predictions"][k - 1]


def with_method(run: Run, **changes: Any) -> Run:
    return dataclasses.replace(run, method=dataclasses.replace(run.method, **changes))


def test_pairs_that_do_not_fit_are_refused(made: Made, tmp_path: Path) -> None:
    run = full(made)
    none = with_method(run, order=Ranked())
    for use in (plan, lambda run: execute(run, tmp_path / "a")):
        with pytest.raises(InputError, match=r"give --config\.method\.order\.ranker\.checkpoint="):
            use(none)
        with pytest.raises(InputError, match=r"nowhere is no directory\. This method chooses"):
            use(with_method(run, count=Chosen(CountBandit("nowhere"))))
    bm25 = dataclasses.replace(run, index=Bm25())
    with pytest.raises(InputError, match="compares vectors, and the index"):
        execute(bm25, tmp_path / "b")
    # the bandit's rewards are of these rewrites in this order, read in this way
    fewer = with_method(run, rewriter=Rewriter(n=3, tokens=30))
    reader = dataclasses.replace(run.method.reader, answer_tokens=2)
    for other, told in (
        (fewer, r"rewriter\.n: 4 recorded, 3 now"),
        (with_method(run, order=Generated()), r'order\.is: "Ranked" recorded, "Generated" now'),
        (with_method(run, reader=reader), r"reader\.answer_tokens: 3 recorded, 2 now"),
    ):
        with pytest.raises(InputError, match=rf"was trained for another source(.|\n)*{told}"):
            execute(other, tmp_path / "c")
    transferred = with_method(fewer, count=Chosen(CountBandit(str(made.bandit), transfer=True)))
    assert execute(transferred, tmp_path / "c")["errors"] == 4
    error = read_run(tmp_path / "c").records[0]["error"]
    assert "trained for 4 rewrites, and the question has 3" in error
    small_bert.write(tmp_path / "encoder", small_bert.BERT, classifier=False, seed=5)
    other = dataclasses.replace(
        run, index=Exact(BiEncoder(str(tmp_path / "encoder"), max_length=32))
    )
    with pytest.raises(InputError, match="is a bandit for encoder"):
        execute(other, tmp_path / "d")


def test_tables_of_ranked_rewards_keep_the_questions_of_their_ranker() -> None:
    # the bandit learns from them, see docs/methods/ars.md; with "refuse" the documented step stops
    for name, leakage in (("make_ranked_rewards", "keep"), ("make_rewards", "refuse")):
        job: Any = load(f"configs/ars.py:{name}@tiny")
        assert job.run.leakage == leakage, name
        paper: Any = load(f"configs/ars.py:{name}@paper-boolq")  # the paper's BERT, as its tables
        assert paper.run.method.context == ars_config.PAPER_CONTEXT
    for strategy in ("bandit", "ars"):
        run: Any = load(f"configs/ars.py:{strategy}@paper-boolq")
        assert run.method.count.bandit.context == ars_config.PAPER_CONTEXT


def test_strategies_that_need_a_checkpoint() -> None:
    strategies = ("llm", "rag", "judge", *ars_config.STRATEGIES)
    needs = {
        name: {*ars_config.get_config(f"{name}@tiny").needs.helpers}  # type: ignore[attr-defined]
        for name in strategies
    }
    assert {name for name in needs if "order.ranker" in needs[name]} == {"top", "worst", "ars"}
    assert {name for name in needs if "count.bandit" in needs[name]} == {"bandit", "ars"}
