"""Programs of other shapes are used only where a probe shows the same bits."""

import functools
from typing import Any

import numpy as np
import pytest

from jaxrag.engines.local import decoding
from jaxrag.engines.local import engine as local
from jaxrag.engines.local import shape_invariance as trial
from jaxrag.engines.local.decoding import MISSED_STEPS, RowCounts
from tests.engines.local.decoding_rows import rows_of_decoding
from tests.engines.tiny_model import CHATS, load_local


@pytest.mark.usefixtures("unprobed", "fewer_rows_at_once")
def test_the_last_answers_are_decoded_in_fewer_rows(directory, answers, monkeypatch) -> None:
    """They end at different times; of real sizes, even the bits are equal (test_smollm2)."""
    rows, stops = rows_of_decoding(monkeypatch), [a.text[1:3] for a in answers[:4]]
    settings: dict[str, Any] = {"prefill_rows": 4, "rows": 16}
    found = {}
    for few in (16, 4):
        monkeypatch.setattr(local, "tail_rows", lambda *_, few=few: few)
        model = load_local(directory, **settings)
        rows.clear()
        found[few] = model.generate([*CHATS, *CHATS], max_new_tokens=12, stop=stops)
        assert set(rows) == {16, few}
        assert rows == sorted(rows, reverse=True)
        rows.clear()
        three = model.generate(CHATS[:3], max_new_tokens=12, stop=stops)
        assert [one.tokens for one in three] == [one.tokens for one in found[16][:3]]
        assert set(rows) == {few}
    for one, other in zip(found[4], found[16], strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("unprobed")
def test_fewer_rows_are_used_once_they_would_have_saved_enough_steps(model, directory, monkeypatch):
    prompts = ["The cat", "The dog", "The cow"]
    wanted = model.generate(prompts, max_new_tokens=12)
    assert [len(one.tokens) for one in wanted] == [12, 12, 12]  # 1 by prefill, 11 steps
    monkeypatch.setattr(local, "tail_rows", lambda *_: 2)
    monkeypatch.setattr(decoding, "MISSED_STEPS", 20)
    other = load_local(directory, prefill_rows=2, rows=4)
    used, found = rows_of_decoding(monkeypatch), []
    for count in (3, 2, 2, 2):  # two answers miss 11 steps in four rows, then 22
        used.clear()
        texts = other.generate(prompts[:count], max_new_tokens=12)
        assert [one.tokens for one in texts] == [one.tokens for one in wanted[:count]]
        found.append({*used})
    assert found == [{4}, {4}, {4}, {2}]


def test_the_number_of_rows_follows_what_is_compiled() -> None:
    counts = RowCounts((8, 32))
    assert counts.choose(40) == 32 and counts.choose(5) == 32  # 8 would have to be compiled
    counts.record(32, 5, MISSED_STEPS - 1)
    counts.record(32, 9, 1000)  # 8 rows do not hold 9 answers
    assert counts.choose(5) == 32
    counts.record(32, 8, 1)
    assert counts.choose(5) == 8 and counts.choose(9) == 32
    few = RowCounts((8, 32))
    assert few.choose(3) == 8 and few.choose(9) == 32 and few.choose(8) == 8
    assert RowCounts((32,)).choose(3) == 32


def test_rows_are_not_reduced_if_bits_would_change(model, monkeypatch) -> None:
    network, real = model._network, trial.decode

    def found() -> int:
        return trial.tail_rows(network.decoder, network.params, 32, 8)

    def decode(*args: Any, by_rows: bool, **settings: Any) -> Any:
        """As if a row's log-probabilities depended on how many rows there are, or on nothing."""
        cache, rows, tokens, logprobs = real(*args, **settings)
        return cache, rows, 0 * tokens, 0 * logprobs + (len(tokens) if by_rows else 0)

    for by_rows, wanted in ((True, 32), (False, 8)):
        monkeypatch.setattr(trial, "decode", functools.partial(decode, by_rows=by_rows))
        assert found() == wanted
