import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods import retrieve_and_read
from jaxrag.steps import prompts
from jaxrag.steps.reader import Reader, mean_nll
from jaxrag.text.model_output import parse_answer
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation, InputError, Passage
from tests.scripted import ScriptedModel, run


@pytest.mark.parametrize(
    "raw, how, answer",
    [
        ("<answer>Rome</answer>", "tags", "Rome"),
        ("Sure! <answer> Rome </answer> Anything else?", "tags", "Rome"),
        ("<ANSWER>Rome</ANSWER>", "tags", "Rome"),
        ("<answer>Rome", "tags", "Rome"),
        ("<answer>Rome\nIt is old.", "tags", "Rome"),
        ("\n\nRome\nIt is old.", "tags", "Rome"),
        ("Rome</answer>", "tags", "Rome"),
        ("<answer></answer>", "tags", ""),
        ("", "tags", ""),
        ("  Rome \nIt is old.", "first_line", "Rome"),
        ("Answer: Rome", "first_line", "Rome"),
        (" \n ", "first_line", ""),
        (" two\nlines ", "text", "two\nlines"),
    ],
)
def test_parse_answer(raw, how, answer):
    assert parse_answer(raw, how) == answer


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


@given(st.text(), st.sampled_from(["tags", "first_line", "text"]))
def test_any_text_can_be_parsed(raw, how):
    parsed = parse_answer(raw, how)
    assert parsed == parsed.strip() and (how == "text" or "\n" not in parsed)


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


@pytest.mark.parametrize("name", ["dtr", "pairs", "small"])
def test_every_set_has_every_role(name):
    loaded = prompts.load(name)
    for role in ("direct", "context", "pseudo_context", "rationale", "judge"):
        prompt = loaded.role(role).prompt(question="QUESTION?", passages="PASSAGES!")
        asked = prompt if isinstance(prompt, str) else prompt[-1].content
        assert asked.count("QUESTION?") == 1
        assert asked.count("PASSAGES!") == (role == "context")
    assert "Title: " in loaded.render([Passage("1", "Title", "text")]) or name == "small"


def test_a_set_may_extend_another(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "small"\n[direct]\nuser = "My {question}"\n')
    found, base = prompts.load(str(mine)), prompts.load("small")
    assert found.role("direct").user == "My {question}"
    assert found.role("context") == base.role("context")
    assert (found.passage, found.joiner) == (base.passage, base.joiner)
    own = tmp_path / "own.toml"
    own.write_text('extends = "small"\n[passages]\njoiner = "|"\n')
    assert (prompts.load(str(own)).passage, prompts.load(str(own)).joiner) == (base.passage, "|")
    for name, said in (('"own"', "extends 'own': name another set"), ("3", "extends 3"),
                       ('"none"', "No prompts named 'none'")):  # fmt: skip
        own.write_text(f"extends = {name}\n")
        with pytest.raises(InputError, match=said):
            prompts.load(str(own))


@pytest.mark.parametrize("order", [("a", "b", "a"), ("a", "b", "c", "b")])
def test_sets_that_extend_each_other_are_refused(tmp_path, order):
    files = [tmp_path / f"{name}.toml" for name in order]
    for one, other in itertools.pairwise(files):
        one.write_text(f'extends = "{other}"\n')
    chain = ".* which extends .*".join(f"{name}.toml" for name in order[1:])
    with pytest.raises(InputError, match=rf"a\.toml extends .*{chain}: let one of them extend"):
        prompts.load(str(files[0]))


def test_passages_are_numbered_and_joined():
    shown = prompts.load("dtr").render([Passage("1", "A", "x"), Passage("2", "B", "y")])
    assert shown == "Passage 1. A: x\nPassage 2. B: y"


def test_demonstrations_become_turns_or_blocks():
    template = prompts.Template("Q: {question}\nA:", "Be brief.", (("Q: x\nA:", "y"),))
    assert template.prompt(question="z") == (
        ("system", "Be brief."), ("user", "Q: x\nA:"), ("assistant", "y"), ("user", "Q: z\nA:"),
    )  # fmt: skip
    plain = dataclasses.replace(template, chat=False)
    assert plain.prompt(question="z") == "Be brief.\n\nQ: x\nA: y\n\nQ: z\nA:"


@pytest.mark.parametrize(
    "text, named",
    [
        ("[direct\n", "TOML"),
        ("[dirct]\nuser = '{question}'", "dirct"),
        ("[direct]\nuser = 'no field'", r"\{question\}"),
        ("[context]\nuser = '{question}'", r"\{passages\}"),
        ("[direct]\nuser = '{question} {topic}'", "topic"),
        ("[direct]\nuser = '{question} {'", "bad field"),
        ("[direct]\nuser = '{question}'\nparse = 'json'", "json"),
        ("[direct]\nuser = '{question}'\nstops = ['x']", "stops"),
        ("[direct]\nuser = '{question}'\n[[direct.demonstrations]]\nuser = 'x'", "demonstration 1"),
        ("[passages]\nformat = 'x'", r"passages\.format"),
    ],
)
def test_an_invalid_prompt_file_is_refused_by_name(tmp_path, text, named):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=named) as error:
        prompts.load(str(file))
    assert "mine.toml" in str(error.value)


def test_an_unknown_set_lists_the_known_sets():
    with pytest.raises(InputError, match=r"dtr, errr, .*pairs, r3, .*small"):
        prompts.load("gpt")


def test_a_missing_role_is_named(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[direct]\nuser = '{question}'")
    with pytest.raises(InputError, match=r"\[judge\]"):
        prompts.load(str(file)).role("judge")


@pytest.mark.parametrize("limit", ["answer_tokens", "passage_tokens"])
def test_limits_of_tokens_are_checked_when_they_are_set(limit: str) -> None:
    with pytest.raises(InputError, match=f"{limit} is 0"):
        Reader(**{limit: 0})  # pyright: ignore[reportArgumentType]
