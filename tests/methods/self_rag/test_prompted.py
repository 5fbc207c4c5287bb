"""Self-RAG emulated by prompts."""

import pytest

from tests.methods.self_rag.reflecting import JUDGED, PROMPTED, Prompted, answered


def test_the_emulation_scores_words_in_the_same_way() -> None:
    model = Prompted({"text of b": (" Rome", [0.5], "end"), "": (" Oslo", [0.5], "end")}, JUDGED)
    found = answered(model, mode="prompted", reader=PROMPTED)
    trace = found.value.trace
    assert trace["mode"] == "prompted emulation" and found.value.text == "Rome"
    assert trace["gate"]["probability"] == pytest.approx(0.75)
    c, b = trace["steps"][0]["beams"][0]["candidates"]
    # utility: -0.1 - 0.05 + 0.05 + 0.6
    for one, relevance in ((c, 0.5), (b, 0.9 / 1.4)):
        assert one["relevance"] == pytest.approx(relevance)
        assert [one["support"], one["utility"], one["sequence"]] == pytest.approx([0.5] * 3)
    last = [prompt.rpartition("\n\n")[2] for prompt, _ in model.scored]
    assert "Passage: Title b. text of b\nQuestion: Where is it?\nAnswer: Rome\nSupported:" in last
    assert "Question: Where is it?\nAnswer so far:\nLook it up?" in last
    assert found.cost["llm_scores"] == 2 + 2 * 10 and found.cost["llm_calls"] == 2


def test_the_emulation_writes_long_answers() -> None:
    said = {
        "Answer: It lies in Oslo.": (" So the answer is Rome.", [0.5], "stop"),
        "": (" It lies in Oslo", [0.5], "stop"),
    }
    model = Prompted(said, JUDGED)
    found = answered(model, mode="prompted", reader=PROMPTED, form="long")
    trace = found.value.trace
    assert found.value.text == "Rome" and len(trace["steps"]) == 2
    assert trace["answer"]["raw"] == "It lies in Oslo. So the answer is Rome."
    graded = [p.rpartition("\n\n")[2] for p, _ in model.scored if p.endswith("Grade:")]
    assert graded[-1].endswith("Answer: It lies in Oslo. So the answer is Rome.\nGrade:")
    asked = [p.rpartition("\n\n")[2] for p, _ in model.scored if p.endswith("Look it up?")]
    assert asked[-1] == "Question: Where is it?\nAnswer so far: It lies in Oslo.\nLook it up?"


def test_the_emulation_can_answer_without_retrieval() -> None:
    never = {**JUDGED, "Look it up?": {"Yes": 0.1, "No": 0.9}}
    model = Prompted({"": (" Rome", [0.5], "end")}, never)
    found = answered(model, mode="prompted", reader=PROMPTED)
    assert found.value.text == "Rome" and "searches" not in found.cost
    assert found.cost["llm_scores"] == 2 + 5  # retrieval, utility
