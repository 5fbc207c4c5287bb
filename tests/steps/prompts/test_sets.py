"""Sets of prompts: their roles, files that extend others, and what is refused."""

import dataclasses
import itertools

import pytest

from jaxrag.steps import prompts
from jaxrag.types import InputError, Passage


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
    for name, said in (('"own"', "extends 'own': name another set"), ("3", "extends of type int"),
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


@pytest.mark.parametrize("name", ["gpt", "x" * 100_000, "a\\u0000b"])
def test_an_unknown_set_lists_the_known_sets(tmp_path, name):
    own = tmp_path / "mine.toml"
    own.write_text(f'extends = "{name}"')
    for one in (name, str(own)):
        with pytest.raises(InputError, match=r"dtr, errr, .*pairs, r3, .*small") as error:
            prompts.load(one)
        assert len(str(error.value)) < 5000


def test_a_missing_role_is_named(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[direct]\nuser = '{question}'")
    with pytest.raises(InputError, match=r"\[judge\]"):
        prompts.load(str(file)).role("judge")
