"""Self-RAG on a tiny checkpoint of its kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from jaxrag.engines.local.engine import LocalModel
from jaxrag.methods.self_rag import reflection
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.engines.tiny_model import load_local, write_tiny_model
from tests.methods.self_rag.reflecting import LONG, OPENING, TOKENIZER, Reflecting, answered
from tests.models.decoder.reference import CONFIGS
from tests.scripted import QUESTION, tools_of


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    """A random Llama whose tokenizer has the reflection tokens, as the published model's has."""
    path = tmp_path_factory.mktemp("self_rag")
    added = [*reflection.TOKENS, "<paragraph>", "</paragraph>"]
    llama = {**CONFIGS["llama"], "vocab_size": 259 + len(added), "eos_token_id": 257}
    write_tiny_model(path, template=None, **llama)
    tokenizer = load_tokenizer(path)
    tokens = [AddedToken(token, special=True, normalized=False) for token in added]
    assert tokenizer.add_tokens(tokens, special_tokens=True) == len(added)
    tokenizer.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    assert config["model_type"] == "llama" and len(tokenizer) == config["vocab_size"]
    return path


def normalised(model: LocalModel, prompt: str, tokens: tuple[str, ...]) -> np.ndarray:
    """Probabilities of the tokens among each other, in float64, one prompt at a time."""
    found = [model.logprob([prompt], [token])[0] for token in tokens]
    assert all(len(one) == 1 for one in found)
    odds = np.exp(np.array([float(one[0]) for one in found]))
    return odds / odds.sum()


@pytest.mark.slow
def test_a_real_checkpoint_is_read_token_by_token(checkpoint: Path) -> None:
    model = load_local(checkpoint)
    found = answered(model, threshold=0.0)
    trace = found.value.trace
    needed = normalised(model, OPENING, reflection.RETRIEVAL[:2])
    assert trace["gate"]["probability"] == pytest.approx(needed[0], rel=1e-5)
    for one in trace["steps"][0]["beams"][0]["candidates"]:
        name = one["id"]
        shown = f"{OPENING}[Retrieval]<paragraph>Title {name}\ntext of {name}</paragraph>"
        relevance = normalised(model, shown, reflection.RELEVANCE)
        start = shown + reflection.RELEVANCE[int(np.argmax(relevance))]
        (said,) = model.generate([start], max_new_tokens=9, stop=("\n",))
        support = normalised(model, start + said.text, reflection.SUPPORT)
        grade = reflection.SUPPORT[int(np.argmax(support))]
        utility = normalised(model, start + said.text + grade, reflection.UTILITY)
        expected = [
            relevance[0],
            support @ [1, 0.5, 0],
            utility @ [-1, -0.5, 0, 0.5, 1],
            np.exp(np.mean(said.logprobs)),
        ]
        parts = [one[key] for key in ("relevance", "support", "utility", "sequence")]
        assert parts == pytest.approx(expected, abs=1e-5)
        assert one["total"] == pytest.approx(np.dot(expected, [1, 1, 0.5, 1]), abs=1e-5)
        assert one["text"] == said.text.strip()


def test_a_real_checkpoint_answers_end_to_end(checkpoint: Path) -> None:
    model = load_local(checkpoint, rows=8)  # no fewer rows to compile at the end
    trace = answered(model, **LONG, depth=3, segment_tokens=6).value.trace
    assert 1 <= len(trace["steps"]) <= 3 and trace["mode"] == "checkpoint"
    assert not any(token in trace["answer"]["text"] for token in reflection.TOKENS)


def test_a_model_without_reflection_tokens_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    model = load_local(tmp_path)
    count = len("".join(reflection.TOKENS))  # a token a byte
    with pytest.raises(InputError, match=rf"The 13 reflection tokens.* are {count} tokens .*mode="):
        answered(model)
    lacking = load_tokenizer(checkpoint)
    one = Reflecting({}, {})
    one.tokenizer = lacking
    reflection.check_vocabulary(Episode(QUESTION, tools_of(one), Reader()))
    one.tokenizer = TOKENIZER
    one.max_length = None
    with pytest.raises(InputError, match="length limit of the model are unknown"):
        answered(one)
