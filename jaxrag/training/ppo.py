"""Training a text generator by PPO: it writes, is rewarded, and learns from that, step by step.

Trainable RRR (Ma et al., 2023; METHODS section 4.4). A step asks the policy about some questions,
has the texts rewarded, and goes over them a few times in batches.

It runs in one process and on its first device: most of a step is spent on the reader that rewards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxrag.engines.language_model import LanguageModel
from jaxrag.functional import ppo
from jaxrag.training.loop import Watched, fit
from jaxrag.training.ppo_rollouts import (
    Example,
    Reward,
    Rollouts,
    Texts,
    checked,
    fitted,
    means,
    sample,
    tokens_of,
)
from jaxrag.training.ppo_settings import Training
from jaxrag.training.ppo_step import Params, State, make_step, no_value
from jaxrag.training.students import Student, engine
from jaxrag.types import Generation, InputError


class _Order:
    """Numbers of questions in an order that the seed decides, without end; see `loop.Data`."""

    def __init__(self, questions: int, settings: Training) -> None:
        order = grain.MapDataset.range(questions).seed(settings.seed).shuffle().repeat()
        self._items = iter(order.batch(settings.rollouts).to_iter_dataset())

    def __next__(self) -> Any:
        return next(self._items)

    def get_state(self) -> Any:
        return self._items.get_state()

    def set_state(self, state: Any) -> None:
        self._items.set_state(state)


class Practice:
    """A training step: write, be rewarded, learn."""

    def __init__(
        self,
        examples: Sequence[Example],
        student: Student,
        reward: Reward,
        settings: Training,
        directory: Path,
    ) -> None:
        self._examples, self._student, self._reward = examples, student, reward
        self._settings, self._directory = settings, directory
        self.functions = make_step(student.module, settings)
        self._texts: Texts | None = None
        first = {"policy": student.params, "value": no_value(student.module)}
        self._first = jax.tree.map(jnp.asarray, first)

    def __call__(
        self, state: State, numbers: np.ndarray, at: int
    ) -> tuple[State, Mapping[str, Any]]:
        """Step ``at``, from 0, on the questions of these numbers."""
        began = time.monotonic()
        some = [self._examples[int(number)] for number in numbers]
        texts = self._write(state, some, at)
        wrote = time.monotonic()
        scores, figures = self._rewarded(some, texts, at)
        rewarded = time.monotonic()
        rollouts = self._rollouts(state, some, texts, scores)
        state, apart = self.functions.control(state, rollouts)
        state, more = self.learn(state, rollouts, at)
        lengths = [len(one.tokens) for one in texts]
        return state, {
            **figures,
            **apart,
            **more,
            "tokens": float(np.mean(lengths)),
            "ended": float(np.mean([one.finish_reason == "end" for one in texts])),
            "write_seconds": round(wrote - began, 3),
            "reward_seconds": round(rewarded - wrote, 3),
            "update_seconds": round(time.monotonic() - rewarded, 3),
        }

    def _write(self, state: State, some: Sequence[Example], at: int) -> list[Generation]:
        model = engine(self._student, state.params["policy"])
        sources = [one.source for one in some]
        settings, tokens = self._settings, self._student.max_target
        return sample(model, sources, tokens=tokens, seed=settings.seed, step=at)

    def _rewarded(
        self, some: Sequence[Example], texts: Sequence[Generation], at: int
    ) -> tuple[Float[np.ndarray, " b"], dict[str, float]]:
        questions = [one.question for one in some]
        rewards, records = self._reward(questions, texts)
        scores = checked(rewards, questions, at + 1)
        self._texts = self._texts or Texts(self._directory, at)
        self._texts.write(at + 1, questions, texts, scores, records)
        return scores, means(records) | {"reward": float(scores.mean())}

    def _rollouts(
        self,
        state: State,
        some: Sequence[Example],
        texts: Sequence[Generation],
        scores: Float[np.ndarray, " b"],
    ) -> Rollouts:
        pairs = tokens_of(self._student, [one.source for one in some], texts)
        logprobs, values = self.functions.look(state.params, pairs)
        reference, _ = self.functions.look(self._first, pairs)
        judge = self.functions.judge
        return judge(state.coefficient, pairs, scores, logprobs, reference, values)

    def learn(self, state: State, rollouts: Rollouts, at: int) -> tuple[State, dict[str, Any]]:
        """Goes over the texts, until all is done or the policy has moved too far."""
        settings, found = self._settings, []
        beta, bound = float(state.coefficient), settings.kl_bound
        explained = ppo.explained_variance(rollouts.values, rollouts.returns, where=rollouts.where)
        random = np.random.default_rng([settings.seed, at])
        for rows in _batches(settings, random):
            state, figures = self.functions.update(state, rollouts, rows)
            found.append(figures)
            if bound and not float(figures["approximate_kl"]) <= bound:
                break
        jax.block_until_ready(state)
        means_of = {name: float(np.mean([float(one[name]) for one in found])) for name in found[0]}
        if np.isfinite(explained):
            means_of["explained_variance"] = float(explained)
        return state, means_of | {"updates": len(found), "coefficient": beta}


def _batches(settings: Training, random: np.random.Generator) -> list[Int[np.ndarray, " b"]]:
    """Which texts each update learns from: every pass has them all, in another order."""
    passes = [random.permutation(settings.rollouts) for _ in range(settings.passes)]
    return list(np.concatenate(passes).astype(np.int32).reshape(-1, settings.batch))


def train(
    examples: Sequence[Example],
    student: Student,
    reward: Reward,
    settings: Training,
    directory: Path,
    *,
    watch: Callable[[LanguageModel, int], Watched] | None = None,
) -> Params:
    """Trains a policy; goes on where an earlier call in ``directory`` stopped, to the bit.

    metrics.jsonl gets a line for each step: mean reward and the means of what the records hold,
    "kl" (nats a token from the first policy, before the step's updates), "surprisal" (-log pi of
    the tokens that were drawn, whose mean is the entropy), "coefficient" (beta of the next step),
    the means over the step's updates of "loss", its parts, "approximate_kl" (from the policy that
    wrote), "clip_fraction" and "norm", "explained_variance" where it is defined, "tokens" and
    "ended" of the texts, "updates" that were begun, and seconds. Every text is in
    rollouts.jsonl. The reward function is expected to keep what it paid for: of a step that breaks
    off, the same texts are written once more.

    Args:
      examples: questions to train on, and what the policy reads of each.
      student: the policy that training begins with, and that it is to stay near to.
      reward: what texts are worth.
      settings: how.
      directory: for checkpoints, figures and texts.
      watch: (the policy of that step as a language model, step) -> figures of the questions held
        out.

    Returns:
      The policy's parameters.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; a reward or the loss is
        NaN; more than one process; or what ``reward`` raises.
    """
    if jax.process_count() > 1:
        raise InputError("PPO asks a reader as it goes: run it in one process.")
    examples = fitted(student, examples)
    practice = Practice(examples, student, reward, settings, directory)

    def watched(state: State, number: int) -> Watched:
        assert watch is not None
        return watch(engine(student, state.params["policy"]), number)

    state = fit(
        practice.functions.begin(student.params),
        _Order(len(examples), settings),
        practice,
        steps=settings.steps_over(len(examples)),
        directory=directory,
        what="training by PPO",
        save_every=settings.save_every,
        watch=watched if watch else None,
        watch_every=settings.watch_every,
    )
    return state.params["policy"]
