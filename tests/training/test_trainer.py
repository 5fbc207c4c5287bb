"""What all trainings do alike: the order of their data, their number of steps."""

import json
from typing import Any

import numpy as np
import pytest

from jaxrag.training.trainer import TrainingSettings, shuffled_batches
from jaxrag.types import InputError

EXAMPLES = [*range(16)]


def batches(seed: int = 0, **more: Any) -> Any:
    return shuffled_batches(EXAMPLES, 8, seed=seed, name="numbers", **more)


def orders(data: Any, count: int = 4) -> list[list[int]]:
    return [np.asarray(next(data)).tolist() for _ in range(count)]


@pytest.mark.parametrize("drawn", [False, True])
def test_the_order_depends_on_the_seed_and_resumes(drawn: bool) -> None:
    """With what is drawn of each example, which differs from epoch to epoch."""
    more = {"draw": lambda one, random: 100 * one + int(random.integers(100))} if drawn else {}
    found = orders(batches(**more))
    assert found == orders(batches(**more)) != orders(batches(1, **more))
    first, second = ([*found[i], *found[i + 1]] for i in (0, 2))
    if drawn:
        assert sorted(x // 100 for x in first) == EXAMPLES and sorted(first) != sorted(second)
    else:
        assert sorted(first) == sorted(second) == EXAMPLES and first != second
    data, rest = batches(**more), batches(**more)
    next(data)
    rest.set_state(json.loads(json.dumps(data.get_state())))
    assert orders(rest, 3) == found[1:]


def test_examples_are_collated() -> None:
    assert next(batches(collate=sorted)) == sorted(orders(batches(), 1)[0])


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(InputError, match="16 numbers to train on, fewer than a batch of 17"):
        shuffled_batches(EXAMPLES, 17, seed=0, name="numbers")


def test_epochs_determine_steps() -> None:
    # 3 epochs of 10 examples in batches of 4: 7.5 steps, to the even
    assert TrainingSettings(epochs=3, batch=4).steps_over(10) == 8
    assert TrainingSettings(epochs=0.01, batch=4).steps_over(10) == 1
    assert TrainingSettings(steps=5).steps_over(10) == 5
