"""Prefill, decoding and scoring against whole forward passes of the reference."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from jaxrag.models.cache import copy_in, copy_out, empty_cache, place
from jaxrag.models.decoder import network
from jaxrag.models.decoder.checkpoint import parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.decoding import (
    STEPS,
    DecodingLimits,
    DecodingRows,
    decode,
    extend,
    next_token,
    score,
)
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sampling import TokenSampling
from tests.models.decoder.reference import CONFIGS, random_tensors, reference_logits

CONFIG = CONFIGS["qwen3"]
DECODER = Decoder(read_decoder_config(CONFIG, source="test"))
TENSORS = random_tensors(parameter_shapes(DECODER))
PARAMS = unflatten_dict({k: jnp.asarray(v) for k, v in TENSORS.items()}, sep=".")
CHUNK, SLOTS = 4, 32
PROMPTS = [[5, 17, 3, 96, 41, 41, 8, 60, 2], [9, 9, 1], [50, 51, 52, 53]]
LENGTHS = np.array([len(prompt) for prompt in PROMPTS], np.int32)
GREEDY = TokenSampling(np.float32(0), np.zeros(3, np.uint32), np.arange(3, dtype=np.uint32))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def prefill(prompts: list[list[int]] = PROMPTS) -> tuple[np.ndarray, Any]:
    """Hidden states [b t d] and cache of prompts padded at the end with token 77."""
    tokens = np.full((len(prompts), 3 * CHUNK), 77, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    cache, parts = empty_cache(DECODER.config, len(prompts), SLOTS, jnp.float32), []
    for start in range(0, tokens.shape[1], CHUNK):
        part = tokens[:, start : start + CHUNK]
        hidden, cache = extend(DECODER, PARAMS, cache, part, np.int32(start))
        parts.append(hidden)
    return np.concatenate(parts, axis=1), cache


def start(
    hidden: np.ndarray, ends: np.ndarray, sampling: TokenSampling
) -> tuple[DecodingRows, Any]:
    """The first new token of each row, and its log-probability."""
    last = hidden[np.arange(3), LENGTHS - 1]
    token, logprob = next_token(DECODER, PARAMS, last, np.zeros(3, np.int32), sampling)
    return DecodingRows(token, LENGTHS, np.ones(3, np.int32), ends[np.asarray(token)]), logprob


def run(count: int, ends: list[int], sampling: TokenSampling = GREEDY, enough: int = 3) -> Any:
    """Tokens and log-probabilities of each row, at most ``count``, and which have finished."""
    hidden, cache = prefill()
    is_end = np.isin(np.arange(CONFIG["vocab_size"]), ends)
    rows, logprob = start(hidden, is_end, sampling)
    tokens = [[int(token)] for token in rows.token]
    logprobs = [[float(value)] for value in logprob]
    limits = DecodingLimits(np.int32(count), np.int32(STEPS), np.int32(enough), is_end)
    while np.asarray(rows.finished).sum() < enough:
        made = np.asarray(rows.made)
        cache, rows, new, values = decode(DECODER, PARAMS, cache, rows, limits, sampling)
        for row, grown in enumerate(np.asarray(rows.made) - made):
            tokens[row] += np.asarray(new)[row, :grown].tolist()
            logprobs[row] += np.asarray(values)[row, :grown].tolist()
    return tokens, logprobs, np.asarray(rows.finished)


@pytest.fixture(scope="module")
def greedy() -> tuple[np.ndarray, np.ndarray]:
    """What the reference makes of the prompts, 12 tokens each, with log-probabilities."""
    rows = []
    for prompt in PROMPTS:
        tokens, logprobs = list(prompt), []
        for _ in range(12):
            values = log_softmax(reference_logits(CONFIG, TENSORS, np.array(tokens))[-1])
            tokens.append(int(values.argmax()))
            logprobs.append(values.max())
        rows.append((tokens[-12:], logprobs))
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def test_greedy_decoding_equals_the_reference(greedy: Any) -> None:
    tokens, logprobs, finished = run(12, [])
    np.testing.assert_array_equal(tokens, greedy[0])
    np.testing.assert_allclose(logprobs, greedy[1], atol=2e-5, rtol=0)
    assert finished.all()


def test_a_row_stops_at_its_end_token_and_others_continue(greedy: Any) -> None:
    end = int(greedy[0][0, 3])
    tokens, _, _ = run(12, [end])
    for row in range(3):
        met = np.flatnonzero(greedy[0][row] == end)
        until = met[0] + 1 if len(met) else 12
        np.testing.assert_array_equal(tokens[row], greedy[0][row, :until])
    assert len({len(row) for row in tokens}) > 1


def test_decoding_returns_once_enough_rows_have_finished(greedy: Any) -> None:
    end = int(greedy[0][0, 2])  # met by row 0 in the third token, by no other row before
    assert not np.isin(end, greedy[0][1:, :3])
    tokens, _, finished = run(12, [end], enough=1)
    assert finished.tolist() == [True, False, False]
    np.testing.assert_array_equal(tokens, greedy[0][:, :3])


def test_a_moved_row_continues_identically(greedy: Any) -> None:
    hidden, cache = prefill()
    rows, _ = start(hidden, np.zeros(CONFIG["vocab_size"], bool), GREEDY)
    numbers = np.array([4, 1, 0], np.int32)
    wide = empty_cache(DECODER.config, 5, SLOTS - 8, jnp.float32)  # fewer slots, more rows
    wide = jax.tree.map(lambda a: a + 7, wide)  # what earlier rows left behind
    sources = np.arange(3, dtype=np.int32)
    wide = place(wide, cache, sources, numbers, np.int32(2))  # the third is a filler
    moved = DecodingRows(*(np.zeros(5, np.asarray(a).dtype) for a in rows))
    for old, new in ((0, 4), (1, 1)):
        for to, source in zip(moved, rows, strict=True):
            to[new] = np.asarray(source)[old]
    moved = moved._replace(finished=np.array([True, False, True, True, False]))
    limits = DecodingLimits(
        np.int32(12), np.int32(8), np.int32(5), np.zeros(CONFIG["vocab_size"], bool)
    )
    sampling = GREEDY._replace(seeds=np.zeros(5, np.uint32), rows=np.zeros(5, np.uint32))
    _, _, tokens, _ = decode(DECODER, PARAMS, wide, moved, limits, sampling)
    np.testing.assert_array_equal(np.asarray(tokens)[[4, 1]], greedy[0][:2, 1:9])


def test_sampled_logprobs_are_not_scaled_by_temperature() -> None:
    sampling = GREEDY._replace(temperature=np.float32(3.0), seeds=np.ones(3, np.uint32))
    tokens, logprobs, _ = run(6, [], sampling)
    for row, prompt in enumerate(PROMPTS):
        whole = np.array(prompt + tokens[row])
        values = log_softmax(reference_logits(CONFIG, TENSORS, whole))[len(prompt) - 1 : -1]
        np.testing.assert_allclose(
            logprobs[row], values[np.arange(6), tokens[row]], atol=2e-5, rtol=0
        )


def test_draws_follow_the_tempered_distribution() -> None:
    n = 4000
    hidden = np.repeat(prefill()[0][:1, 8], n, axis=0)
    seeds, rows = np.full(n, 3, np.uint32), np.arange(n, dtype=np.uint32)
    sampling = TokenSampling(np.float32(2.5), seeds, rows)
    drawn, _ = next_token(DECODER, PARAMS, hidden, np.zeros(n, np.int32), sampling)
    logits = reference_logits(CONFIG, TENSORS, np.array(PROMPTS[0]))[-1]
    wanted = np.exp(log_softmax(logits / 2.5))
    found = np.bincount(np.asarray(drawn), minlength=len(wanted)) / n
    # a share's standard deviation is sqrt(p (1 - p) / n) <= 0.008; five of them
    assert np.abs(found - wanted).max() < 5 * np.sqrt(wanted * (1 - wanted) / n).max()


def test_a_draw_depends_on_seed_row_and_step_only() -> None:
    hidden = prefill()[0][:, 2]

    def draws(seed: int | list[int], rows: list[int], step: int) -> list[int]:
        seeds = np.broadcast_to(np.array(seed, np.uint32), 3)
        sampling = TokenSampling(np.float32(4.0), seeds, np.array(rows, np.uint32))
        return np.asarray(
            next_token(DECODER, PARAMS, hidden, np.full(3, step), sampling)[0]
        ).tolist()

    base = [draws(seed, [7, 8, 9], 1) for seed in range(8)]
    assert base == [draws(seed, [7, 8, 9], 1) for seed in range(8)]
    assert [d[1] for d in base] == [draws(seed, [1, 8, 2], 1)[1] for seed in range(8)]
    assert base != [draws(seed, [8, 9, 10], 1) for seed in range(8)]
    assert base != [draws(seed, [7, 8, 9], 2) for seed in range(8)]
    assert len({tuple(d) for d in base}) > 1
    # each row has a seed of its own
    assert draws([5, 0, 2], [7, 8, 9], 1) == [base[5][0], base[0][1], base[2][2]]


def test_scores_equal_the_reference() -> None:
    hidden, _ = prefill()
    prompt = np.array(PROMPTS[0])
    wanted = log_softmax(reference_logits(CONFIG, TENSORS, prompt))[np.arange(8), prompt[1:]]
    found = score(DECODER, PARAMS, hidden[0, :8], prompt[1:])
    np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)


def test_other_rows_and_later_slots_change_nothing() -> None:
    hidden, cache = prefill()
    other, other_cache = prefill([[1, 2, 3, 4, 5, 6, 7], PROMPTS[1], [96] * 11])
    np.testing.assert_array_equal(hidden[1, :3], other[1, :3])
    for old, new in zip(jax.tree.leaves(cache), jax.tree.leaves(other_cache), strict=True):
        np.testing.assert_array_equal(old[1, :, :3], new[1, :, :3])


def test_a_copied_prefix_is_bit_identical() -> None:
    whole, cache = prefill([[*PROMPTS[2], 60, 61], [*PROMPTS[2], 70], [3, 4, 5, 6]])
    block = copy_out(cache, np.int32(0), np.int32(0), length=CHUNK)
    fresh = empty_cache(DECODER.config, 3, SLOTS, jnp.float32)
    filled = copy_in(fresh, block, np.int32(0), np.int32(0))
    filled = copy_in(filled, block, np.int32(1), np.int32(0))
    tokens = np.array([[60, 61, 77, 77], [70, 77, 77, 77], [77] * 4], np.int32)
    hidden, _ = extend(DECODER, PARAMS, filled, tokens, np.int32(CHUNK))
    np.testing.assert_array_equal(hidden[0, :2], whole[0, 4:6])
    np.testing.assert_array_equal(hidden[1, :1], whole[1, 4:5])


def test_chunks_of_any_rows_may_be_in_a_call() -> None:
    """All nine chunks in calls of three, those of a row together or not, in any order."""
    whole, filled = prefill()
    chunks = [(row, start) for row in (2, 0, 1) for start in (2 * CHUNK, 0, CHUNK)]
    chunks[4], chunks[5] = chunks[5], chunks[4]
    cache, found = empty_cache(DECODER.config, 3, SLOTS, jnp.float32), np.full_like(whole, np.nan)
    for at in range(0, 9, 3):
        part, tokens = chunks[at : at + 3], np.full((3, CHUNK), 77, np.int32)
        for i, (row, start) in enumerate(part):
            some = PROMPTS[row][start : start + CHUNK]
            tokens[i, : len(some)] = some
        rows, starts = np.array(part, np.int32).T
        used = np.int32(3 * CHUNK)
        hidden, cache = extend(DECODER, PARAMS, cache, tokens, starts, used, rows)
        for (row, start), states in zip(part, hidden, strict=True):
            found[row, start : start + CHUNK] = states
    for row, prompt in enumerate(PROMPTS):
        np.testing.assert_allclose(
            found[row, : len(prompt)], whole[row, : len(prompt)], atol=1e-5, rtol=0
        )
    for wanted, one in zip(jax.tree.leaves(filled), jax.tree.leaves(cache), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5, rtol=0)


def test_decoding_by_blocks_reads_the_slots_in_use(greedy, monkeypatch) -> None:
    """Bits depend on neither the number of slots nor what finished rows hold."""

    def made(slots: int, *, by_blocks: bool, unused: int = 30) -> tuple[Any, Any]:
        hidden, cache = prefill()
        rows, _ = start(hidden, np.zeros(CONFIG["vocab_size"], bool), GREEDY)
        rows = rows._replace(
            finished=np.array([False, False, True]), position=LENGTHS + np.array([0, 0, unused])
        )
        grown = empty_cache(DECODER.config, 3, slots, jnp.float32)
        grown = jax.tree.map(
            lambda new, old: new.at[..., : old.shape[-2], : old.shape[-1]].set(old), grown, cache
        )
        never = np.zeros(CONFIG["vocab_size"], bool)
        limits = DecodingLimits(np.int32(12), np.int32(STEPS), np.int32(3), never)
        _, after, tokens, logprobs = decode(
            DECODER, PARAMS, grown, rows, limits, GREEDY, by_blocks=by_blocks
        )
        assert np.asarray(after.made).tolist() == [1 + STEPS, 1 + STEPS, 1]
        return np.asarray(tokens)[:2], np.asarray(logprobs)[:2]

    tokens, logprobs = made(256, by_blocks=True)
    np.testing.assert_array_equal(tokens, greedy[0][:2, 1 : 1 + STEPS])
    np.testing.assert_allclose(logprobs, greedy[1][:2, 1 : 1 + STEPS], atol=2e-5, rtol=0)
    for slots, unused in ((512, 30), (256, 200)):
        again = made(slots, by_blocks=True, unused=unused)
        np.testing.assert_array_equal(again[0], tokens)
        np.testing.assert_array_equal(again[1], logprobs)
    monkeypatch.setattr(network, "_BLOCK", 4)  # answers of 8 tokens begin two blocks or more
    small = made(64, by_blocks=True)
    np.testing.assert_array_equal(small[0], tokens)
    np.testing.assert_allclose(small[1], logprobs, atol=1e-5, rtol=0)
    whole = made(256, by_blocks=False)
    np.testing.assert_array_equal(whole[0], tokens)
    np.testing.assert_allclose(whole[1], logprobs, atol=1e-5, rtol=0)
