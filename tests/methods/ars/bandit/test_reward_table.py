"""Reading a reward table: what is whole is read, and what is not is refused with one message."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.methods.ars.bandit.reward_table import read_table
from jaxrag.types import InputError
from tests.methods.ars.bandit import small_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small_table.write(tmp_path / "boolq", questions=6, trained=4)


def test_a_table_is_read_in_the_order_of_its_lines(path: Path) -> None:
    table = read_table(path, arms=3)
    contexts, right = small_table.contexts_and_scores(6, 0)
    assert (table.name, table.arms, table.config["encoder"]) == ("boolq", 3, "encoder A")
    assert table.ids == ("q0", "q1", "q2", "q3", "q4", "q5")
    assert table.train.tolist() == [True, True, True, True, False, False]
    np.testing.assert_array_equal(table.contexts, contexts)
    for name in ("base", "correct", "exact_match", "f1"):
        np.testing.assert_array_equal(getattr(table, name), right)
    assert read_table(path).fingerprint == table.fingerprint
    (path / "rewards.jsonl").write_text((path / "rewards.jsonl").read_text().replace("1.0", "0.5"))
    assert read_table(path).fingerprint != table.fingerprint


def line(number: int, **changes: Any) -> Callable[[Path], None]:
    """Changes fields of a line, counted from 1."""

    def break_it(path: Path) -> None:
        file = path / "rewards.jsonl"
        lines = [json.loads(text) for text in file.read_text().splitlines()]
        lines[number - 1] |= changes
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))

    return break_it


def parts(part: str) -> Callable[[Path], None]:
    def break_it(path: Path) -> None:
        for number in range(1, 7):
            line(number, part=part)(path)

    return break_it


def contexts(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def break_it(path: Path) -> None:
        np.save(path / "contexts.npy", change(np.load(path / "contexts.npy")))

    return break_it


def last_line_gone(path: Path) -> None:
    file = path / "rewards.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


def lines_reversed(path: Path) -> None:
    file = path / "rewards.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[::-1]))


def config(text: str) -> Callable[[Path], None]:
    return lambda path: (path / "config.json").write_text(text) and None


def not_a_number(rows: np.ndarray) -> np.ndarray:
    rows[2, 1] = np.nan
    return rows


BAD = {
    "config of something else": (config('{"config": {}}'), r"config\.json is not the .*table"),
    "a line missing": (last_line_gone, r"not finished: rewards\.jsonl has 5 of 6 questions"),
    "NaN": (line(3, base=[0.0, float("nan"), 1.0]), r"line 3: field .base. for K = 2 is nan"),
    "text": (line(2, correct=["1", 0, 0]), r"line 2: field .correct. for K = 1 is '1'"),
    "a value short": (
        line(4, exact_match=[1.0, 0.0]),
        r"line 4: .*exact_match. is 2 values.*3 rewr",
    ),
    "other part": (line(5, part="dev"), r"line 5: .*dev"),
    "one id twice": (line(5, question_id="q1"), r"line 5: .*'q1' for the second time"),
    "another order": (lines_reversed, r"in another order \(hash .* than contexts\.npy \(hash"),
    "no training part": (parts("test"), r"no question whose part is 'train'"),
    "contexts of others": (contexts(lambda rows: rows[:5]), r"shape \(5, 4\).*6 questions"),
    "contexts without rows": (contexts(lambda rows: rows[0]), r"shape \(4,\)"),
    "whole numbers": (contexts(lambda rows: rows.astype(int)), r"int64"),
    "NaN context": (contexts(not_a_number), r"context of question 3 is not all finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_incomplete_tables_are_refused(name: str, path: Path) -> None:
    break_it, message = BAD[name]
    break_it(path)
    with pytest.raises(InputError, match=message):
        read_table(path, arms=3)
