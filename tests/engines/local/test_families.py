"""The local engine on tiny random models of the families with windows, soft caps and longrope."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.engines.local import engine
from jaxrag.engines.local.engine import LocalModel
from tests.engines.tiny_model import load_local, write_tiny_model
from tests.models.decoder.reference import CONFIGS, reference_inside

SIZES: dict[str, Any] = {"prefill_rows": 2, "rows": 4, "chunk": 16}
# Phi-3's rotation is another one above 32 tokens: always below, at the limit, in between, above.
BEGUN = "Of two rivers that meet below the town, the longer one gives "  # 61 tokens
PROMPTS = ["It", "b" * 32, "The cat sat on the mat, when it", f"{BEGUN}it", f"{BEGUN}them a name"]
NEW = 6


@pytest.fixture(
    scope="module",
    params=[
        "phi3",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mistral", "gemma2")),
    ],
)
def family(request: Any, tmp_path_factory: Any) -> Any:
    """Directory, config and weights of a checkpoint, and the model."""
    path = tmp_path_factory.mktemp(request.param)
    changes = {"rope_scaling": None, **CONFIGS[request.param], "num_hidden_layers": 2}
    changes |= {"vocab_size": 260, "eos_token_id": 257}
    tensors = write_tiny_model(path, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "tail_rows", lambda decoder, params, rows, few: rows)
        yield path, changes, tensors, load_local(path, **SIZES)


def tokens_of(model: LocalModel, prompt: Any) -> list[int]:
    return model._encode(prompt, room=0)


def test_answers_equal_the_reference(family: Any) -> None:
    """Prompts of unequal lengths in chunks; the reference reads each text whole for each token."""
    _, config, tensors, model = family
    found = model.generate(PROMPTS, max_new_tokens=NEW)
    assert {len(one.tokens) for one in found} >= {NEW}
    for prompt, one in zip(PROMPTS, found, strict=True):
        text = tokens_of(model, prompt)
        for token, logprob in zip(one.tokens, one.logprobs, strict=True):
            values = reference_inside(config, tensors, np.array(text))[2][-1]
            assert token == values.argmax()
            assert logprob == pytest.approx(values.max(), abs=5e-5)
            text.append(token)


def test_scores_equal_the_reference(family: Any) -> None:
    _, config, tensors, model = family
    prompts, texts = [PROMPTS[1], PROMPTS[4], "It"], ["x", " far away", " was so far from here"]
    found = model.logprob(prompts, texts)
    for prompt, text, scores in zip(prompts, texts, found, strict=True):
        targets = tokens_of(model, text)
        whole = tokens_of(model, prompt) + targets
        values = reference_inside(config, tensors, np.array(whole[:-1]))[2][-len(targets) :]
        np.testing.assert_allclose(scores, values[np.arange(len(targets)), targets], atol=5e-5)


def test_inspections_equal_the_reference(family: Any) -> None:
    _, config, tensors, model = family
    prompts, texts = [PROMPTS[1], BEGUN], [" is so far away", "it"]
    found = model.inspect(prompts, texts, layer=0)
    for prompt, text, one in zip(prompts, texts, found, strict=True):
        p, whole = len(tokens_of(model, prompt)), tokens_of(model, prompt + text)
        attention, states, logp = reference_inside(config, tensors, np.array(whole))
        np.testing.assert_allclose(one.attention, attention[p:], atol=5e-6, rtol=0)
        np.testing.assert_allclose(one.state, states[1][-1], atol=5e-5, rtol=1e-5)
        wanted = logp[np.arange(p - 1, len(whole) - 1), whole[p:]]
        np.testing.assert_allclose(one.logprobs, wanted, atol=5e-5)


def test_batches_and_shared_prefixes_change_no_bit(family: Any) -> None:
    """Stored prefixes of texts above and below Phi-3's limit are kept apart."""
    path, _, _, model = family
    prompts = [*PROMPTS, *(f"{BEGUN[:n]}{i}" for n in (22, 62) for i in range(4))]
    settings: dict[str, Any] = {"max_new_tokens": 14, "temperature": 1.0, "seed": 3}
    found = model.generate(prompts, **settings)
    assert model.generate(prompts[::-1], **settings) == found[::-1]
    assert [model.generate([one], **settings)[0] for one in prompts[:4]] == found[:4]
    alone = load_local(path, **SIZES, shared_bytes=0)
    assert alone.generate(prompts, **settings) == found


@pytest.mark.slow
def test_eight_devices_and_stacked_layers_write_the_same(family: Any) -> None:
    path, _, _, model = family
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    # rows are cut over the data axis, and over devices that share a head
    sizes = SIZES | {"prefill_rows": 8, "rows": 8}
    parted = load_local(path, **sizes, mesh=mesh, stacked=True)
    found = parted.generate(PROMPTS, max_new_tokens=NEW)
    for one, other in zip(found, model.generate(PROMPTS, max_new_tokens=NEW), strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=5e-5, rtol=0)


def test_a_stop_string_ends_an_answer_whose_text_becomes_long(family: Any) -> None:
    """Also if the string begins before Phi-3's limit and ends after it."""
    model = family[3]
    whole = model.generate(["b" * 31], max_new_tokens=NEW)[0]
    assert len(whole.tokens) == NEW
    stop = model.tokenizer.decode(whole.tokens[:3])  # of Phi-3, the third reads 33 tokens
    found = model.generate(["b" * 31], max_new_tokens=NEW, stop=[stop])[0]
    assert (found.tokens, found.finish_reason) == (whole.tokens[:3], "stop")
    assert found.logprobs == whole.logprobs[:3]
