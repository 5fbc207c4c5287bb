"""Self-RAG: decisions and scores of short answers on scripts, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.methods.self_rag import reflection
from jaxrag.steps import prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError, Question
from tests.methods.self_rag.reflecting import (
    BAD,
    GOOD,
    JUDGED,
    OPENING,
    Prompted,
    Reflecting,
    answered,
    needs,
)


def test_a_checkpoint_reads_each_passage_alone_and_takes_the_best() -> None:
    model = Reflecting(
        {"text of c": ("Oslo.", [0.5, 0.5], "end"), "text of b": ("Rome.", [0.5, 0.125], "end")},
        {"text of c": BAD, "text of b": GOOD, "Response": needs(0.75)},
    )
    found = answered(model)
    trace = found.value.trace
    assert found.value.text == "Rome." and trace["mode"] == "checkpoint"
    assert trace["gate"] == {
        "name": "self_rag", "retrieve": True, "probability": pytest.approx(0.75), "threshold": 0.2,
    }  # fmt: skip
    assert trace["searches"][0]["ids"] == ["c", "b"] and trace["selected"]["ids"] == ["b"]
    first, second = trace["steps"][0]["beams"][0]["candidates"]
    # c: 0.25 / 1; support 1.5 * 0.125 of 0.75 + 2 * 0.125 = 1; all grades alike; exp of mean
    assert [first[k] for k in ("relevance", "support", "utility", "sequence")] == pytest.approx(
        [0.25, 0.1875, 0.0, 0.5], abs=1e-6
    )
    # b: fully 0.5, the others 0.125 each: (0.5 + 0.0625) / 0.75; grades 0.5 and 4 * 0.125: the
    # mean is (0.5 - 0.125 - 0.0625 + 0.0625) / 1; root of 1 / 16
    parts = [0.75, 0.75, 0.375, 0.25]
    keys = ("relevance", "support", "utility", "sequence")
    assert [second[k] for k in keys] == pytest.approx(parts, abs=1e-6)
    assert second["total"] == pytest.approx(0.75 + 0.75 + 0.5 * 0.375 + 0.25, abs=1e-6)
    assert second["path"] == second["total"] == trace["chosen"]["score"]
    # 3 tokens for retrieval, then 2, 3 and 5 for each passage
    assert found.cost["llm_scores"] == 3 + 2 * 10 and found.cost["llm_calls"] == 2
    assert found.cost["searches"] == 1


def test_prompts_of_a_checkpoint() -> None:
    model = Reflecting(
        {"text of c": (" Oslo.", [0.5], "end"), "": (" Rome.", [0.5], "end")},
        {"text of c": BAD, "text of b": GOOD, "": needs(0.75)},
    )
    answered(model)
    shown = {name: f"{OPENING}[Retrieval]<paragraph>Title {name}\ntext of {name}</paragraph>"
             for name in "bc"}  # fmt: skip
    assert sorted(model.prompts) == [f"{shown['b']}[Relevant]", f"{shown['c']}[Irrelevant]"]
    asked = {prompt for prompt, _ in model.scored}
    c, b = f"{shown['c']}[Irrelevant] Oslo.", f"{shown['b']}[Relevant] Rome."
    assert asked == {
        OPENING, *shown.values(), c, b,
        f"{c}[No support / Contradictory]", f"{b}[Fully supported]",
    }  # fmt: skip
    assert {w for p, w in model.scored if p == c} == {*reflection.SUPPORT}
    assert {w for p, w in model.scored if p == f"{b}[Fully supported]"} == {*reflection.UTILITY}
    assert model.settings[0]["max_new_tokens"] == 9


@pytest.mark.parametrize(
    "probability, settings, retrieve",
    [
        (0.06, {}, False),  # 0.06 / 0.31 is not above 0.2, 0.07 / 0.32 is
        (0.07, {}, True),
        (0.75, {"threshold": 0.76}, False),
        (0.75, {"retrieve": "never"}, False),
        (0.01, {"retrieve": "always"}, True),
        # ln 0.5 / (ln 0.5 + ln 0.25) = 1 / 3: above; as probabilities 2 / 3
        (0.5, {"fidelity": "released", "threshold": 0.4}, False),
        (0.5, {"fidelity": "paper", "threshold": 0.4}, True),
    ],
)
def test_when_it_retrieves(probability: float, settings: Any, retrieve: bool) -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": needs(probability)})
    found = answered(model, **settings)
    trace = found.value.trace
    assert trace["gate"]["retrieve"] is retrieve and ("searches" in trace) is retrieve
    asked = settings.get("retrieve", "adaptive") == "adaptive"
    assert (trace["gate"]["probability"] is not None) is asked
    assert ("selected" in trace) is retrieve
    if not retrieve:
        assert model.prompts == [f"{OPENING}[No Retrieval]"]
        (only,) = trace["steps"][0]["beams"][0]["candidates"]
        assert only["id"] is None and only["relevance"] == only["support"] == 0


def test_equal_scores_go_to_the_first_found() -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": needs(0.75)})
    assert answered(model).value.trace["selected"]["ids"] == ["c"]


def test_closed_questions_sum_the_scores_of_each_option() -> None:
    question = Question("f", "Ice is warm.", ("false",), task="fact_checking")
    good = {f"text of {name}": {"[Relevant]": 0.5, "[Irrelevant]": 0.25} for name in "bd"}
    model = Reflecting(
        {"text of c": ("true", [0.9], "end"), "": ("It is false.", [0.9], "end")},
        {"text of c": {**GOOD}, **good, "": needs(0.75)},
    )
    three = {"candidates": OnePath(n=3), "select": Top(k=3)}
    found = answered(model, question, **three)
    trace = found.value.trace
    scores = {c["id"]: c["total"] for c in trace["steps"][0]["beams"][0]["candidates"]}
    assert scores["c"] > max(scores["b"], scores["d"])  # alone, the other answer would win
    assert trace["options"] == pytest.approx(
        {"true": scores["c"], "false": scores["b"] + scores["d"]}
    )
    assert found.value.text == "It is false." and trace["selected"]["ids"] == ["b"]
    assert trace["option"] == {"said": 1, "gold": 1, "positive": True}
    assert model.settings[0]["max_new_tokens"] == 50
    assert "say true where it is correct" in model.prompts[0]


def test_incompatible_prompts_are_refused() -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {})
    with pytest.raises(InputError, match=r"\[direct\] is a chat; a Self-RAG checkpoint continues"):
        answered(model, reader=Reader(prompts="self_rag"))
    with pytest.raises(InputError, match=r"\[retrieval_needed\], which this method uses"):
        answered(model, mode="prompted", reader=Reader(prompts="small"))


@pytest.mark.parametrize("name", ["self_rag", "self_rag_small"])
def test_prompts_have_the_required_verdict_words(name: str, tmp_path: Path) -> None:
    layout = prompts.load(name)
    for role, count in {"retrieval_needed": 2, "relevance": 2, "support": 3, "utility": 5}.items():
        template = layout.role(role)
        assert len(set(template.words)) == count and template.chat == (name == "self_rag")
        for _, reply in template.demonstrations:
            assert reply in template.words
    short = tmp_path / "short.toml"
    role = 'user = "{question} {so_far}"\nchat = false\nwords = ["yes"]'
    short.write_text(f'extends = "{name}"\n[retrieval_needed]\n{role}\n')
    model = Prompted({"": ("Rome.", [0.5], "end")}, JUDGED)
    with pytest.raises(InputError, match=r"has the words \['yes'\]; give 2"):
        answered(model, mode="prompted", reader=Reader(prompts=str(short)))


def test_a_failure_reaches_the_question() -> None:
    class Broken(Reflecting):
        def logprob(self, prompts: Any, continuations: Any) -> Any:
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        answered(Broken({"": ("Rome.", [0.5], "end")}, {}))
