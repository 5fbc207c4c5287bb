"""The local engine looked into: a tiny model against float64 NumPy, and what must not matter."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.local.inspection import Inspection
from jaxrag.types import InputError, Message
from tests.engines.tiny_model import CHATS, load_local, write_tiny_model
from tests.models.decoder.reference import CONFIGS, reference_inside

LONG = " quite far away, where nobody goes" * 2  # more than two chunks of 32
PAIRS: list[tuple[Any, str]] = [
    ("The sun is", " a star"), ("It", LONG), (CHATS[0], " Oslo"), ("x", ""), ("The sun is", " é!"),
]  # fmt: skip


def look(model: LocalModel, pairs: list[tuple[Any, str]], **settings: Any) -> list[Inspection]:
    return model.inspect([p for p, _ in pairs], [c for _, c in pairs], **settings)


@pytest.fixture(scope="module")
def seen(model: LocalModel) -> list[Inspection]:
    return look(model, PAIRS, layer=0)


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_inspections_equal_the_reference(model, seen, tmp_path, number) -> None:
    tensors, found = write_tiny_model(tmp_path), seen[number]
    tokens = np.array(model.tokenizer.encode(found.text, add_special_tokens=False))
    t = len(PAIRS[number][1].encode())  # a token a byte
    p = len(tokens) - t
    config = {**CONFIGS["qwen2"], "vocab_size": 260}
    attention, states, logp = reference_inside(config, tensors, tokens)
    assert found.attention.shape == (t, p + t)
    np.testing.assert_allclose(found.attention, attention[p:], atol=2e-6, rtol=0)
    np.testing.assert_allclose(found.attention.sum(1), np.ones(t), atol=1e-6)
    np.testing.assert_allclose(found.state, states[1][-1], atol=2e-5, rtol=1e-5)
    before = logp[p - 1 : p + t - 1]
    np.testing.assert_allclose(found.logprobs, before[np.arange(t), tokens[p:]], atol=2e-5)
    np.testing.assert_allclose(found.entropies, -(np.exp(before) * before).sum(-1), atol=2e-5)
    assert all(array.dtype == np.float32 for array in found[2:])


def test_results_do_not_depend_on_the_batch(model: LocalModel, seen: list[Inspection]) -> None:
    """Alone, in another order, and among so many that rows are filled again."""
    many = [(f"{'It is' * (i % 4)} so {i}", f" x{i}" * (i % 5)) for i in range(19)]
    for pairs in (PAIRS[::-1], PAIRS[:1], PAIRS[1:3], [*many, *PAIRS]):
        for pair, one in zip(pairs, look(model, pairs, layer=0), strict=True):
            if pair in PAIRS:
                for a, b in zip(one, seen[PAIRS.index(pair)], strict=True):
                    np.testing.assert_array_equal(a, b)


def test_a_prompt_is_prefilled_once_for_its_continuations(model, read) -> None:
    """More of them than there are rows, too, and beside another prompt."""
    pairs = [("The sun is", f" {letter}") for letter in "abcdefghijklmnopqrst"]
    pairs.insert(7, ("It", " is"))
    alone = [look(model, [pair])[0] for pair in pairs]
    del read[:]
    for mine, one in zip(look(model, pairs), alone, strict=True):
        for a, b in zip(mine, one, strict=True):
            np.testing.assert_array_equal(a, b)
    assert read == [2]
    assert len({one.state.tobytes() for one in alone}) == len(pairs)


def test_spans_are_the_characters_of_each_token(model: LocalModel, seen: list[Inspection]) -> None:
    pieces = [seen[0].text[a:b] for a, b in seen[0].spans]
    assert "".join(pieces) == "The sun is a star"
    text = seen[2].text
    assert text.endswith("<|im_start|>assistant\n Oslo") and text.startswith("<|im_start|>system")
    assert [text[a:b] for a, b in seen[2].spans[-6:]] == ["\n", " ", "O", "s", "l", "o"]
    # two bytes are one letter
    assert [seen[4].text[a:b] for a, b in seen[4].spans[-4:]] == [" ", "é", "é", "!"]


def test_the_end_token_is_appended_on_request(model: LocalModel) -> None:
    ended, spelt = look(model, PAIRS[:1], ended=True)[0], (PAIRS[0][0], " a star<|im_end|>")
    for one, other in zip(ended, look(model, [spelt])[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(ended.logprobs) == len(" a star") + 1 and ended.text.endswith("star<|im_end|>")


@pytest.mark.slow
def test_the_middle_layer_by_default(directory: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, num_hidden_layers=5)
    deep = load_local(tmp_path, prefill_rows=2, rows=2)
    layers = [look(deep, PAIRS[:1], layer=layer)[0].state for layer in range(5)]
    np.testing.assert_array_equal(look(deep, PAIRS[:1])[0].state, layers[1])
    assert len({state.tobytes() for state in layers}) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"chunk": 16, "prefill_rows": 2, "rows": 4}, {"mesh": True, "stacked": True}],
    ids=lambda options: "-".join(options),
)
def test_results_barely_depend_on_sizes_and_mesh(directory, seen, options) -> None:
    if "mesh" in options:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
        options = {**options, "mesh": mesh}
    found = look(load_local(directory, **options), PAIRS, layer=0)
    for one, other in zip(found, seen, strict=True):
        for a, b in zip(one[2:], other[2:], strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-5)


def test_pairs_that_do_not_fit_are_refused(model: LocalModel) -> None:
    assert model.inspect([], []) == []
    with pytest.raises(InputError, match="layer is 2; the model has layers 0 to 1"):
        look(model, PAIRS[:1], layer=2)
    with pytest.raises(InputError, match="500 tokens and 13 tokens of continuation exceed"):
        look(model, [("a" * 500, "b" * 12)], ended=True)
    with pytest.raises(InputError, match="empty"):
        look(model, [("", "b")])
    strange: Any = (Message("tool", "x"),)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="refuses messages"):
        look(model, [(strange, "b")])
