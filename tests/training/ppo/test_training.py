"""PPO's loop on a tiny T5: what changes nothing, and rewards that will not do."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import ppo_toy
from jaxrag.training.ppo import training as ppo
from jaxrag.training.ppo.rollouts import (
    ROLLOUTS,
    PPOExample,
    checked_rewards,
    mean_metrics,
    sample_texts,
    target_mask,
    token_pairs,
    truncated_examples,
)
from jaxrag.training.ppo.step import KlControl, PPOTraining, make_step, zero_value
from jaxrag.training.student.checkpoint import new_t5
from jaxrag.training.student.engine import engine
from jaxrag.training.student.student import NewT5, Student
from jaxrag.types import Generation, InputError, Question

# one for all tests, so that its programs are compiled once
HOW = PPOTraining(
    steps=4,
    rollouts=4,
    batch=2,
    passes=2,
    kl=KlControl(0.1, 0.01, 0.5),
    learning_rate=3e-2,
    weight_decay=0.0,
    save_every=2,
)
SOME = ppo_toy.examples(7, seed=5)


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Student:
    where = ppo_toy.tokenizer(tmp_path_factory.mktemp("tokenizer"))
    sizes = NewT5(str(where), width=8, inner=8, heads=1, head_width=8, layers=1)
    return new_t5(sizes, max_source=5, max_target=4, dtype="float32")


class Asked:
    """A reward that writes down what it was asked, and may break off."""

    def __init__(self, breaks_at: int | None = None, broken: Any = KeyboardInterrupt) -> None:
        self.texts: list[list[str]] = []
        self.breaks_at, self.broken = breaks_at, broken

    def __call__(self, questions: Any, texts: Any) -> Any:
        self.texts.append([one.text for one in texts])
        if len(self.texts) - 1 == self.breaks_at:
            raise self.broken
        rewards, records = ppo_toy.reward(questions, texts)
        return rewards, [{**record, "queries": ["x"]} for record in records]


def same(one: Any, other: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), one, other)))


def lines(directory: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (directory / name).read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("seconds")} for line in found]


@pytest.mark.slow
def test_every_step_and_text_has_its_line(student: Student, tmp_path: Path) -> None:
    """What resuming changes is compared in tests/training/test_jobs.py."""
    ppo.train(SOME, student, Asked(), HOW, tmp_path)
    steps, texts = lines(tmp_path), lines(tmp_path, ROLLOUTS)
    # beta follows the divergence: before the first update there is none
    assert steps[0]["kl"] == 0 and steps[0]["coefficient"] == pytest.approx(0.1 * 0.9)
    assert len({line["coefficient"] for line in steps}) == 4
    assert {"reward", "words", "clip_fraction", "ended"} <= set(steps[0])
    # every text is in the file, and its reward is what was logged
    assert len(texts) == 16 and texts[0]["queries"] == ["x"]
    rewards = [line["reward"] for line in texts if line["step"] == 2]
    assert steps[1]["reward"] == pytest.approx(np.mean(rewards))


def rollouts(student: Student, score: float = 1.0) -> tuple[Any, Any, Any]:
    """Functions, the first state, and rollouts of four texts of different lengths."""
    functions = make_step(student.module, HOW)
    state = functions.begin(student.params)
    ids = [(3, 4, 5, 1), (6, 1), (7, 8, 1), (1,)]
    texts = [Generation("", some, (0.0,) * len(some), "end", 1) for some in ids]
    pairs = token_pairs(student, ["fox oak sea", "oak", "sun owl fox map", "map"], texts)
    logprobs, values = functions.score(state.params, pairs)
    scores = np.array([score, -score, 0.0, score], np.float32)
    judged = functions.advantages(state.coefficient, pairs, scores, logprobs, logprobs, values)
    return functions, state, judged


ROWS = np.array([0, 1], np.int32)


def test_the_initial_ratio_is_one(student: Student) -> None:
    functions, state, judged = rollouts(student)
    _, figures = functions.update(state, judged, ROWS)
    assert float(figures["clip_fraction"]) == 0
    assert float(figures["approximate_kl"]) < 1e-10
    # ratio 1 everywhere: the loss of the policy is minus the mean advantage of the batch's tokens
    advantages = np.asarray(judged.advantages)[ROWS][np.asarray(judged.where)[ROWS]]
    assert float(figures["policy_loss"]) == pytest.approx(-advantages.mean(), abs=1e-5)
    assert abs(advantages.mean()) > 0.01


@pytest.mark.slow
def test_without_advantages_the_policy_does_not_change(student: Student) -> None:
    functions, _, judged = rollouts(student, score=0.0)
    assert not np.asarray(judged.advantages).any() and not np.asarray(judged.returns).any()
    state, figures = functions.update(functions.begin(student.params), judged, ROWS)
    assert float(figures["norm"]) == 0.0
    assert same(state.params, {"policy": student.params, "value": zero_value(student.module)})


def test_padding_changes_nothing(student: Student) -> None:
    functions, state, judged = rollouts(student)
    there = np.asarray(judged.where)
    beyond = np.arange(5) >= np.asarray(judged.pairs.source_length)[:, None]
    assert beyond.any() and not there.all()

    def filled(array: Any) -> Any:
        return jnp.where(there, array, 7.0)

    pairs = judged.pairs._replace(
        source=np.where(beyond, 9, judged.pairs.source),
        target=np.where(there, judged.pairs.target, 9),
    )
    names = ("logprobs", "reference", "values", "advantages", "returns")
    other = judged._replace(pairs=pairs, **{name: filled(getattr(judged, name)) for name in names})
    once = functions.update(state, judged, ROWS)
    again = functions.update(functions.begin(student.params), other, ROWS)
    assert same(once, again) and float(once[1]["norm"]) > 0
    # nor in what is looked at and judged
    state = functions.begin(student.params)
    for mine, with_junk in zip(
        functions.score(state.params, judged.pairs),
        functions.score(state.params, pairs),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(mine)[there], np.asarray(with_junk)[there])


def test_draws_depend_on_the_question_only(student: Student) -> None:
    model = engine(student, student.params)

    def texts(*sources: str, step: int = 0) -> list[tuple[int, ...]]:
        return [one.tokens for one in sample_texts(model, sources, tokens=4, seed=0, step=step)]

    a, b, c = "fox oak sea", "oak bee", "sun"
    first, second, third, again = texts(a, b, c, a)
    assert [first, third] == texts(a, c) and [second, first] == texts(b, a)
    assert again != first  # the same question once more is another draw
    assert texts(a, b, c, a, step=1) != [first, second, third, again]


def test_rollouts_have_the_sampled_tokens(student: Student) -> None:
    texts = [Generation("red", (4, 1), (0.0, 0.0), "end", 1),
             Generation("?", (2, 2, 2, 2), (0.0,) * 4, "length", 1)]  # fmt: skip
    pairs = token_pairs(student, ["fox oak", "oak sun fox"], texts)
    assert pairs.target.tolist() == [[4, 1, 0, 0], [2, 2, 2, 2]]
    assert pairs.target_length.tolist() == [2, 4] and pairs.source_length.tolist() == [2, 3]
    assert target_mask(pairs).tolist() == [[True, True, False, False], [True] * 4]


def test_a_reward_that_is_no_number_stops_the_training(student: Student, tmp_path: Path) -> None:
    def reward(questions: Any, texts: Any) -> Any:
        return [math.inf] * len(questions), [{} for _ in questions]

    with pytest.raises(InputError, match=r"Step 1: the reward of question toy.* is inf"):
        ppo.train(SOME, student, reward, HOW, tmp_path)
    assert not (tmp_path / ROLLOUTS).exists()
    some = [Question("q1", "?", ("a",)), Question("q2", "?", ("a",))]
    with pytest.raises(InputError, match=r"Step 9: the reward of question q2 is nan"):
        checked_rewards([1.0, math.nan], some, 9)
    with pytest.raises(InputError, match=r"Step 9: .*shape \(1,\) for 2 texts"):
        checked_rewards([1.0], some, 9)


def test_mean_metrics_average_numbers_and_booleans() -> None:
    some = [{"hit": True, "f1": 0.5, "queries": ["a"]}, {"hit": False, "f1": 1.0, "extra": 3}]
    assert mean_metrics(some) == {"hit": 0.5, "f1": 0.75, "extra": 3.0}


def test_invalid_sources_are_refused(student: Student) -> None:
    with pytest.raises(InputError, match="no question to train on"):
        truncated_examples(student, [])
    with pytest.raises(InputError, match="Question q1: its source is empty"):
        truncated_examples(student, [PPOExample(Question("q1", "", ("a",)), "")])
    long = PPOExample(Question("q1", "?", ("a",)), "elk sea oak sun fox owl map")
    assert truncated_examples(student, [long])[0].source == "elk sea oak sun fox"


def test_epochs_determine_steps() -> None:
    assert PPOTraining(epochs=3, rollouts=100, batch=10).steps_over(1000) == 30
    assert PPOTraining(steps=7).steps_over(1000) == 7
