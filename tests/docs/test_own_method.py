"""The README's method, and the example of a search agent, run as a reader would."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from examples.own_method import SearchAgent
from jaxrag.evaluation import metrics
from jaxrag.methods import dtr
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import needs_of
from tests.scripted import ScriptedIndex, ScriptedModel, run

README = Path(__file__).parents[2] / "README.md"
INDEX = ({"a": 10, "b": 20, "c": 30, "d": 90}, {"capital": 90, "Rome": 30, "Where": 0})


def of_readme(name: str) -> Any:
    """A class in a block of Python of the README."""
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)
                if f"class {name}" in text)  # fmt: skip
    names: dict[str, Any] = {"__name__": __name__, "dataclasses": dataclasses}
    exec(block, names)
    return names[name]


def test_the_method_of_the_readme_is_recorded_whole():
    method = of_readme("Twice")(k=2)
    model = ScriptedModel(["Rome", "Paris"])
    ended = run(method, model, ScriptedIndex(*INDEX))
    trace, record = ended.value.trace, {"trace": ended.value.trace, "gold_passages": ["c", "x"]}
    assert ended.value.text == "Paris" and ended.cost["searches"] == 1
    assert trace["direct"]["text"] == "Rome" and trace["task"] == "open"
    assert trace["searches"][0]["query"] == "Where is it? Rome"
    assert trace["selected"]["ids"] == trace["searches"][0]["ids"] and "x" not in trace["selected"]
    assert metrics.gate(record) == {"retriever_activation": 1.0, "trigger": 1.0}
    assert metrics.retrieval(record)["recall"] == 0.5
    assert needs_of(method).search and not needs_of(method).logprobs


def test_the_gate_of_the_readme_decides():
    for said, retrieved in (("Rome", True), ("in Rome", False)):
        gate, reader = of_readme("ShortAnswers")(), Reader(prompts="small")
        method = dtr.Config(gate, OnePath(n=2), Top(k=1), reader, name="short_answers")
        ended = run(method, ScriptedModel([said]), ScriptedIndex(*INDEX))
        assert ended.value.trace["gate"]["retrieve"] == retrieved == ("searches" in ended.cost)


def test_the_search_agent_reads_what_it_found():
    model = ScriptedModel(["I look it up. <search>capital", "Found. <answer> Rome "])
    ended = run(dataclasses.replace(SearchAgent(), k=1), model, ScriptedIndex(*INDEX))
    assert ended.value.text == "Rome" and not ended.value.trace["answer"]["junk"]
    assert "<information>Title d. text of d</information>" in model.prompts[1]
    (search,) = ended.value.trace["searches"]
    assert (search["path"], search["query"]) == ("turn 1", "capital")
    assert ended.value.trace["selected"]["ids"] == ["d"]


def test_a_search_agent_without_an_answer_ends():
    ended = run(SearchAgent(turns=2), ScriptedModel("<search>capital"), ScriptedIndex(*INDEX))
    assert ended.value.text == "" and ended.value.trace["answer"]["junk"]
    assert len(ended.value.trace["searches"]) == 2
