"""What is seen inside, against Hugging Face's torch models with eager attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.tiny_model import load_local, write_tiny_model
from tests.models.decoder.reference import CONFIGS

pytestmark = pytest.mark.parity
NAMES = ("llama", "qwen2-tied", "qwen3", "qwen3-bias", "mistral", "phi3", "gemma2")
PROMPT, ADDED = "The tallest mountain of Africa is", " Kilimanjaro, in the north of Tanzania."


def theirs(directory: Path, tokens: list[int]) -> Any:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype="float32", attn_implementation="eager"
    ).eval()
    outputs: list[Any] = []
    model.model.layers[1].mlp.register_forward_hook(lambda _, given, made: outputs.append(made))
    with torch.no_grad():
        found = model(torch.tensor([tokens]), output_attentions=True, output_hidden_states=True)
    return found, outputs[0]


@pytest.mark.parametrize("name", NAMES)
def test_attentions_states_and_entropies(name: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, **{"rope_scaling": None, **CONFIGS[name], "num_hidden_layers": 3,
                                  "vocab_size": 260, "eos_token_id": 257})  # fmt: skip
    model = load_local(tmp_path, prefill_rows=2, rows=2)
    tokens = model.tokenizer.encode(PROMPT + ADDED, add_special_tokens=False)
    found, p = model.inspect([PROMPT], [ADDED], layer=1)[0], len(PROMPT)
    wanted, mlp = theirs(tmp_path, tokens)
    attention = wanted.attentions[-1][0].numpy().mean(0)
    np.testing.assert_allclose(found.attention, attention[p:], atol=2e-6, rtol=0)
    state = wanted.hidden_states[2][0, -1].numpy()
    np.testing.assert_allclose(found.state, state, atol=2e-5, rtol=1e-5)
    own = model.inspect([PROMPT], [ADDED], layer=1, part="mlp")[0].state
    np.testing.assert_allclose(own, mlp[0, -1].numpy(), atol=2e-5, rtol=1e-5)
    logp = wanted.logits[0].log_softmax(-1).numpy().astype(np.float64)[p - 1 : -1]
    np.testing.assert_allclose(found.entropies, -(np.exp(logp) * logp).sum(-1), atol=3e-5)
    np.testing.assert_allclose(found.logprobs, logp[np.arange(len(ADDED)), tokens[p:]], atol=2e-5)
