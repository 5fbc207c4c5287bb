"""Prompts and decoding of the reader, and the mean negative log-likelihood of what it writes."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods import retrieve_and_read
from jaxrag.steps.reader import Reader, mean_nll
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation
from tests.scripted import ScriptedModel, run


@pytest.mark.parametrize(
    "raw, prompts_of, junk",
    [
        ("<answer>Rome</answer>", "pairs", False),
        ("<answer>Rome", "pairs", False),
        ("Rome", "pairs", True),
        ("Rome</answer>", "pairs", True),
        ("Rome", "dtr", False),
    ],
)
def test_an_answer_without_the_tags_of_its_prompt_is_junk(raw, prompts_of, junk):
    method = dataclasses.replace(retrieve_and_read.NO_RETRIEVAL, reader=Reader(prompts=prompts_of))
    found = run(method, ScriptedModel(raw)).value
    assert (found.text, found.trace["answer"].get("junk", False)) == ("Rome", junk)


def test_a_penalty_of_repetition_reaches_the_model_and_the_key_of_the_store():
    tool, none = LanguageModelTool(ScriptedModel("x")), {"repetition_penalty": 1.0}
    plain = tool.generate("a", max_new_tokens=3).operation.identity
    assert tool.generate("a", max_new_tokens=3, **none).operation.identity == plain
    assert "repetition_penalty" not in plain  # results stored before are still found
    other = tool.generate("a", max_new_tokens=3, repetition_penalty=1.1).operation.identity
    assert '"repetition_penalty":1.1' in other
    model = ScriptedModel("x")
    reader = Reader(repetition_penalty=1.1)
    run(dataclasses.replace(retrieve_and_read.NO_RETRIEVAL, reader=reader), model)
    assert [one["repetition_penalty"] for one in model.settings] == [1.1]


def generation(logprobs, finish):
    return Generation("x", tuple(range(len(logprobs))), tuple(logprobs), finish, 1)


@pytest.mark.parametrize(
    "logprobs, finish, rule, u",
    [
        ([-1.0, -2.0, -9.0], "end", "paper", 1.5),  # the end token is left out: 3 / 2
        ([-1.0, -2.0, -9.0], "length", "paper", 4.0),  # 12 / 3
        ([-1.0, -2.0, -9.0], "length", "released", 1.5),  # the last, whatever it is
        ([-9.0], "end", "paper", math.inf),  # nothing but the end token
        ([-9.0], "length", "released", math.inf),
        ([], "length", "paper", math.inf),
    ],
)
def test_mean_nll_of_a_generation(logprobs, finish, rule, u):
    assert mean_nll(generation(logprobs, finish), Reader(fidelity=rule)) == pytest.approx(u)


def test_reasoning_counts_in_u_only_by_its_setting():
    said = dataclasses.replace(
        generation([-1.0, -2.0, -9.0], "end"), reasoning_tokens=1, reasoning_logprobs=(-4.5,)
    )
    assert mean_nll(said, Reader()) == pytest.approx(1.5)
    assert mean_nll(said, Reader(count_reasoning=True)) == pytest.approx(2.5)


@settings(max_examples=50, deadline=None)  # each new power of two compiles
@given(st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=70))
def test_mean_nll_does_not_depend_on_padding(logprobs):
    expected = -np.mean(np.asarray(logprobs, np.float64))
    assert mean_nll(generation(logprobs, "length"), Reader()) == pytest.approx(
        expected, rel=1e-5, abs=1e-30
    )
