"""Adaptive-RAG on scripts: what the classifier is asked, the three strategies, and their labels."""

import dataclasses

import pytest

from jaxrag.methods.iterative import adaptive_labels, adaptive_rag
from jaxrag.methods.iterative.adaptive_rag import Classified, OneStrategy
from jaxrag.methods.iterative.ircot import Interleaving
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import needs_of
from jaxrag.types import InputError, Question
from tests.methods.iterative.turns import WHEN, Turns, WordIndex, run
from tests.scripted import ScriptedModel

READER = Reader(prompts="iterative_small")
SHARED = {
    "candidates": OnePath(n=1), "select": Top(k=1), "loop": Interleaving(k=1, max_steps=2),
    "reader": READER,
}  # fmt: skip
REASON = ["Strelsau is Ruritania's.", "So the answer is: 1830."]


def answer(model, classifier=None, question=WHEN, **config):
    config = adaptive_rag.Config(**{**SHARED, **config})
    return run(config, model, WordIndex(), question, classifier=classifier)


@pytest.mark.parametrize(
    "scores, label",
    [
        ({"A": [-1.0], "B": [-2.0], "C": [-3.0]}, "A"),
        ({"A": [-1.0, -1.5], "B": [-2.0], "C": [-3.0]}, "B"),  # -2.5 against -2
        ({"A": [-4.0], "B": [-3.5], "C": [-3.0]}, "C"),
        ({"A": [-3.0], "B": [-1.0], "C": [-1.0]}, "B"),  # a tie goes to the simpler
    ],
)
def test_the_most_probable_label_decides(scores, label):
    model, classifier = Turns(*REASON), ScriptedModel(scores=scores)
    trace = answer(model, classifier).value.trace
    assert trace["complexity"]["label"] == label
    assert trace["complexity"]["logprobs"] == [sum(scores[name]) for name in "ABC"]
    asked = f"Question: {WHEN.text}\nComplexity:"
    assert classifier.scored == [(asked, "A"), (asked, "B"), (asked, "C")]
    strategy = {"A": "none", "B": "single", "C": "multi"}[label]
    assert ("searches" in trace) == (label != "A")
    assert trace["gate"] == {
        "name": "adaptive_rag", "retrieve": label != "A", "strategy": strategy,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text, label, junk",
    [(" A\n", "A", False), ("it is C.", "C", False), ("ABC", "B", True), ("", "B", True)],
)
def test_the_written_label_decides(text, label, junk):
    trace = answer(
        Turns(*REASON), ScriptedModel(text), complexity=Classified(asked="text")
    ).value.trace
    assert trace["complexity"] == {"label": label, "raw": text, "junk": junk}


def test_a_classifier_is_needed():
    config = adaptive_rag.Config()
    ((field, helper),) = needs_of(config).helpers.items()
    checkpoint = r"give --config\.method\.complexity\.classifier\.checkpoint="
    with pytest.raises(InputError, match=checkpoint):
        helper.check(f"config.method.{field}")
    assert helper.scores and not needs_of(config).scores  # of the classifier, not the run's model
    for strategy in ("none", "single", "multi"):
        fixed = needs_of(dataclasses.replace(config, complexity=OneStrategy(strategy)))
        assert not fixed.helpers and fixed.search
    nothing = adaptive_rag.Config(candidates=None, complexity=OneStrategy("none"))
    assert not needs_of(nothing).search


def test_the_prompts_must_name_three_labels(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text('extends = "iterative_small"\n[complexity]\nuser = "{question}"\nwords = ["A"]')
    with pytest.raises(InputError, match=r"\[complexity\] has the words \['A'\]; give 3"):
        adaptive_rag.classifier_template(str(path))


def labels(direct, single, multi, question=WHEN, **config):
    config = adaptive_labels.Config(**{**SHARED, **config})

    def says(prompt, settings):
        last = prompt.rpartition("\n\n")[2]
        if "Reasoning:" in last:
            return f"So the answer is: {multi}."
        return single if "capital of Ruritania. It is old" in last else direct

    model = ScriptedModel(says)
    return run(config, model, WordIndex(), question)


@pytest.mark.parametrize(
    "said, silver",
    [
        (("1830", "1830", "1830"), "none"),
        (("1829", "1830", "1831"), "single"),
        (("1829", "1831", "1830"), "multi"),
        (("1830", "1831", "1832"), "none"),
        (("1829", "1831", "1832"), None),
    ],
)
@pytest.mark.parametrize("bias", ["single", "multi", "drop"])
def test_the_simplest_right_strategy_is_the_label(said, silver, bias):
    found = labels(*said, bias=bias)
    trace = found.value.trace
    learned = silver or {"single": "single", "multi": "multi", "drop": None}[bias]
    assert trace["label"] == {"silver": silver, "strategy": learned}
    told = trace["strategies"]
    assert [told[name]["text"] for name in ("none", "single", "multi")] == list(said)
    assert [told[name]["right"] for name in told] == [int(text == "1830") for text in said]
    assert found.value.text == said[2] and trace["answer"]["text"] == said[2]
    # one search of "single" and the first one of the loop, whose only sentence states the answer
    assert [s["path"] for s in trace["searches"]] == ["q", "question"]
    assert found.cost["llm_calls"] == 3


def test_correctness_rule_is_a_setting():
    said = ("in 1830", "x", "x")
    assert labels(*said).value.trace["label"]["silver"] is None
    assert labels(*said, right="contains").value.trace["label"]["silver"] == "none"


def test_without_a_gold_answer_there_is_no_label():
    with pytest.raises(InputError, match="Question q has no gold answer"):
        labels("a", "b", "c", Question("q", "Where?", ()))
