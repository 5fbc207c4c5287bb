"""Prices of models: costs by hand, and a list of one's own."""

import json
from pathlib import Path

import pytest

from jaxrag.evaluation.prices import PRICES, VARIABLE, Price, prices
from jaxrag.types import InputError


def test_cost_by_hand() -> None:
    # 2,000 tokens at 0.5 and 1,000 at 1.5 dollars a million: 0.001 + 0.0015
    assert Price(0.5, 1.5, "2024-02-16").of_question(
        {"prompt_tokens": 2000, "new_tokens": 1000}
    ) == pytest.approx(0.0025)


def test_an_own_list_adds_and_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert prices() == PRICES
    file = tmp_path / "prices.json"
    own = {"mine": {"prompt": 1, "new": 2, "date": "2026-01-01"}}
    own["gpt-3.5-turbo"] = {"prompt": 0, "new": 0, "date": "2026-01-01"}
    file.write_text(json.dumps(own))
    monkeypatch.setenv(VARIABLE, str(file))
    assert prices()["mine"] == Price(1.0, 2.0, "2026-01-01")
    assert prices()["gpt-3.5-turbo"].prompt == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no readable JSON"),
        ("[]", "not an object of models"),
        ('{"a": {"prompt": 1}}', "'a': give an object with the fields prompt, new, date"),
        ('{"a": {"prompt": -1, "new": 1, "date": ""}}', "'a': prompt is -1"),
        ('{"a": {"prompt": 1, "new": "1", "date": ""}}', "'a': new is '1'"),
        ('{"a": {"prompt": 1, "new": Infinity, "date": ""}}', "'a': new is inf"),
    ],
)
def test_invalid_lists_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(InputError, match=told):
        prices()
