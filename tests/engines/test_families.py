"""Conformance: prompts, ends and reasoning of the families in use, by each engine."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.prompts import PromptEncoder
from jaxrag.engines.server import Server
from jaxrag.models.decoder.families import FAMILIES as networks
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.steps.asking import Reader, mean_nll
from jaxrag.types import Generation, Message
from tests.engines.fake_server import serving
from tests.engines.families import ANSWER, FAMILIES, SYSTEM, write_family

SIZES: dict[str, Any] = {"prefill_rows": 2, "decode_rows": 4, "chunk": 16}
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
    model = LocalModel.load(tmp_path, template_options=family.options, **SIZES)
    (found,) = model.generate([family.chat], max_new_tokens=16)
    check(name, found)
