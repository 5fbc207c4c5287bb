"""PPO on a small task, from random weights: name the animal in a question. Minutes on 2 CPU cores.

    python -m benchmarks.ppo_toy [--seeds=3] [--workdir=runs/toy]

A question holds a few words, one of them an animal. The policy is a tiny T5 with random weights
that has been trained to write random words of the question; the reward of a text is the share of
its words that are the question's animal. After this warm-up the reward is about 1 / words of a
question; the maximum is 1. The same command continues an interrupted training;
`jaxrag report` draws its directory.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jaxrag.core import jsonl
from jaxrag.core.checks import check_limits
from jaxrag.methods.errr.ppo.figures import TABLE, evaluation_of, over_seeds
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.loading import describe_job
from jaxrag.training.ppo import training as ppo
from jaxrag.training.ppo.rollouts import PPOExample, target_mask
from jaxrag.training.ppo.step import KlControl, PPOTraining
from jaxrag.training.student.checkpoint import new_t5, write_student
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import NewT5, Student, TokenPairs, encode
from jaxrag.types import Generation, InputError, Question

ANIMALS, OTHERS = ("fox", "owl", "bee", "elk"), ("oak", "sea", "map", "sun")
WORDS = (*ANIMALS, *OTHERS)
SHOWN, TOLD = 3, 2
"""Words of a question, and of an answer in the warm-up."""

LEARNS = PPOTraining(
    steps=40,
    rollouts=128,
    batch=32,
    passes=4,
    discount=1.0,
    learning_rate=5e-4,
    value_learning_rate=1e-2,
    clip_norm=1.0,
    kl=KlControl(0.01, 1.0),
    save_every=20,
    evaluate_every=2,
)


def examples(count: int, *, seed: int) -> list[PPOExample]:
    """Questions such as "oak fox sea", whose answer is "fox"; drawn with replacement."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        animal = str(random.choice(ANIMALS))
        words = [animal, *random.choice(OTHERS, SHOWN - 1, replace=False)]
        text = " ".join(random.permutation(words))
        found.append(PPOExample(Question(f"toy{number}", text, (animal,)), text))
    return found


def reward(
    questions: Sequence[Question], texts: Sequence[Generation]
) -> tuple[list[float], list[Mapping[str, Any]]]:
    """The share of a text's words that are the animal; 0 of no words."""
    rewards, records = [], []
    for question, one in zip(questions, texts, strict=True):
        words, (animal,) = one.text.split(), question.answers
        rewards.append(words.count(animal) / len(words) if words else 0.0)
        records.append({"words": len(words)})
    return rewards, records


def tokenizer(directory: Path) -> Path:
    """Writes a tokenizer of whole words."""
    names = ("<pad>", "</s>", "<unk>", *WORDS)
    words = models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(directory)
    return directory


def warmed_up(
    directory: Path, *, seed: int = 0, steps: int = 300, batch: int = 64, rate: float = 3e-3
) -> Student:
    """A tiny T5 that writes words of the question, drawn at random.

    Args:
      directory: for the tokenizer.
      seed: of the weights and of the draws.
      steps, batch, rate: of Adam.

    Raises:
      InputError: it has learned nothing.
    """
    sizes = NewT5(str(tokenizer(directory)), width=32, inner=64, heads=2, layers=1, seed=seed)
    student = new_t5(sizes, max_source=SHOWN + 1, max_target=TOLD + 1, dtype="float32")
    optimiser = optax.adam(rate)

    def loss(params: Any, pairs: TokenPairs) -> jax.Array:
        logprobs, _ = target_logprobs(student.module, params, pairs)
        return -jnp.where(target_mask(pairs), logprobs, 0.0).sum() / target_mask(pairs).sum()

    def step(carry: Any, pairs: TokenPairs) -> Any:
        params, state = carry
        value, gradients = jax.value_and_grad(loss)(params, pairs)
        updates, state = optimiser.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), value

    pairs = _copies(student, steps * batch, seed)
    parts = jax.tree.map(lambda array: array.reshape(steps, batch, *array.shape[1:]), pairs)
    carry = student.params, optimiser.init(student.params)
    (params, _), losses = jax.jit(lambda c, p: jax.lax.scan(step, c, p))(carry, parts)
    if not losses[-1] < losses[0]:
        raise InputError(
            f"The warm-up went from loss {losses[0]:.4g} to {losses[-1]:.4g}: it learned nothing. "
            "Take more steps or a lower rate."
        )
    return dataclasses.replace(student, params=params)


def _copies(student: Student, count: int, seed: int) -> TokenPairs:
    """Questions, each with some of its words in random order as the target."""
    random = np.random.default_rng([seed, 1])
    some = examples(count, seed=seed + 1)
    targets = [" ".join(random.choice(one.source.split(), TOLD)) for one in some]
    return encode(student, [one.source for one in some], targets)


@dataclasses.dataclass(frozen=True)
class TrainToy:
    """A training on this task.

    Attributes:
      training: PPO's settings; its seed also draws the questions and the initial weights.
      questions, held_out: numbers of questions to train on, and of others to evaluate.
      warmup: steps of supervised training before PPO.
      seeds: number of trainings, with seeds from ``training.seed`` on; if more than one, each has a
        directory of its own, and curves and table are over all.
    """

    training: PPOTraining = LEARNS
    questions: int = 512
    held_out: int = 200
    warmup: int = 300
    seeds: int = 1

    def __post_init__(self) -> None:
        if min(self.questions, self.held_out, self.warmup) < 1:
            raise InputError(
                f"questions is {self.questions}, held_out {self.held_out} and warmup "
                f"{self.warmup}; each is to be at least 1."
            )
        check_limits(seeds=self.seeds, evaluate_every=self.training.evaluate_every)

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains, or continues a training; returns the path of the policy, or of all seeds.

        Raises:
          InputError: ``workdir`` is another job's, or the loss is NaN.
        """
        return trained(over_seeds(self, workdir, _once))


def _once(job: TrainToy, workdir: Path) -> Path:
    with job_directory(workdir, {"training": describe_job(job)}) as directory:
        seed, count = job.training.seed, job.questions
        student = warmed_up(directory / "tokenizer", seed=seed, steps=job.warmup)
        drawn = examples(count + job.held_out, seed=seed + 2)
        evaluate = evaluation_of(drawn[count:], reward, tokens=student.max_target)
        params = ppo.train(
            drawn[:count], student, reward, job.training, directory, evaluate=evaluate
        )
        return write_student(directory / "optimizer", student, params)


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO on a small task.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workdir", default="runs/toy")
    given = parser.parse_args()
    TrainToy(seeds=given.seeds).execute(given.workdir)
    for row in jsonl.read(Path(given.workdir) / TABLE, key="figure"):
        if row["figure"] == "reward":
            before, after = ("{:.3f} [{:.3f}, {:.3f}]".format(*row[k]) for k in ("before", "after"))
            print(f"reward before {before}, after {after}, {row['seeds']} seeds")


if __name__ == "__main__":
    main()
