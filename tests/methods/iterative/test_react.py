"""ReAct on scripts: actions read and taken, everything that can go wrong, and that it ends."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxrag.methods.iterative import react
from jaxrag.methods.iterative.actions import Action, Page, Step, history_texts, lookup, read_action
from jaxrag.steps.reader import Reader
from jaxrag.types import Passage
from tests.methods.iterative.turns import WHEN, Turns, WordIndex, run

READER = Reader(prompts="iterative_small")
SEARCH = " I need the land.\nAction 1: Search[Strelsau]"


def answer(model, index=None, question=WHEN, **config):
    config = react.Config(**{"reader": READER, **config})
    return run(config, model, index or WordIndex(), question)


@pytest.mark.parametrize(
    "text, thought, action",
    [
        (SEARCH, "I need the land.", Action("search", "Strelsau")),
        ("Thought: a\nb\nAction: finish[ 4 May ]", "a b", Action("finish", "4 May")),
        ("Thought 2: a\nAction 2: Lookup[x] and then", "a", Action("lookup", "x")),
        ("a\nAction 1: Search[x [1] y] z]", "a", Action("search", "x [1] y")),
        ("a\nAction 1: Search[cut off", "a", Action("search", "cut off")),
        ("a\nAction 1: Search[x]\nAction 2: Finish[y]", "a", Action("search", "x")),
        ("not Search[x] but\nAction 1: Finish[y]", "not Search[x] but", Action("finish", "y")),
        ("Finish[]", "", Action("finish", "")),
        ("a\nAction 1: go home", "a", None),
        ("a\nAction 1: Research[x]", "a", None),
        ("search for x", "search for x", None),
        ("", "", None),
    ],
)
def test_actions_by_hand(text, thought, action):
    assert read_action(text) == (thought, action)


def test_a_whole_trajectory():
    model, index = Turns(
        SEARCH,
        " It is Ruritania's.\nAction 2: Search[Ruritania]",
        " I look for free.\nAction 3: Lookup[FREE]",
        " 1830.\nAction 4: Finish[1830]",
    ), WordIndex()  # fmt: skip
    found = answer(model, index, pages=react.Pages(n=2, sentences=1))
    trace = found.value.trace
    assert found.value.text == "1830" and index.asked == [("Strelsau", 2), ("Ruritania", 2)]
    assert found.cost["llm_calls"] == 4 and found.cost["searches"] == 2
    assert [(s["path"], s["ids"]) for s in trace["searches"]] == [
        ("step 1", ["city"]), ("step 2", ["city", "land"]),
    ]  # fmt: skip
    first, second, third, last = trace["steps"]
    assert first["observation"] == "Strelsau: Strelsau is the capital of Ruritania."
    assert second["action"] == "Search[Ruritania]"
    assert third["observation"] == "No more results."  # the page is that of the best, the city
    assert last == {
        "thought": "1830.", "action": "Finish[1830]", "observation": "",
        "raw": [" 1830.\nAction 4: Finish[1830]"],
    }  # fmt: skip
    assert trace["loop"] == {
        "steps": 4, "end": "finish", "repaired": 0, "invalid": 0, "repeats": 0, "dropped": 0,
    }  # fmt: skip
    assert trace["selected"]["ids"] == ["city"]
    assert trace["answer"]["junk"] is False and trace["answer"]["u"] == pytest.approx(1.0)
    assert model.prompts[1].endswith(
        f"Question: {WHEN.text}\nThought 1: I need the land.\nAction 1: Search[Strelsau]\n"
        "Observation 1: Strelsau: Strelsau is the capital of Ruritania.\nThought 2:"
    )
    assert model.settings[0]["max_new_tokens"] == 100
    assert "\nObservation" in model.settings[0]["stop"]


def test_lookups_step_through_the_page():
    page = Page(("It is red.", "No.", "It is big.", "is it? Yes"))
    found = []
    for keyword in ("it is", "It IS", "no", "it is", "it is", "it is", ""):
        text, page = lookup(page, keyword)
        found.append(text)
    assert found == [
        "(Result 1 / 2) It is red.", "(Result 2 / 2) It is big.", "(Result 1 / 1) No.",
        "(Result 1 / 2) It is red.", "(Result 2 / 2) It is big.", None, None,
    ]  # fmt: skip
    assert lookup(Page(), "x")[0] is None


def test_repeated_lookups_end_after_the_page():
    look = "a\nAction: Lookup[it is]"
    model = Turns("a\nAction: Search[Strelsau]", look, look, look, look, look, look)
    trace = answer(model).value.trace
    assert [s["observation"] for s in trace["steps"][1:]] == [
        "(Result 1 / 2) It is old.",
        "(Result 2 / 2) It is red.",
        "No more results.",
        "This was action 4 already; take another one.",
        "This was action 4 already; take another one.",
    ]
    assert trace["loop"]["end"] == "repeated" and trace["loop"]["repeats"] == 2


def test_lookups_restart_on_a_new_page():
    look, lost = "a\nAction: Lookup[tea]", "a\nAction: Lookup[zebra]"
    model = Turns(look, lost, "a\nAction: Search[kingdom]", look, lost, "a\nAction: Finish[x]")
    trace = answer(model).value.trace
    assert trace["steps"][0]["observation"] == "No more results."  # there is no page yet
    assert trace["steps"][3]["observation"] == "(Result 1 / 1) It sells tea."
    assert trace["loop"]["repeats"] == 0


def test_a_missing_action_is_requested_again():
    model = Turns(" I need the land", "Search[Strelsau]\n", " b\nAction 2: Finish[x]")
    found = answer(model)
    trace = found.value.trace
    assert model.prompts[1].endswith("Thought 1: I need the land\nAction 1:")
    assert trace["steps"][0]["action"] == "Search[Strelsau]" and found.value.text == "x"
    assert trace["steps"][0]["raw"] == [" I need the land", "Search[Strelsau]\n"]
    assert trace["loop"]["repaired"] == 1 and trace["loop"]["invalid"] == 0
    assert found.cost["llm_calls"] == 3


def test_a_second_missing_action_is_observed_as_invalid():
    model = Turns("", "dance\nand sing", "b\nAction: Search[]", "b\nAction: Finish[x]")
    trace = answer(model).value.trace
    assert model.prompts[1].endswith("Thought 1: I need an action.\nAction 1:")
    first, second, _ = trace["steps"]
    assert first["action"] == "dance" and second["action"] == "Search[]"
    assert "Use Search[entity]" in first["observation"] == second["observation"]
    assert trace["loop"]["invalid"] == 2 and trace["loop"]["repaired"] == 1
    assert trace["loop"]["end"] == "finish" and "searches" not in trace


def test_repeated_actions_are_not_executed_and_end_the_loop():
    index = WordIndex()
    model = Turns(SEARCH, SEARCH.replace("Strelsau", "STRELSAU!"), SEARCH, SEARCH)
    trace = answer(model, index).value.trace
    assert len(index.asked) == 1 and len(trace["steps"]) == 3
    assert trace["steps"][1]["observation"] == "This was action 1 already; take another one."
    assert trace["loop"]["end"] == "repeated" and trace["loop"]["repeats"] == 2
    once = answer(Turns(SEARCH), repeats=1).value.trace
    assert len(once["steps"]) == 2
    assert answer(Turns(SEARCH), repeats=9).value.trace["loop"]["end"] == "limit"


def test_the_step_limit_gives_no_answer_or_one_from_the_passages():
    searches = [f"a\nAction: Search[{word}]" for word in ("Strelsau", "kingdom", "hill")]
    empty = answer(Turns(*searches, "never"), max_steps=3)
    assert empty.value.text == "" and empty.cost["llm_calls"] == 3
    assert empty.value.trace["answer"] == {
        "text": "", "raw": "", "u": None, "tokens": 0, "finish_reason": "length", "junk": True,
    }  # fmt: skip
    assert empty.value.trace["selected"]["ids"] == ["city", "land", "hill"]
    model = Turns(*searches, " 1830\n")
    asked = answer(model, max_steps=3, on_limit="answer")
    assert asked.value.text == "1830" and asked.cost["llm_calls"] == 4
    assert "Ruritania. A kingdom." in model.prompts[-1] and asked.value.trace["task"] == "open"
    assert asked.value.trace["loop"]["end"] == "limit"
    model = Turns("dance", "dance", "dance", "dance", " 1831\n")
    nothing = answer(model, max_steps=2, on_limit="answer")
    assert nothing.value.text == "1831" and "kingdom" not in model.prompts[-1].split("\n\n")[-1]
    assert "selected" not in nothing.value.trace


def test_search_by_title_matches_exactly():
    model = Turns(
        "a\nAction: Search[the capital of Ruritania]",
        "a\nAction: Search[ruritania]",
        "a\nAction: Finish[x]",
    )
    found = answer(model, pages=react.Pages(by="title", sentences=0)).value.trace["steps"]
    assert found[0]["observation"] == (
        "Could not find the capital of Ruritania. Similar: Strelsau, Ruritania."
    )
    assert found[1]["observation"].startswith("Ruritania: A kingdom. It became free in 1830. It se")


@pytest.mark.parametrize("by", ["rank", "title"])
def test_an_index_that_finds_nothing(by):
    model = Turns("a\nAction: Search[zebra]", "a\nAction: Lookup[x]", "a\nAction: Finish[]")
    trace = answer(model, pages=react.Pages(by=by)).value.trace
    assert trace["steps"][0]["observation"] == "Could not find zebra."
    assert trace["searches"][0]["ids"] == [] and "selected" not in trace
    assert trace["answer"]["text"] == "" and trace["loop"]["end"] == "finish"


def test_lookups_cover_several_shown_passages():
    model = Turns("a\nAction: Search[Ruritania]", "a\nAction: Lookup[tea]", "a\nAction: Finish[x]")
    trace = answer(model, pages=react.Pages(n=2, show=2, sentences=1)).value.trace
    assert trace["steps"][0]["observation"] == (
        "Strelsau: Strelsau is the capital of Ruritania. Ruritania: A kingdom."
    )
    assert trace["steps"][1]["observation"] == "(Result 1 / 1) It sells tea."


def test_history_texts_by_hand():
    past = [Step("a", "Search[x]", "one"), Step("b", "Search[y]", "two")]
    first, second = "Thought 1: a\nAction 1: Search[x]\n", "Thought 2: b\nAction 2: Search[y]\n"
    left = "(left out)\n"
    assert history_texts(past) == [
        f"{first}Observation 1: one\n{second}Observation 2: two\n",
        f"{first}Observation 1: {left}{second}Observation 2: two\n",
        f"{first}Observation 1: {left}{second}Observation 2: {left}",
        f"{second}Observation 2: {left}",
        "",
    ]
    assert history_texts([]) == [""]


LONG = " ".join(["many"] * 200)
ROWS = [Passage(f"p{i}", "", f"word{i} {LONG}") for i in range(3)]
THREE = [f"a\nAction: Search[word{i}]" for i in range(3)]


def test_the_oldest_observations_are_dropped_to_fit_the_context():
    # beside the first prompt and 100 tokens of the step there is room for two observations of 201
    # words with the 9 around each, not for a third
    first = Turns("a\nAction: Finish[x]")
    answer(first)
    room = len(first.prompts[0].split()) + 100 + 3 * 205
    model = Turns(*THREE, "a\nAction: Finish[x]", room=room)
    trace = answer(model, WordIndex(*ROWS)).value.trace
    assert "word0 many" in model.prompts[2] and "word1 many" in model.prompts[2]
    assert "word0 many" not in model.prompts[3] and "Observation 1: (left out)" in model.prompts[3]
    assert "word1 many" in model.prompts[3] and "word2 many" in model.prompts[3]
    assert trace["loop"]["dropped"] == 1 and trace["loop"]["end"] == "finish"
    assert "word0 many" in trace["steps"][0]["observation"]  # the trace keeps them


def test_without_a_tokenizer_characters_limit_the_history():
    # an observation has about 1,010 characters: two fit into 2,500, three do not
    model = Turns(*THREE, "a\nAction: Finish[x]")
    trace = answer(model, WordIndex(*ROWS), characters=2500).value.trace
    assert "word0 many" in model.prompts[2] and "word0 many" not in model.prompts[3]
    assert trace["loop"]["dropped"] == 1
    tiny = answer(Turns(*THREE), WordIndex(*ROWS), characters=1, max_steps=3).value.trace
    assert tiny["loop"]["dropped"] == 4  # of two steps the observations, then the steps


def test_chat_prompts_have_the_same_content():
    model = Turns("Thought: a\nAction: Search[Strelsau]", "dance", "Finish[x]")
    found = answer(model, reader=Reader(prompts="iterative"))
    assert found.value.text == "x"
    assert model.prompts[0] == f"Question: {WHEN.text}\nStep 1:"
    assert model.prompts[1].endswith("It is old. It is red.\nStep 2:")
    assert model.prompts[2].endswith("Thought 2: dance\nAction 2:")


PIECES = (
    "Action: ", "Action 1:", "Search[", "Lookup[", "Finish[", "]", "\n", "Thought 2:", "it", "tea",
    "Strelsau", " ", "[", "{x}", "Observation 1:", "é", "\u2028",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=8).map("".join)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.sampled_from(["empty", "answer"]),
    st.sampled_from(["rank", "title"]),
)
def test_it_terminates_on_any_output(texts, on_limit, by):
    model = Turns(*texts)
    pages = react.Pages(n=2, show=2, by=by)
    found = answer(model, max_steps=5, on_limit=on_limit, pages=pages, characters=300)
    trace = found.value.trace
    assert len(model.prompts) <= 2 * 5 + 1 and isinstance(found.value.text, str)
    assert 1 <= trace["loop"]["steps"] == len(trace["steps"]) <= 5
    assert trace["loop"]["end"] in ("finish", "limit", "repeated")
    assert {*trace["loop"]} == {"steps", "end", "repaired", "invalid", "repeats", "dropped"}
