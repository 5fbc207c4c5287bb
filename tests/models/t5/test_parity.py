"""T5 against transformers' torch model: logits, greedy answers and beam search."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.sampling import TokenSampling
from jaxrag.models.t5.beams import beam_search
from jaxrag.models.t5.checkpoint import load_t5, save_t5
from jaxrag.models.t5.decoding import T5Limits, extend_answers, start_answers
from jaxrag.models.t5.network import relative_buckets
from tests.models.t5 import small_t5
from tests.models.t5.small_t5 import CONFIGS
from tests.models.t5.test_network import answers, forward, sources

pytestmark = pytest.mark.parity
KINDS, COUNT = sorted(CONFIGS), 14
SOURCES = tuple(range(1, 49, 2))


def torch_model(path: Path) -> Any:
    pytest.importorskip("torch")
    from transformers import T5ForConditionalGeneration

    return T5ForConditionalGeneration.from_pretrained(path, dtype="float32").eval()


def generated(model: Any, tokens: np.ndarray, where: np.ndarray, **settings: Any) -> list[list]:
    import torch

    found = model.generate(
        torch.from_numpy(tokens).long(),
        attention_mask=torch.from_numpy(where).long(),
        max_new_tokens=COUNT,
        do_sample=False,
        **settings,
    )
    return [cut(row) for row in found[:, 1:].tolist()]


def cut(row: list[int]) -> list[int]:
    """Up to the end token."""
    return row[: row.index(1) + 1] if 1 in row else row[:COUNT]


# the cache of transformers 5 has no room for a decoder that is deeper than the encoder
DEPTH: dict[str, dict[str, int]] = {"1.0": {"num_layers": 3}}


LIMITS = T5Limits(jnp.int32(COUNT), jnp.arange(60) == 1)


@pytest.mark.parametrize("setting", [(16, 40), (12, 21), (32, 128), (4, 3), (10, 64), (64, 1000)])
@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_the_same(setting: tuple[int, int], causal: bool) -> None:
    torch = pytest.importorskip("torch")
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = np.arange(-1500, 1500)
    want = T5Attention._relative_position_bucket(torch.from_numpy(distances), not causal, *setting)
    found = relative_buckets(
        jnp.asarray(distances), buckets=setting[0], max_distance=setting[1], causal=causal
    )
    np.testing.assert_array_equal(found, want.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_logits(kind: str, tmp_path: Path) -> None:
    import torch

    small_t5.write(tmp_path, CONFIGS[kind], shards=2)
    model, params = load_t5(tmp_path, dtype=jnp.dtype("float32"))
    (tokens, where), targets = sources(), answers()
    with torch.no_grad():
        # in float64: torch's own float32 rounding is up to twice the bound where nothing is scaled
        want = (
            torch_model(tmp_path)
            .double()(
                torch.from_numpy(tokens).long(),
                attention_mask=torch.from_numpy(where).long(),
                decoder_input_ids=torch.from_numpy(targets).long(),
            )
            .logits.numpy()
        )
    found = forward(model, params, tokens, where, targets)
    np.testing.assert_allclose(found, want, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens(kind: str, tmp_path: Path) -> None:
    small_t5.write(tmp_path, CONFIGS[kind], **DEPTH.get(kind, {}))
    model, params = load_t5(tmp_path, dtype=jnp.dtype("float32"))
    tokens, where = sources(SOURCES)
    greedy = TokenSampling(jnp.float32(0), *jnp.zeros((2, len(tokens)), jnp.uint32))
    begun = start_answers(model, params, tokens, where, slots=16)
    found = extend_answers(model, params, begun, jnp.int32(COUNT), LIMITS, greedy)
    rows = [row[:n] for row, n in zip(found.tokens.tolist(), found.made.tolist(), strict=True)]
    assert len({len(row) for row in rows}) > 1  # or ends would go untested
    want = generated(torch_model(tmp_path), tokens, where)
    assert rows == want


@pytest.mark.parametrize("kind", KINDS)
def test_beam_search_tokens(kind: str, tmp_path: Path) -> None:
    small_t5.write(tmp_path, CONFIGS[kind], **DEPTH.get(kind, {}))
    model, params = load_t5(tmp_path, dtype=jnp.dtype("float32"))
    tokens, where = sources(SOURCES)
    for beams in (4, 3):
        found, _, made = beam_search(model, params, tokens, where, LIMITS, beams=beams, slots=16)
        rows = [row[:n] for row, n in zip(found.tolist(), made.tolist(), strict=True)]
        want = generated(torch_model(tmp_path), tokens, where, num_beams=beams)
        assert rows == want


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_our_checkpoints(kind: str, tmp_path: Path) -> None:
    import torch

    small_t5.write(tmp_path / "one", CONFIGS[kind])
    model, params = load_t5(tmp_path / "one", dtype=jnp.dtype("float32"))
    small_t5.tokenizer().save_pretrained(save_t5(tmp_path / "two", model.config, params))
    tokens, where = sources()
    for path in ("one", "two"):
        torch_model(tmp_path / path)
    first, second = (
        torch_model(tmp_path / path)(
            torch.from_numpy(tokens).long(),
            attention_mask=torch.from_numpy(where).long(),
            decoder_input_ids=torch.from_numpy(answers()).long(),
        ).logits
        for path in ("one", "two")
    )
    assert torch.equal(first, second)


def test_we_read_checkpoints_of_transformers(tmp_path: Path) -> None:
    """Its version 5 names what scales the output otherwise than published models do."""
    import torch

    small_t5.write(tmp_path / "one", CONFIGS["1.1"])
    theirs = torch_model(tmp_path / "one")
    theirs.save_pretrained(tmp_path / "two")
    model, params = load_t5(tmp_path / "two", dtype=jnp.dtype("float32"))
    (tokens, where), targets = sources(), answers()
    with torch.no_grad():
        want = theirs(
            torch.from_numpy(tokens).long(),
            attention_mask=torch.from_numpy(where).long(),
            decoder_input_ids=torch.from_numpy(targets).long(),
        ).logits.numpy()
    found = forward(model, params, tokens, where, targets)
    np.testing.assert_allclose(found, want, atol=2e-5, rtol=0)
