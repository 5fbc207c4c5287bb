"""Packed calls: chunks of any rows, several of a row if need be."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.engines.local import prefill
from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.local.prefill import Prefill, PrefillJob, Sizes
from jaxrag.types import Message
from tests.engines.tiny_model import CHATS, load_local
from tests.versions import sums_alike_on_cpus

LONG = [
    (*chat[:-1], Message("user", f"{i} {chat[-1].content} " * 4)) for i, chat in enumerate(CHATS)
]


def calls_of_prefill(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, ...]]:
    """Filled with tokens, positions and rows of the chunks of each call."""
    calls: list[tuple[np.ndarray, ...]] = []
    real = prefill.extend

    def extend(decoder: Any, params: Any, cache: Any, *chunks: Any) -> Any:
        tokens, starts, _, rows = chunks
        rows = np.arange(len(tokens)) if rows is None else rows
        calls.append((np.array(tokens), np.array(starts), np.array(rows)))
        return real(decoder, params, cache, *chunks)

    monkeypatch.setattr(prefill, "extend", extend)
    return calls


def unpacked(monkeypatch: pytest.MonkeyPatch, directory: Path, **sizes: Any) -> LocalModel:
    """A model whose calls have one chunk of each row."""
    with monkeypatch.context() as patch:
        patch.setattr(Sizes, "packed_chunks", property(lambda self: 0))
        return load_local(directory, **sizes)


@sums_alike_on_cpus
@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize("asked", [LONG[:1], LONG[:9], [*LONG, *CHATS]], ids=len)
def test_packing_changes_no_bit_and_takes_fewer_calls(directory, monkeypatch, asked) -> None:
    """Eight chunks of 32 tokens in a call either way."""
    models = load_local(directory, chunk=32), unpacked(monkeypatch, directory, chunk=32)
    assert [model._prefill.packed for model in models] == [8, 0]
    calls, found, count = calls_of_prefill(monkeypatch), [], []
    for model in models:
        calls.clear()
        scores = model.logprob(asked, ["Oslo, or so they say"] * len(asked))
        first = model.generate(asked, max_new_tokens=1)
        found.append(([row.tolist() for row in scores], first))
        count.append(len(calls))
    assert found[0] == found[1]
    assert count[0] < count[1]


@sums_alike_on_cpus
@pytest.mark.usefixtures("unprobed")
def test_prompts_wait_for_a_free_row(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows in all, both taken when the last prompt is read to its end."""
    settings: dict[str, Any] = {"prefill_rows": 2, "rows": 2, "chunk": 32}
    small = load_local(directory, **settings)
    calls = calls_of_prefill(monkeypatch)
    found = small.generate(LONG[:5], max_new_tokens=24)
    assert max(len(set(rows.tolist())) for _, _, rows in calls) == 2
    plain = unpacked(monkeypatch, directory, **settings).generate(LONG[:5], max_new_tokens=24)
    for one, other in zip(found, plain, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def network(directory: Path) -> Any:
    return load_local(directory)._network


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    rows=st.integers(1, 3),
)
def test_every_token_is_read_once_and_no_chunk_idles(network, lengths, rows) -> None:
    """Without shared prefixes; a row is found again by what its first chunk holds."""
    chunk, packed = 8, 4
    jobs = [PrefillJob(tuple([10 + i] * n), n - 1, 128, False) for i, n in enumerate(lengths)]
    reader = Prefill(network._replace(shared_bytes=0), rows=rows, chunk=chunk, packed=packed)
    with pytest.MonkeyPatch.context() as patch:
        calls, steps = calls_of_prefill(patch), []
        for _, group in reader.readings(jobs):
            while not group.over:
                promised = group.prepare()
                steps.append(group.step())
                assert promised == [one.number for one in steps[-1].rows if one.done]
    seen: dict[int, list[int]] = {i: [] for i in range(len(jobs))}
    waiting = sum(-(-n // chunk) for n in lengths)
    for (tokens, starts, of_row), step in zip(calls, steps, strict=True):
        used = 0
        for read in step.rows:
            for position in range(read.start, read.end):
                at, token = step.index(read, position)
                assert tokens[at, token] == 10 + read.number
                assert (of_row[at], starts[at] + token) == (read.row, position)
                used = max(used, at + 1)
            seen[read.number] += range(read.start, read.end)
        # a chunk idles only if all rows have been read to their end
        assert used == min(packed, waiting) or all(read.done for read in step.rows)
        waiting -= used
        for array in (tokens, starts, of_row):  # idle chunks repeat the last one
            assert all(np.array_equal(one, array[used - 1]) for one in array[used:])
    assert seen == {i: list(range(n)) for i, n in enumerate(lengths)}


def test_nested_prefixes_are_read_once(network: Any) -> None:
    """Four chunks of six sequences, three more of four of them, then the ends."""
    reader, read = Prefill(network, rows=4, chunk=8, packed=8), []
    a, b = (1,) * 32, (2,) * 24  # four chunks of all six, three more of four
    ends = [(3,) * 16, (4,) * 16]
    texts = [a + ends[0], a + ends[1], *(a + b + end for end in ((5,), (6,), (7,), (8,)))]
    jobs = [PrefillJob(text, len(text) - 1, 128, False) for text in texts]
    for _, group in reader.readings(jobs):
        while not group.over:
            read += group.step().rows
    assert sum(one.end - one.start for one in read) == 2 * 16 + 4
    assert sorted(key.chunks for key in reader._blocks) == list(range(1, 8))


def test_what_one_call_reads_is_not_split_for_its_prefix(network, monkeypatch) -> None:
    reader, calls = Prefill(network, rows=2, chunk=8, packed=8), calls_of_prefill(monkeypatch)
    texts = [(1,) * 8 + (2,) * 9, (1,) * 8 + (3,) * 9]  # six chunks, one of them twice
    jobs = [PrefillJob(text, len(text) - 1, 128, False) for text in texts]
    hidden = [group.step().hidden for _, group in reader.readings(jobs)]
    assert len(calls) == 1 and not reader._blocks
    jax.block_until_ready(hidden)


@pytest.mark.usefixtures("unprobed")
def test_prompts_of_all_usual_lengths_share_their_programs(model: LocalModel) -> None:
    """A packed call reads only the slots in use, so that caches may be longer than needed."""
    assert {model._slots(length, 48) for length in (1, 100, 300, 464)} == {512}
    assert model._slots(465, 48) == 1024
    assert Sizes.fixed().slots(100, 28) == 128
