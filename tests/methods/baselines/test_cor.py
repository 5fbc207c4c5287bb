"""CoR by prompting: whatever the model writes is an order of the passages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods.baselines import cor
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.reader import Reader
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run
from tests.words import word_tokenizer

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}


@pytest.mark.parametrize(
    "text, positions, unknown, duplicate, missing",
    [
        ("[3] [1] [2]", (2, 0, 1), 0, 0, 0),
        ("2 > 3 > 1", (1, 2, 0), 0, 0, 0),
        ("3", (2, 0, 1), 0, 0, 2),  # the others follow in the order of the search
        ("[2] [2] [2]", (1, 0, 2), 0, 2, 2),
        ("[4] [0] [3]", (2, 0, 1), 2, 0, 2),
        ("[12][3]", (2, 0, 1), 1, 0, 2),  # 12 is not 1 and 2
        ("none of them", (0, 1, 2), 0, 0, 3),
        ("", (0, 1, 2), 0, 0, 3),
        ("9" * 5000, (0, 1, 2), 1, 0, 3),
        ("³ ٣ 2", (1, 0, 2), 0, 0, 2),  # digits of other scripts are none
    ],
)
def test_rankings_are_parsed(text, positions, unknown, duplicate, missing):
    assert cor.read_order(text, 3) == (positions, unknown, duplicate, missing)


@settings(deadline=None)
@given(st.text("0123456789[]>, x\n", max_size=40), st.integers(1, 12))
def test_any_text_gives_a_permutation(text, count):
    found = cor.read_order(text, count)
    assert sorted(found.positions) == list(range(count))
    assert 0 <= found.missing <= count
    assert found.positions[count - found.missing :] == tuple(
        sorted(found.positions[count - found.missing :])
    )


def answer(ranking, question=QUESTION, name="baselines", said="Paris", **changed):
    cue = {"baselines": "Rank the passages", "baselines_small": "Ranking:"}[name]
    model = ScriptedModel({cue: ranking, "": said})
    changed = {"candidates": OnePath(n=3), "k": 2, "reader": Reader(prompts=name), **changed}
    index = ScriptedIndex(ANGLES, {"": 0})
    return run(cor.Config(**changed), model, index, question=question), model


@pytest.mark.parametrize("name", ["baselines", "baselines_small"])
def test_the_top_of_the_ranking_is_read(name):
    found, model = answer(" [3] [1] [2]\n[2]", name=name)
    trace = found.value.trace
    assert trace["selected"]["ids"] == ["c", "a"] and found.value.text == "Paris"
    assert trace["ranking"]["ids"] == ["c", "a", "b"]
    assert [trace["ranking"][key] for key in ("unknown", "duplicate", "missing")] == [0, 0, 0]
    ranks, reads = model.prompts
    for number, letter in enumerate("abc", start=1):
        assert f"[{number}] Title {letter}" in ranks
    assert "text of b" not in reads
    assert reads.index("Title c") < reads.index("Title a")
    assert found.cost["llm_calls"] == 2 and found.cost["searches"] == 1
    by_id = {c["id"]: c["score"] for c in trace["selected"]["candidates"]}
    assert trace["selected"]["scores"] == [by_id["c"], by_id["a"]]


def test_an_incomplete_ranking_is_filled_up_and_counted():
    found, _ = answer("the best is 2, then 2, then 7")
    trace = found.value.trace
    assert trace["selected"]["ids"] == ["b", "a"]
    assert [trace["ranking"][key] for key in ("unknown", "duplicate", "missing")] == [1, 1, 2]
    assert trace["ranking"]["raw"] == "the best is 2, then 2, then 7"


def test_passages_cut_from_the_prompt_count_as_unranked():
    cue = "Rank the passages"
    model = ScriptedModel({cue: "[1]", "": "Paris"})
    model.tokenizer = word_tokenizer()
    reader = Reader(prompts="baselines", truncate=True, answer_tokens=1)
    index = ScriptedIndex(ANGLES, {"": 0})

    def run_with(limit):
        model.max_length = limit
        config = cor.Config(OnePath(n=3), k=3, ranking_tokens=4, reader=reader)
        return run(config, model, index).value.trace

    assert "truncated" not in run_with(1000)["ranking"]
    ranks = next(prompt for prompt in model.prompts if cue in prompt)
    cut = run_with(len(ranks.split()) + 4 - 7)  # a passage is six words, "[3] Title c: text of c"
    assert cut["ranking"]["truncated"]["passages"] < 3 and cut["ranking"]["missing"] == 2
    assert cut["selected"]["ids"] == ["a", "b", "c"]
