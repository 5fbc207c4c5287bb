"""PPO's jobs: what queries are worth, what is paid for, figures over seeds, and faults."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import ppo_toy
from jaxrag.configs import errr as config
from jaxrag.core.store import Store
from jaxrag.data.draw import Draw
from jaxrag.data.factbook import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.evaluation.significance import interval, paired_difference
from jaxrag.methods.errr import rrr
from jaxrag.methods.errr.ppo import figures as ppo_figures
from jaxrag.methods.errr.ppo import job
from jaxrag.methods.errr.ppo.rewards import Rewards, Worth, usable
from jaxrag.methods.errr.queries import RRR, Prompted, StudentInput, Trained
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.runs.loading import load_data
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, RerankerTool, RetrieverTool, Tools
from jaxrag.training.ppo.step import PPOTraining
from jaxrag.training.student.checkpoint import load_student, new_t5, write_student
from jaxrag.training.student.student import NewT5
from jaxrag.types import Generation, InputError, Passage, Question
from tests.methods.errr.test_errr import ANGLES, PASSAGES, Reads
from tests.scripted import ScriptedIndex

METHOD = rrr.Config(
    Trained(StudentInput(RRR, context=False), most=3),
    Search(m=2, merge="round_robin", read=2),
    reader=Reader(prompts="errr_small"),
)
QUESTION = Question("q1", "Where is it?", ("Rome",))
OTHER = Question("q2", "Where else?", ("Oslo",))


def text_of(row: int) -> Passage:
    name = list(PASSAGES)[row]
    return Passage(name, f"Title {name}", "It is in Rome." if name == "e" else f"text of {name}")


class Corpus:
    """Of the index, such as the web's: no passage of it need be in the data set's corpus."""

    def get(self, rows: Any) -> list[Passage]:
        return [text_of(row) for row in rows]


def rewards(worth: Worth, llm: Any = None, store: Store | None = None) -> Rewards:
    index = ScriptedIndex(PASSAGES, ANGLES)
    index.passages = Corpus()
    # the reader sees Rome where the passage that holds it was found
    llm = llm or Reads({"It is in Rome": "Rome **", "Title": "the city of Rome **"})
    tools = Tools(llm=LanguageModelTool(llm), retriever=RetrieverTool(index))
    gold = {"q1": ("b",), "q2": ("zzz",)}
    return Rewards(METHOD, 10, worth, gold, tools, store or Store(None))


def wrote(text: str, finish: Any = "end") -> Generation:
    return Generation(text, (1,), (0.0,), finish, 1)


def test_em_f1_and_hit_by_hand() -> None:
    # "first" finds a and b, "second" e and d: of them e holds Rome
    found, records = rewards(Worth(f1=0.5, hit=2.0))(
        [QUESTION, QUESTION], [wrote("first **"), wrote("second; first **")]
    )
    # a, b: the answer is "the city of Rome": EM 0, F1 2/(3 + 1) = 1/2, no hit: 0.25 - 2
    # e, a: the answer is "Rome": 1 + 0.5 + 2
    assert found == pytest.approx([0 + 0.25 - 2, 1 + 0.5 + 2])
    first, second = records
    assert first == {
        "queries": ["first"], "parsed": True, "exact_match": 0.0, "f1": 0.5, "hit": False,
    }  # fmt: skip
    assert second["queries"] == ["second", "first"] and second["hit"]


def test_a_hit_of_a_closed_answer_says_nothing() -> None:
    """Any passage may have the word "no"."""
    closed = dataclasses.replace(QUESTION, answers=("no",))
    found, (record,) = rewards(Worth(f1=0.5, hit=2.0))([closed], [wrote("first **")])
    assert record["hit"] is None and found == pytest.approx([0.0])
    dataset: Any = SimpleNamespace(questions=[closed], gold={}, name="closed")
    assert usable(dataset, Worth(), 0) == [closed]
    with pytest.raises(InputError, match="No question of closed has gold answers"):
        usable(dataset, Worth(exact_match=0.0, f1=0.0), 0)


def test_a_reranker_rewards_the_passages_read_for_the_question() -> None:
    class Scores:
        identity = json.dumps({"reranker": "scripted"})

        def score(self, queries: Any, passages: Any) -> Any:
            assert set(queries) == {"Where is it?"}
            return np.array([3.0 if "Rome" in text else 1.0 for text in passages])

    found = rewards(Worth(0.0, 0.0, 0.0, rerank=0.5))
    found = dataclasses.replace(
        found,
        tools=dataclasses.replace(found.tools, reranker=RerankerTool(Scores())),  # pyright: ignore
    )
    # "first" finds a and b, 1 each; "second" e and d, 3 and 1: half of the means
    values, records = found([QUESTION] * 2, [wrote("first **"), wrote("second **")])
    assert values == [0.5, 1.0] and [one["rerank"] for one in records] == [1.0, 2.0]
    assert not Worth(0.0, 0.0, 0.0, rerank=0.5).reads


def test_gold_hits_need_no_reader() -> None:
    class Silent(Reads):
        def reply(self, *_: Any) -> Any:
            raise AssertionError("the reader was asked")

    worth = Worth(exact_match=0.0, f1=0.0, hit=1.0, gold=True)
    found, records = rewards(worth, Silent({}))(
        [QUESTION, QUESTION, OTHER], [wrote("first **"), wrote("second **"), wrote("first **")]
    )
    assert found == [1.0, -1.0, -1.0] and "f1" not in records[0]


def test_unparsable_queries_are_replaced_by_the_question() -> None:
    _, (one, cut) = rewards(Worth())(
        [QUESTION, QUESTION], [wrote("  ;; **"), wrote("first; sec", "length")]
    )
    assert one["queries"] == ["Where is it?"] and not one["parsed"]
    assert cut["queries"] == ["first"] and cut["parsed"]  # the torn one goes


def test_metrics_of_the_questions_as_queries() -> None:
    found = rewards(Worth()).of_questions([QUESTION])
    # "Where" is at 45 degrees: c and b (or d) are found, without Rome
    assert {name: v.tolist() for name, v in found.items()} == {
        "itself reward": [-0.5], "itself exact_match": [0.0], "itself f1": [0.5],
        "itself hit": [0.0],
    }  # fmt: skip


def test_results_are_reused_after_a_failed_question() -> None:
    class Fails(Reads):
        def reply(self, shown: str, *rest: Any) -> Any:
            if "else" in shown.rpartition("\n\n")[2]:
                raise ValueError("no answer to that")
            return super().reply(shown, *rest)

    store, llm = Store(None), Reads({"Title": "Rome **"})
    fails = Fails(llm.said)
    with pytest.raises(InputError, match=r"Question q2: .*no answer to that"):
        rewards(Worth(), fails, store)([QUESTION, OTHER], [wrote("first **")] * 2)
    paid = len(fails.prompts)
    assert rewards(Worth(), llm, store)([QUESTION], [wrote("first **")])[1][0]["exact_match"] == 1
    assert paid + len(llm.prompts) == 1


def dataset(**gold: tuple[str, ...]) -> Any:
    some = (QUESTION, dataclasses.replace(OTHER, answers=()))
    return SimpleNamespace(name="made", questions=some, gold=gold)


def test_questions_that_can_be_rewarded(caplog: pytest.LogCaptureFixture) -> None:
    gold = Worth(exact_match=0, f1=0, gold=True)
    with caplog.at_level("WARNING", "jaxrag"):
        assert [q.id for q in usable(dataset(), Worth(), 0)] == ["q1"]
    assert "1 of 2 questions of made have no gold answers" in caplog.text
    assert [q.id for q in usable(dataset(q1=("a",), q2=("b",)), gold, 0)] == ["q1", "q2"]
    assert [q.id for q in usable(dataset(q1=("a",), q2=("b",)), gold, 1)] == ["q1"]
    with pytest.raises(InputError, match="No question of made has gold passages"):
        usable(dataset(), gold, 0)


def trained(directory: Path, seed: int, values: dict[int, dict[str, list[Any]]]) -> Path:
    """A finished training's files."""
    directory.mkdir(parents=True)
    config = {"training": {"training": {"seed": seed}}}
    from jaxrag.runs.job import job_directory

    with job_directory(directory, config):
        pass
    lines = [{"step": step, "each": each} for step, each in values.items()]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return directory


def test_curves_and_table_over_seeds(tmp_path: Path) -> None:
    # reward of three questions before and after, by two seeds; one figure is undefined
    values = [np.array([[0.0, 0.2, 1.0], [0.5, 1.0, 1.0]]), np.array([[0.2, 0.0, 0.6], [1, 1, 1]])]
    parts = [
        trained(
            tmp_path / str(seed),
            seed,
            {i * 5: {"reward": row.tolist(), "none": [None] * 3} for i, row in enumerate(one)},
        )
        for seed, one in enumerate(values)
    ]
    ppo_figures.write(tmp_path, parts)
    curves = [json.loads(x) for x in (tmp_path / ppo_figures.CURVES).read_text().splitlines()]
    table = [json.loads(x) for x in (tmp_path / ppo_figures.TABLE).read_text().splitlines()]
    before, after = np.mean(values, axis=0)  # [0.1, 0.1, 0.8] and [0.75, 1, 1]
    assert [line["step"] for line in curves if line["figure"] == "reward"] == [0, 5]
    np.testing.assert_allclose(curves[0]["mean"], interval(before))
    reward, none = table
    assert reward["seeds"] == 2 and reward["figure"] == "reward"
    np.testing.assert_allclose(reward["before"], interval(before))
    np.testing.assert_allclose(reward["difference"], paired_difference(after, before))
    assert reward["difference"][0] == pytest.approx((0.65 + 0.9 + 0.2) / 3)
    assert none["before"][:1] == [None] and none["before"][3] == 0


def test_each_seed_has_its_directory(tmp_path: Path) -> None:
    def execute(job: Any, directory: Path) -> Path:
        assert job.seeds == 1
        values = [float(job.training.seed), 1.0]
        return trained(directory, job.training.seed, {0: {"x": values}, 1: {"x": values}})

    how = ppo_toy.TrainToy(dataclasses.replace(ppo_toy.LEARNS, seed=4), seeds=3)
    assert ppo_figures.over_seeds(how, tmp_path, execute) == tmp_path
    assert sorted(p.name for p in tmp_path.glob("seed-*")) == ["seed-4", "seed-5", "seed-6"]
    (row,) = map(json.loads, (tmp_path / ppo_figures.TABLE).read_text().splitlines())
    assert row["seeds"] == 3 and row["before"][0] == pytest.approx((5 + 1) / 2)


def test_the_config_evaluates_on_questions_not_trained_on(tmp_path: Path) -> None:
    made: Any = config.get_config("train_rrr_hit@tiny")
    train, held = (load_data(data, tmp_path) for data in (made.run.data, made.evaluation_data))
    assert train.passages.identity == held.passages.identity
    assert {q.id for q in train.questions}.isdisjoint(q.id for q in held.questions)
    assert usable(train, made.worth, 0) and usable(held, made.worth, 0)


def test_invalid_settings_are_refused(tmp_path: Path) -> None:
    run = Run(METHOD, Factbook(), Local(), Exact())
    prompted = dataclasses.replace(run, method=rrr.Config(Prompted(context=False)))
    with pytest.raises(InputError, match=r"rewriter is Prompted, .*give queries\.Trained"):
        job.TrainRrr(prompted, Factbook())
    with pytest.raises(InputError, match="seeds is 0"):
        job.TrainRrr(run, Factbook(), seeds=0)
    with pytest.raises(InputError, match="evaluate_every is 0"):
        job.TrainRrr(run, Factbook(), training=PPOTraining())
    with pytest.raises(InputError, match=r"checkpoint is empty: give --config\.checkpoint"):
        job.TrainRrr(run, Factbook()).execute(tmp_path)


def small(tmp_path: Path, **changes: Any) -> job.TrainRrr:
    """Two steps of a T5 that knows eight words, rewarded by what BM25 finds."""
    where = ppo_toy.tokenizer(tmp_path / "tokenizer")
    sizes = NewT5(str(where), width=8, inner=8, heads=1, head_width=8, layers=1)
    student = new_t5(sizes, max_source=8, max_target=4, dtype="float32")
    write_student(tmp_path / "student", student, student.params)
    drawn = Draw(
        Factbook(split="train", countries=3),
        test_source=Factbook(countries=3),
        train=8,
        test=4,
        only_gold=True,
    )
    run = Run(METHOD, dataclasses.replace(drawn, part="train"), Local(), Bm25(),
              cache=str(tmp_path / "cache"))  # fmt: skip
    how = PPOTraining(steps=2, rollouts=2, batch=2, passes=1, learning_rate=1e-2, evaluate_every=1)
    told: dict[str, Any] = {"max_source": 8, "max_target": 4, "training": how} | changes
    worth = Worth(exact_match=0.0, f1=0.0, gold=True)
    evaluation_data = dataclasses.replace(drawn, part="test")
    return job.TrainRrr(run, evaluation_data, str(tmp_path / "student"), worth=worth, **told)


@pytest.mark.slow
def test_files_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "load_model", lambda *_: Reads({}))
    settings, work = small(tmp_path), tmp_path / "work"
    trained = settings.execute(work).path
    assert trained == work / "optimizer"
    rows = {
        row["figure"]: row for row in map(json.loads, (work / "ppo.jsonl").read_text().splitlines())
    }
    assert set(rows) == {"reward", "parsed", "hit", "itself reward", "itself hit"}
    assert all(row["before"][3] == 4 and row["seeds"] == 1 for row in rows.values())
    # a hit is worth 1, none -1; and the questions' own figures do not change
    hit, reward = rows["hit"]["after"][0], rows["reward"]["after"][0]
    assert reward == pytest.approx(2 * hit - 1)
    assert rows["itself hit"]["before"] == rows["itself hit"]["after"]
    assert rows["itself hit"]["before"][0] > 0
    texts = [json.loads(line) for line in (work / "rollouts.jsonl").read_text().splitlines()]
    assert [line["step"] for line in texts] == [1, 1, 2, 2]
    assert all(line["queries"] and line["reward"] in (1.0, -1.0) for line in texts)
    # the trained rewriter is another one, and can be loaded
    found = load_student(str(trained), max_source=8, max_target=4)
    begun = load_student(str(tmp_path / "student"), max_source=8, max_target=4)
    assert not np.array_equal(*(one.params["shared"]["weight"] for one in (found, begun)))


@pytest.mark.slow
def test_ppo_raises_the_reward_of_the_toy(tmp_path: Path) -> None:
    how = ppo_toy.TrainToy(dataclasses.replace(ppo_toy.LEARNS, steps=30, evaluate_every=15))
    trained = how.execute(tmp_path).path
    assert (trained / "model.safetensors").exists()
    table = map(json.loads, (tmp_path / ppo_figures.TABLE).read_text().splitlines())
    row = next(row for row in table if row["figure"] == "reward")
    mean, low, _, n, p = row["difference"]
    assert n == 200 and low > 0.2 and mean > 0.3 and p < 0.01
