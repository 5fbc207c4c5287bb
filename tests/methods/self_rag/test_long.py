"""Self-RAG: long answers, grown segment by segment, on scripts."""

import pytest

from tests.methods.self_rag.reflecting import GOOD, LONG, Reflecting, answered, needs


def test_a_long_answer_grows_by_sentences() -> None:
    model = Reflecting(
        {
            # the second sentences, then the first: the paragraph is in none but its own
            "It lies in Oslo.[Fully supported][Retrieval]<paragraph>Title e": (
                "North",
                [0.5],
                "end",
            ),
            "It lies in Oslo.[Fully supported]": ("South.", [0.5], "end"),
            "Nowhere.[Fully supported]": ("", [0.5], "end"),
            "text of c": ("It lies in Oslo", [0.5], "stop"),
            "text of b": ("Nowhere", [0.5], "stop"),
        },
        {"text of e": {**GOOD}, "text of c": {**GOOD}, "": {"[Relevant]": 0.25}},
    )
    found = answered(model, **LONG)
    trace = found.value.trace
    assert found.value.text == trace["answer"]["raw"] == "It lies in Oslo. North"
    assert [step["segment"] for step in trace["steps"]] == [1, 2]
    # the second search is for the question and the last sentence
    queries = [search["query"] for search in trace["searches"]]
    assert queries == ["Where is it?", "Where is it? It lies in Oslo.", "Where is it? Nowhere."]
    assert [s["path"] for s in trace["searches"]] == ["segment 1", "segment 2", "segment 2"]
    assert trace["selected"]["ids"] == ["c", "e"]
    first = trace["steps"][0]["beams"][0]["candidates"][0]
    grown, over = trace["steps"][1]["beams"]
    assert grown["so_far"] == "It lies in Oslo." and over["candidates"] == []
    best = next(c for c in grown["candidates"] if c["id"] == "e")
    assert best["path"] == pytest.approx((first["total"] + best["total"]) / 2)
    assert model.settings[0]["max_new_tokens"] == 64 and ". " in model.settings[0]["stop"]
    assert trace["answer"]["tokens"] == 2


def test_long_answers_of_the_released_code() -> None:
    said = {"It lies in Oslo.[": ("North", [0.5], "stop"), "": ("It lies in Oslo", [0.5], "stop")}
    model = Reflecting(said, {"": {**GOOD}})
    found = answered(model, **LONG, fidelity="released", depth=3)
    trace = found.value.trace
    # one search serves all, and depth 3 makes 2 segments
    assert found.cost["searches"] == 1 and len(trace["steps"]) == 2
    assert trace["searches"][0]["query"] == "Where is it?"
    # relevance 0.75 and support 0.75, without utility and sequence; both segments alike
    assert trace["chosen"]["score"] == pytest.approx(1.5 * 1.5, abs=1e-5)


@pytest.mark.parametrize("depth", [1, 3])
def test_it_ends_at_its_depth(depth: int) -> None:
    model = Reflecting({"": ("So it goes on", [0.5], "stop")}, {})
    found = answered(model, **LONG, depth=depth, beam=2)
    assert len(found.value.trace["steps"]) == depth
    assert found.value.text == " ".join(["So it goes on."] * depth)
    # 2 passages for one beam, then for two beams
    assert found.cost["llm_calls"] == 2 + 4 * (depth - 1)


def test_passages_are_reused_by_later_segments() -> None:
    again = {"[Continue to Use Evidence]": 0.9, "[Retrieval]": 0.05, "[No Retrieval]": 0.05}
    model = Reflecting(
        {"It lies there.": ("North", [0.5], "end"), "text of c": ("It lies there", [0.5], "stop"),
         "": ("", [0.5], "end")},
        {"text of c": GOOD, "It lies there.": again, "": needs(0.75)},
    )  # fmt: skip
    found = answered(model, form="long", beam=1)
    assert [b["decision"] for s in found.value.trace["steps"] for b in s["beams"]] == [
        "retrieve", "continue",
    ]  # fmt: skip
    assert found.cost["searches"] == 1 and found.value.trace["selected"]["ids"] == ["c"]
    assert "text of c" in model.prompts[-1]


def test_without_earlier_passages_none_are_reused() -> None:
    again = {"[Continue to Use Evidence]": 0.9, **needs(0.05)}
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": again})
    trace = answered(model, form="long").value.trace
    assert trace["steps"][0]["beams"][0]["decision"] == "no"


def test_empty_output_is_an_empty_answer() -> None:
    model = Reflecting({"": ("", [0.5], "end")}, {})
    found = answered(model, **LONG)
    assert found.value.text == "" and found.value.trace["answer"]["u"] is None
    assert len(found.value.trace["steps"]) == 1
