"""Generations in the store."""

import json

import pytest

from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation
from tests.scripted import ScriptedModel


@pytest.mark.parametrize(
    "generation",
    [
        Generation("São Tomé\n", (3, 1, 2), (-0.1, -2.5, -1e-7), "end", 17),
        Generation("", (), (), "length", 0),
    ],
)
def test_a_stored_generation_is_read_as_it_was_written(generation: Generation) -> None:
    operation = LanguageModelTool(ScriptedModel()).generate("?", max_new_tokens=4).operation
    stored = operation.encode(generation)
    assert operation.decode(stored) == generation
    assert set(json.loads(stored)) == {
        "text", "tokens", "logprobs", "finish_reason", "prompt_tokens",
    }  # fmt: skip
