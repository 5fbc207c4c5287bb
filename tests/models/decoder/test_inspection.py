"""What is seen inside the decoder, against float64 NumPy, layers apart and stacked, in chunks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.checkpoint import group_layers, parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.decoding import extend
from jaxrag.models.decoder.inspection import InspectedChunk, StatePart, inspect, predict
from jaxrag.models.decoder.network import Decoder
from tests.models.decoder.reference import CONFIGS, random_tensors, reference_inside, reference_mlps

LENGTH, CHUNK, SLOTS = 22, 8, 32
TOKENS = np.random.default_rng(4).integers(3, 97, (3, LENGTH)).astype(np.int32)


def network(name: str, stacked: bool) -> tuple[Decoder, Any, dict[str, np.ndarray]]:
    decoder = Decoder(read_decoder_config(CONFIGS[name], source="test"))
    tensors = random_tensors(parameter_shapes(decoder))
    grouped = group_layers(tensors).items() if stacked else tensors.items()
    arrays = {name: np.stack(own) if isinstance(own, list) else own for name, own in grouped}
    tree = unflatten_dict({k: jnp.asarray(v) for k, v in arrays.items()}, sep=".")
    return decoder.clone(stacked=stacked), tree, tensors


def cache_of(decoder: Decoder, rows: int) -> Any:
    return empty_cache(decoder.config, rows, SLOTS, decoder.dtype, stacked=decoder.stacked)


def seen_of(
    decoder: Decoder, params: Any, tokens: np.ndarray, layer: int, part: StatePart = "residual"
) -> InspectedChunk:
    """All tokens in chunks, the rows' last chunk filled up."""
    rows, cache, parts = len(tokens), cache_of(decoder, len(tokens)), []
    for at in range(0, LENGTH, CHUNK):
        some = np.zeros((rows, CHUNK), np.int32)
        some[:, : min(CHUNK, LENGTH - at)] = tokens[:, at : at + CHUNK]
        start = np.full(rows, at, np.int32)
        inside, cache = inspect(decoder, params, cache, some, start, np.int32(layer), part=part)
        parts.append(jax.tree.map(np.asarray, inside))
    return InspectedChunk(
        *(np.concatenate(column, axis=1)[:, :LENGTH] for column in zip(*parts, strict=True))
    )


@pytest.mark.parametrize("stacked", [False, True], ids=["apart", "stacked"])
@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
def test_internals_equal_the_reference(name: str, stacked: bool) -> None:
    """Of Qwen3 normalised queries and keys; of Gemma 2 windows in every second layer (the last one,
    too), norms and caps. Both have grouped heads."""
    decoder, params, tensors = network(name, stacked)
    for layer in (0, 1):
        found = seen_of(decoder, params, TOKENS, layer)
        for row, tokens in enumerate(TOKENS):
            attention, states, logp = reference_inside(CONFIGS[name], tensors, tokens)
            seen = found.attention[row]
            np.testing.assert_allclose(seen[:, :LENGTH], attention, atol=2e-6, rtol=0)
            assert not np.asarray(seen)[:, LENGTH:].any()
            assert not np.triu(np.asarray(seen)[:, :LENGTH], 1).any()
            np.testing.assert_allclose(found.state[row], states[layer + 1], atol=2e-5, rtol=1e-5)
            targets = np.append(tokens[1:], 0)
            hidden = jnp.asarray(found.hidden[row])
            logprobs, entropies = predict(decoder, params, hidden, targets)
            np.testing.assert_allclose(logprobs, logp[np.arange(LENGTH), targets], atol=2e-5)
            np.testing.assert_allclose(entropies, -(np.exp(logp) * logp).sum(-1), atol=2e-5)


@pytest.mark.parametrize("name, stacked", [("gemma2", False), ("qwen3", True)])
def test_outputs_of_mlps_equal_the_reference(name: str, stacked: bool) -> None:
    decoder, params, tensors = network(name, stacked)
    for layer in (0, 1):
        found = seen_of(decoder, params, TOKENS, layer, "mlp")
        for row, tokens in enumerate(TOKENS):
            wanted = reference_mlps(CONFIGS[name], tensors, tokens)[layer]
            np.testing.assert_allclose(found.state[row], wanted, atol=2e-5, rtol=1e-5)


def test_inspection_has_the_network_s_hidden_states() -> None:
    """Hidden states and cache are those of `extend`."""
    decoder, params, _ = network("qwen3", False)
    tokens, start = TOKENS[:, :CHUNK], np.zeros(3, np.int32)
    inside, cache = inspect(decoder, params, cache_of(decoder, 3), tokens, start, np.int32(0))
    hidden, wanted = extend(decoder, params, cache_of(decoder, 3), tokens, start)
    np.testing.assert_allclose(inside.hidden, hidden, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), cache, wanted)


def test_rows_have_own_positions_and_are_independent() -> None:
    decoder, params, _ = network("llama", False)
    first = seen_of(decoder, params, TOKENS, 1)
    again = seen_of(decoder, params, TOKENS[::-1], 1)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other[::-1])
