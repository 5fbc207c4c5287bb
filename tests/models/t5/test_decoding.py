"""Greedy, drawn and searched answers of a T5, against plain NumPy and against each other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.sampling import TokenSampling
from jaxrag.models.t5.beams import beam_search
from jaxrag.models.t5.checkpoint import load_t5
from jaxrag.models.t5.decoding import T5Answers, T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from tests.models.t5 import small_t5
from tests.models.t5.small_t5 import CONFIGS
from tests.models.t5.test_network import sources

COUNT, SLOTS = 9, 12
LENGTHS = (9, 20, 1, 30, 5, 13)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[T5, Any, dict[str, np.ndarray]]:
    path = tmp_path_factory.mktemp("t5")
    tensors = small_t5.write(path, CONFIGS["1.1"], seed=2)
    return *load_t5(path, dtype=jnp.dtype("float32")), tensors


def limits(most: int = COUNT) -> T5Limits:
    return T5Limits(jnp.int32(most), jnp.arange(60) == 1)


def sampling(rows: int, temperature: float = 0.0, seed: int = 0) -> TokenSampling:
    numbers = jnp.arange(rows, dtype=jnp.uint32) + 100
    return TokenSampling(jnp.float32(temperature), jnp.full(rows, seed, jnp.uint32), numbers)


def write(small: Any, tokens: Any, where: Any, how: TokenSampling, *, steps: int = 99) -> T5Answers:
    model, params, _ = small
    now = start_answers(model, params, tokens, where, slots=SLOTS)
    while int(now.step) < COUNT and not now.finished.all():
        now = extend_answers(model, params, now, jnp.int32(steps), limits(), how)
    return now


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


class Reference:
    """Log-probabilities of the next token of an answer, float64 [v]."""

    def __init__(self, tensors: dict[str, np.ndarray], source: np.ndarray) -> None:
        self.tensors, self.source = tensors, source
        self.known: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, answer: tuple[int, ...]) -> np.ndarray:
        if answer not in self.known:
            logits = small_t5.reference_logits(
                CONFIGS["1.1"], self.tensors, self.source, (0, *answer)
            )
            self.known[answer] = log_softmax(logits[-1])
        return self.known[answer]


def searched(after: Reference, beams: int) -> tuple[int, ...]:
    """Beam search with lists."""
    going: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for made in range(1, COUNT + 1):
        candidates = sorted(
            (
                (score + logprob, (*answer, token))
                for score, answer in going
                for token, logprob in enumerate(after(answer))
            ),
            reverse=True,
        )[: 2 * beams]
        for value, answer in candidates[:beams]:
            if answer[-1] == 1 or made == COUNT:
                ended.append((value / made, answer))
        ended = sorted(ended, reverse=True)[:beams]
        going = [c for c in candidates if c[1][-1] != 1][:beams]
        if len(ended) == beams and going[0][0] / made <= ended[-1][0]:
            break
    return ended[0][1]


def test_greedy_answers_are_the_most_probable_tokens(small: Any) -> None:
    tokens, where = sources(LENGTHS)
    found = write(small, tokens, where, sampling(6))
    for row, length in enumerate(LENGTHS):
        after, answer = Reference(small[2], tokens[row, :length]), ()
        while len(answer) < COUNT and 1 not in answer:
            logprobs = after(answer)
            token = int(logprobs.argmax())
            logprob = found.logprobs[row, len(answer)]
            assert logprob == pytest.approx(logprobs[token], abs=3e-5)
            answer = (*answer, token)
        made = int(found.made[row])
        assert tuple(found.tokens[row, :made].tolist()) == answer
        assert not found.tokens[row, made:].any() and not found.logprobs[row, made:].any()
    assert len(set(found.made.tolist())) > 1


@pytest.mark.parametrize("beams", [4, 3, 2])
def test_beam_search_equals_a_reference_with_lists(small: Any, beams: int) -> None:
    model, params, tensors = small
    tokens, where = sources(LENGTHS)
    found, logprobs, made = beam_search(
        model, params, tokens, where, limits(), beams=beams, slots=SLOTS
    )
    greedy = write(small, tokens, where, sampling(6))
    for row, size in enumerate(LENGTHS):
        after = Reference(tensors, tokens[row, :size])
        want = searched(after, beams)
        assert tuple(found[row, : int(made[row])].tolist()) == want
        for i, token in enumerate(want):
            assert logprobs[row, i] == pytest.approx(after(want[:i])[token], abs=3e-5)
    assert found.tolist() != greedy.tokens.tolist()  # or the search would go untested


def test_a_row_does_not_depend_on_its_neighbours(small: Any) -> None:
    """To the bit, alone, elsewhere in the batch, and with different company."""
    model, params, _ = small
    tokens, where = sources(LENGTHS)

    def all_of(tokens: Any, where: Any, numbers: np.ndarray) -> list[np.ndarray]:
        seeds = jnp.full(6, 5, jnp.uint32)
        drawn = TokenSampling(jnp.float32(1.3), seeds, jnp.asarray(numbers, jnp.uint32))
        written = write(small, tokens, where, drawn)
        found = beam_search(model, params, tokens, where, limits(), beams=3, slots=SLOTS)
        given = score(model, params, tokens, where, tokens[:, :7])
        return [np.asarray(a) for a in (written.tokens, written.logprobs, written.made, given)] + [
            np.asarray(a)[:, : int(found[2].min())] for a in found[:2]
        ]

    whole = all_of(tokens, where, np.arange(6))
    order = np.array([3, 0, 5, 2, 4, 1])
    moved = all_of(tokens[order], where[order], order)
    for one, other in zip(whole[:4], moved[:4], strict=True):
        np.testing.assert_array_equal(one[order], other)
    np.testing.assert_array_equal(whole[4][order], moved[4])
    np.testing.assert_array_equal(whole[5][order], moved[5])
    alone = where & (np.arange(6) == 4)[:, None]
    for one, other in zip(whole[:4], all_of(tokens, alone, np.arange(6))[:4], strict=True):
        np.testing.assert_array_equal(one[4], other[4])


def test_decoding_in_several_calls_equals_one_call(small: Any) -> None:
    tokens, where = sources(LENGTHS)
    drawn = sampling(6, temperature=0.8)
    whole, pieces = (write(small, tokens, where, drawn, steps=n) for n in (99, 2))
    for one, other in zip(whole[:5], pieces[:5], strict=True):
        np.testing.assert_array_equal(one, other)


def test_jit_changes_nothing(small: Any) -> None:
    tokens, where = sources((9, 5))
    model, params, _ = small

    def both() -> list[Any]:
        begun = start_answers(model, params, tokens, where, slots=2)
        drawn = sampling(2, temperature=0.8)
        written = extend_answers(model, params, begun, jnp.int32(2), limits(most=2), drawn)
        found = beam_search(model, params, tokens, where, limits(most=2), beams=2, slots=2)
        return [written.tokens, written.logprobs, *found]

    compiled = both()
    with jax.disable_jit():
        plain = both()
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
def test_logprobs_are_those_of_teacher_forcing(small: Any) -> None:
    model, params, _ = small
    tokens, where = sources(LENGTHS)
    found = write(small, tokens, where, sampling(6, temperature=1.7))
    forced = score(model, params, tokens, where, found.tokens)
    for row, made in enumerate(found.made.tolist()):
        want = forced[row, :made]
        np.testing.assert_allclose(found.logprobs[row, :made], want, atol=2e-5, rtol=0)
        assert float(found.logprobs[row].sum()) == pytest.approx(float(want.sum()), abs=1e-4)


def test_draws_have_the_model_s_probabilities(small: Any) -> None:
    model, params, tensors = small
    source, rows, temperature = np.array([7, 11, 1], np.int32), 4000, 1.6
    tokens = np.tile(source, (rows, 1))
    how = sampling(rows, temperature)

    def draw(how: Any) -> Any:
        begun = start_answers(model, params, tokens, np.ones_like(tokens, bool), slots=1)
        return extend_answers(model, params, begun, jnp.int32(1), limits(most=1), how).tokens[:, 0]

    drawn = draw(how)
    logprobs = Reference(tensors, source)(())
    weights = np.exp(logprobs / temperature)
    want = weights / weights.sum()
    shares = np.bincount(np.asarray(drawn), minlength=60) / rows
    # five standard deviations of a share, for each of 60 tokens
    assert (np.abs(shares - want) < 5 * np.sqrt(want * (1 - want) / rows) + 1e-9).all()
    other = draw(sampling(rows, temperature, seed=1))
    assert (other != drawn).mean() > 0.1
