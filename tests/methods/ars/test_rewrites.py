"""Reading rewrites out of what models write."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.engines.local.engine import Local
from jaxrag.methods.ars.rewrites import Rewriter, parse_rewrites, rewrite
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, needs_of
from tests.scripted import ScriptedModel, run_episode, run_step, tools_of

ASKED = "who wrote it"
WANTED = ("Who is its author?", "Which person wrote it?", "Whose work is it?")


@pytest.mark.parametrize(
    "style",
    ["1. {}", "1) {}", "(1) {}", "[1] {}", "1: {}", "1 - {}", "**1.** {}", "  1.{}", "Q1: {}",
     "Rewrite 1: {}", "Question 1. {}", "1. **{}**", '1. "{}"', "- 1. {}", "1\\. {}", "1 – {}"],
)  # fmt: skip
def test_numbering_styles(style):
    lines = [style.replace("1", str(i)).format(text) for i, text in enumerate(WANTED, start=1)]
    raw = "Here are three versions:\n\n" + "\n".join(lines) + "\n\nI hope that helps."
    assert parse_rewrites(raw, ASKED, 3) == (WANTED, 0)


@pytest.mark.parametrize("mark", ["", "- ", "* ", "• ", "  "])
def test_lines_without_numbers(mark):
    raw = "Sure, here they are:\n" + "\n".join(mark + text for text in WANTED)
    assert parse_rewrites(raw, ASKED, 3) == (WANTED, 0)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("1. Who is its author? 2. Which person wrote it? 3. Whose work is it?", (*WANTED, 0)),
        (
            "1. Who won in 1998?\n2. Who won the 1998. edition?\n3. Is 2. the answer to 1+1?",
            ("Who won in 1998?", "Who won the 1998. edition?", "Is 2. the answer to 1+1?", 0),
        ),
        # 2 is empty, 3 repeats 1 but for case and punctuation: two are left of five. The question
        # is no rewrite yet, so it comes next, and then the two again.
        (
            "1. Who is its author?\n2.\n3. who is its author\n4. Whose work is it?",
            (WANTED[0], WANTED[2], ASKED, WANTED[0], WANTED[2], 3),
        ),
        # the first is the question again
        (
            "1. Who wrote it?\n2. Whose work is it?",
            ("Who wrote it?", WANTED[2], "Who wrote it?", WANTED[2], 2),
        ),
        *((raw, (ASKED, ASKED, ASKED, 3)) for raw in ("", "\n \n", "1.\n2.", "Here they are:")),
        ("\n".join(WANTED), (*WANTED[:2], 0)),
    ],
)
def test_rewrites_by_hand(raw, wanted):
    *texts, filled = wanted
    assert parse_rewrites(raw, ASKED, len(texts)) == ((*texts,), filled)


def test_an_incomplete_last_line_is_dropped():
    raw = "1. Who is its author?\n2. Which pers"
    assert parse_rewrites(raw, ASKED, 2, cut=True) == (("Who is its author?", ASKED), 1)
    assert parse_rewrites(raw, ASKED, 2).texts[1] == "Which pers"


@given(st.text(max_size=200), st.integers(1, 12), st.booleans())
def test_any_text_gives_n_rewrites(raw, n, cut):
    texts, filled = parse_rewrites(raw, ASKED, n, cut=cut)
    assert len(texts) == n and 0 <= filled <= n
    assert all(text.strip() for text in texts)


def asked_rewrites(model, rewriter):
    tools, reader = tools_of(model), Reader(prompts="small")
    return run_episode(lambda episode: rewrite(episode, rewriter), tools, reader=reader)


def test_one_generation_gives_all_rewrites():
    # the prompt for small models ends with the first number, which the reply then lacks
    # (a scripted reply is always one that ran out of tokens, so its last line does not count)
    text = " Who is its author?\n2. Whose work is it?\n3. By wh"
    model = ScriptedModel({"Rewrites:\n1.": text})
    (found, trace) = asked_rewrites(model, Rewriter(n=2))
    assert found == (("Who is its author?", "Whose work is it?"), 0)
    assert trace["rewrites"] == {"texts": list(found.texts), "filled": 0}
    assert len(model.prompts) == 1


def test_raw_output_is_recorded_if_rewrites_are_missing():
    model = ScriptedModel({"": ("", [])})
    found, trace = asked_rewrites(model, Rewriter(n=3))
    assert found.filled == 3 and trace["rewrites"]["raw"] == ""


def test_the_chat_prompt_names_the_number_of_rewrites():
    model = ScriptedModel({"": "1. One?"})
    tools, reader = tools_of(model), Reader(prompts="ars")
    run_episode(lambda episode: rewrite(episode, Rewriter(n=7)), tools, reader=reader)
    assert "Write 7 different" in model.prompts[0] and "from 1 to 7" in model.prompts[0]


def test_a_long_question_gets_more_tokens():
    rewriter = Rewriter(n=10, tokens=400, word_tokens=2.5)
    # 10 rewrites of 2.5 tokens a word and 8 more: 10 * (2.5 * 12 + 8) = 380, 10 * (2.5 * 100 + 8)
    assert rewriter.most_tokens("word " * 12) == 400
    assert rewriter.most_tokens("word " * 100) == 2580
    assert Rewriter(n=10, tokens=200, word_tokens=0).most_tokens("word " * 100) == 200


def test_another_model_may_rewrite():
    """The rewriter's own model is a helper of the method, and the run's is not asked."""
    own, writer = ScriptedModel({"": "answer"}), ScriptedModel({"": "1. Whose work is it?\n2. x"})
    rewriter = Rewriter(n=1, model=Local("somewhere"))
    helper = needs_of(rewriter).helpers["model"]
    tools = dataclasses.replace(
        tools_of(own), helpers={helper: LanguageModelTool(writer, helper=True)}
    )

    async def answer(question, tools):
        return await rewrite(Episode(question, tools, Reader(prompts="ars")), rewriter)

    ended = run_step(answer, tools)
    assert ended.value.texts == ("Whose work is it?",)
    assert len(writer.prompts) == 1 and not own.prompts
    cost = ended.cost
    assert cost["llm_calls"] == 1 and cost["helper_new_tokens"] == cost["new_tokens"] > 0
    assert cost["helper_prompt_tokens"] == cost["prompt_tokens"]
    assert not needs_of(Rewriter()).helpers


def test_the_temperature_and_seed_reach_the_model():
    model = ScriptedModel("x")
    rewriter = Rewriter(temperature=0.6, seed=3, tokens=50, word_tokens=0)

    async def answer(question, tools):
        return await rewrite(Episode(question, tools, Reader(prompts="small")), rewriter)

    run_step(answer, tools_of(model))
    wanted = {"temperature": 0.6, "seed": 3, "max_new_tokens": 50}
    assert wanted.items() <= model.settings[0].items()
