"""Conformance: prompts, ends and reasoning of the families in use, by each engine."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.prompts import AnswerReader, PromptEncoder
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.models.decoder.families import FAMILIES as networks
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.steps.reader import Reader, mean_nll
from jaxrag.types import Generation, Message
from tests.engines.fake_server import serving
from tests.engines.families import ANSWER, FAMILIES, LAST, SYSTEM, Family, write_family
from tests.engines.tiny_model import load_local

SIZES: dict[str, Any] = {"prefill_rows": 2, "rows": 4, "chunk": 16}
SHARED = ("llama", "mistral", "phi3")  # their networks are the same program
every = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> Any:
    """The directory of a family's checkpoint, by its name."""
    return functools.cache(lambda name: write_family(tmp_path_factory.mktemp("f"), FAMILIES[name]))


def encoder(name: str, directory: Path) -> PromptEncoder:
    options = FAMILIES[name].options
    return PromptEncoder(load_tokenizer(directory), template_options=options, max_length=512)


def check(name: str, found: Generation) -> None:
    """The answer ends at the end of its turn; reasoning is apart; u is that of "Lima" alone."""
    family = FAMILIES[name]
    said, first = family.said(), len(family.says)
    assert (found.text, found.finish_reason) == (ANSWER, "end")
    assert (list(found.tokens), found.reasoning_tokens) == (said[first:], first)
    assert found.reasoning.strip() == "".join(family.says).strip()
    assert found.prompt_tokens == len(family.tokens(family.shown()))
    values = found.logprobs[: len(ANSWER)]
    assert mean_nll(found, Reader()) == pytest.approx(-sum(values) / len(ANSWER))


@every
def test_prompts_are_those_of_the_template(name: str, written: Any) -> None:
    family = FAMILIES[name]
    encode = encoder(name, written(name))
    text, tokens, spans = encode.with_spans(family.chat)
    assert text == family.shown().replace("◇", family.end)
    assert tokens == family.tokens(family.shown())
    assert SYSTEM in text
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@pytest.mark.parametrize("name", [name for name, one in FAMILIES.items() if one.says])
def test_unfinished_reasoning_is_no_answer(name: str, written: Any) -> None:
    encode, said = encoder(name, written(name)), FAMILIES[name].said()
    reader = AnswerReader(encode.tokenizer, ends=(), stop=())
    found = reader.read(said[:1], [-0.1], prompt=encode.tokens(FAMILIES[name].chat))
    assert (found.text, found.tokens, found.reasoning_tokens) == ("", (), 1)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] * (one.model in networks and one.model not in SHARED)
        )
        for name, one in FAMILIES.items()
    ],
)
def test_local(name: str, tmp_path: Path, unprobed: None) -> None:
    """A family that the local engine does not have gets Llama's network."""
    family = FAMILIES[name]
    write_family(tmp_path, family, model="" if family.model in networks else "llama")
    model = load_local(tmp_path, template_options=json.dumps(family.options), **SIZES)
    (found,) = model.generate([family.chat], max_new_tokens=16)
    check(name, found)


def answered(family: Family, *, ids: bool) -> dict[str, Any]:
    """What a server says: all tokens but those of the answer have log-probability -2."""
    said, first = family.said(), len(family.says)
    names = [*family.says, *ANSWER, family.end]
    values = [-0.1 if first <= i < first + len(ANSWER) else -2.0 for i in range(len(said))]
    choice: dict[str, Any] = {
        "text": "".join(names[:-1]),
        "finish_reason": "stop",
        "logprobs": {"tokens": names, "token_logprobs": values},
    }
    if ids:
        choice["token_ids"] = said
    return {"choices": [choice], "usage": {"completion_tokens": len(said)}}


@every
@pytest.mark.parametrize("strict", [False, True], ids=["tokens", "texts"])
def test_server(name: str, strict: bool, written: Any) -> None:
    """A strict server takes no tokens: it puts the begin token before the text that it is sent."""
    family = FAMILIES[name]
    chat = (
        family.chat
        if not strict
        else (*family.chat[:3], Message("user", LAST.replace("◇", "Chad")))
    )
    tokenizer, sent = load_tokenizer(written(name)), []

    def answer(handler: Any, number: int, body: dict[str, Any]) -> None:
        if strict and not isinstance(body["prompt"], str):
            handler.send(400, {"detail": "prompt must be a string."})
            return
        sent.append(tokenizer.encode(body["prompt"]) if strict else body["prompt"])
        handler.send(200, answered(family, ids=not strict))

    with serving(answer, max_length=512) as server:
        options = json.dumps(family.options)
        settings = Server("tiny", server.url, str(written(name)), template_options=options)
        model = settings.load(Path())
        (found,) = model.generate([chat], max_new_tokens=16)
        model.close()
    assert mean_nll(found, Reader()) == pytest.approx(0.1)
    assert (found.text, found.finish_reason) == (ANSWER, "end")
    if strict:
        assert sent == [family.tokens(family.shown().replace("◇", "Chad"))]
    else:
        assert sent == [family.tokens(family.shown())]
        check(name, found)


IN_CI = ("Llama 3.2", "Mistral 0.3", "Qwen3", "Gemma 2", "Phi-3")


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in IN_CI)) for n in FAMILIES]
)
def test_vllm(name: str, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM in this process, not compiled, gets and makes the tokens that the local engine does."""
    vllm = pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setattr(vllm, "LLM", functools.partial(vllm.LLM, enforce_eager=True))
    registry = "vllm.model_executor.models.registry._run_in_subprocess"
    monkeypatch.setattr(registry, lambda inspect: inspect())  # half a minute for each network
    family = FAMILIES[name]
    options = json.dumps(family.options)
    settings = Vllm(str(written(name)), dtype="float32", memory=0.1, template_options=options)
    model, sent = settings.load(tmp_path), []
    real = model._run
    monkeypatch.setattr(model, "_run", lambda rows, params: sent.extend(rows) or real(rows, params))
    (found,) = model.generate([family.chat], max_new_tokens=16)
    assert sent == [family.tokens(family.shown())]
    check(name, found)
