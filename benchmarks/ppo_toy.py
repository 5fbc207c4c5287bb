"""A small task on which PPO can raise the reward: to name the animal of a question.

A question holds a few words, one of them an animal. The policy is a tiny T5 with random weights
that has learned to write some words of the question, whichever; a text is worth the share of its
words that are the question's animal. So a warm-up by examples alone comes to about one in as many
words as a question has, and the best that can be had is 1.
"""

from __future__ import annotations

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

from jaxrag.training.ppo_rollouts import Example, written
from jaxrag.training.students import NewT5, Pairs, Student, encode, new_t5, target_logprobs
from jaxrag.types import Generation, InputError, Question

ANIMALS, OTHERS = ("fox", "owl", "bee", "elk"), ("oak", "sea", "map", "sun")
WORDS = (*ANIMALS, *OTHERS)
SHOWN, TOLD = 3, 2
"""Words of a question, and of an answer in the warm-up."""


def examples(count: int, *, seed: int) -> list[Example]:
    """Questions such as "oak fox sea", whose answer is "fox"; drawn with replacement."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        animal = str(random.choice(ANIMALS))
        words = [animal, *random.choice(OTHERS, SHOWN - 1, replace=False)]
        text = " ".join(random.permutation(words))
        found.append(Example(Question(f"toy{number}", text, (animal,)), text))
    return found


def reward(
    questions: Sequence[Question], written: Sequence[Generation]
) -> tuple[list[float], list[Mapping[str, Any]]]:
    """The share of a text's words that are the animal; 0 of no words."""
    rewards, records = [], []
    for question, one in zip(questions, written, strict=True):
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

    def loss(params: Any, pairs: Pairs) -> jax.Array:
        logprobs, _ = target_logprobs(student.module, params, pairs)
        return -jnp.where(written(pairs), logprobs, 0.0).sum() / written(pairs).sum()

    def step(carry: Any, pairs: Pairs) -> Any:
        params, state = carry
        value, slopes = jax.value_and_grad(loss)(params, pairs)
        updates, state = optimiser.update(slopes, state, params)
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


def _copies(student: Student, count: int, seed: int) -> Pairs:
    """Questions with some of their words, in any order, as what is to be written."""
    random = np.random.default_rng([seed, 1])
    some = examples(count, seed=seed + 1)
    targets = [" ".join(random.choice(one.source.split(), TOLD)) for one in some]
    return encode(student, [one.source for one in some], targets)
