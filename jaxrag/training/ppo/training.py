"""PPO for a text generator: each step samples texts, rewards them, and updates the policy.

Trainable RRR (Ma et al., 2023; docs/methods, "ERRR: PPO"). It runs on the first device of a
process: most time is spent in the reader that gives rewards. Several processes all make the same
update.
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

from jaxrag.engines.language_model import LanguageModel
from jaxrag.functional import ppo
from jaxrag.models.processes import is_first
from jaxrag.training.loop import Evaluation, fit
from jaxrag.training.ppo.rollouts import (
    PPOExample,
    Reward,
    RolloutFile,
    Rollouts,
    checked_rewards,
    mean_metrics,
    sample_texts,
    token_pairs,
    truncated_examples,
)
from jaxrag.training.ppo.step import Params, PPOState, PPOStep, PPOTraining, make_step, zero_value
from jaxrag.training.student.engine import engine
from jaxrag.training.student.student import Student


def update_policy(
    functions: PPOStep, settings: PPOTraining, state: PPOState, rollouts: Rollouts, at: int
) -> tuple[PPOState, dict[str, Any]]:
    """Passes over the texts, each in an order of its own."""
    updates: list[Mapping[str, Any]] = []
    beta = float(state.coefficient)
    explained = ppo.explained_variance(rollouts.values, rollouts.returns, where=rollouts.where)
    random = np.random.default_rng([settings.seed, at])
    passes = [random.permutation(settings.rollouts) for _ in range(settings.passes)]
    for rows in np.concatenate(passes).astype(np.int32).reshape(-1, settings.batch):
        state, metrics = functions.update(state, rollouts, rows)
        updates.append(metrics)
    jax.block_until_ready(state)
    means = {name: float(np.mean([float(one[name]) for one in updates])) for name in updates[0]}
    if np.isfinite(explained):
        means["explained_variance"] = float(explained)
    return state, means | {"updates": len(updates), "coefficient": beta}


def train(
    examples: Sequence[PPOExample],
    student: Student,
    reward: Reward,
    settings: PPOTraining,
    directory: Path,
    *,
    evaluate: Callable[[LanguageModel, int], Evaluation] | None = None,
) -> Params:
    """Trains a policy, whose parameters it returns; resumes an earlier call with the same bytes.

    metrics.jsonl gets a line for each step: the mean reward and the means of the records' numbers;
    "kl" (nats per token from the initial policy, before the step's updates); "surprisal" (mean
    -log pi of the sampled tokens, an estimate of the entropy); "coefficient" (beta of the next
    step); means over the step's updates of "loss", its parts, "approximate_kl" (from the sampling
    policy), "clip_fraction" and "norm"; "explained_variance" where it is defined; "tokens" and
    "ended" of the texts; "updates", how many were made; and seconds. rollouts.jsonl has every text.
    A step that was interrupted samples and rewards the same texts again, so the reward function
    should cache what is expensive.

    InputError if settings or data are invalid, ``directory`` is of another training, a reward or
    the loss is not finite, or ``reward`` raises it.

    Args:
      examples: questions to train on, with their sources.
      student: the initial policy, which the KL penalty refers to.
      directory: for checkpoints, metrics and texts.
      evaluate: (policy of a step as a language model, step) -> metrics of held-out questions.
    """
    examples = truncated_examples(student, examples)
    functions = make_step(student.module, settings)
    initial = {"policy": student.params, "value": zero_value(student.module)}
    initial = jax.tree.map(jnp.asarray, initial)
    file = RolloutFile(directory)

    def step(state: PPOState, numbers: np.ndarray, at: int) -> tuple[PPOState, dict[str, Any]]:
        began = time.monotonic()
        some = [examples[int(number)] for number in numbers]
        questions, sources = [one.question for one in some], [one.source for one in some]
        model, tokens = engine(student, state.params["policy"]), student.max_target
        texts = sample_texts(model, sources, tokens=tokens, seed=settings.seed, step=at)
        sampled = time.monotonic()
        rewards, records = reward(questions, texts)
        scores = checked_rewards(rewards, questions, at + 1)
        if is_first():
            file.write(at + 1, questions, texts, scores, records)
        rewarded = time.monotonic()
        pairs = token_pairs(student, sources, texts)
        logprobs, values = functions.score(state.params, pairs)
        reference, _ = functions.score(initial, pairs)
        rollouts = functions.advantages(
            state.coefficient, pairs, scores, logprobs, reference, values
        )
        state, kl_metrics = functions.control(state, rollouts)
        state, update_metrics = update_policy(functions, settings, state, rollouts, at)
        return state, {
            **mean_metrics(records),
            "reward": float(scores.mean()),
            **kl_metrics,
            **update_metrics,
            "tokens": float(np.mean([len(text.tokens) for text in texts])),
            "ended": float(np.mean([text.finish_reason == "end" for text in texts])),
            "write_seconds": round(sampled - began, 3),
            "reward_seconds": round(rewarded - sampled, 3),
            "update_seconds": round(time.monotonic() - rewarded, 3),
        }

    def policy(state: PPOState) -> LanguageModel:
        return engine(student, state.params["policy"])

    order = grain.MapDataset.range(len(examples)).seed(settings.seed).shuffle().repeat()
    state = fit(
        functions.begin(student.params),
        iter(order.batch(settings.rollouts).to_iter_dataset()),
        step,
        steps=settings.steps_over(len(examples)),
        directory=directory,
        what="training by PPO",
        save_every=settings.save_every,
        evaluate=(lambda state, at: evaluate(policy(state), at)) if evaluate else None,
        evaluate_every=settings.evaluate_every,
    )
    return state.params["policy"]
