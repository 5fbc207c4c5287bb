"""The documents' method and gate, and the example of a search agent, run as a reader would."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from examples.own_method import SearchAgent
from jaxrag.evaluation import metrics
from jaxrag.methods import dtr
from jaxrag.runs.config_file import load
from jaxrag.runs.edits import edited
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import needs_of
from jaxrag.types import InputError
from tests.scripted import ScriptedIndex, ScriptedModel, run

ROOT = Path(__file__).parents[2]
TEXT = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/extend.md"))
INDEX = ({"a": 10, "b": 20, "c": 30, "d": 90}, {"capital": 90, "Rome": 30, "Where": 0})


def documented_block(name: str) -> str:
    """The block of Python in the documents that has a class."""
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (block,) = (text for text in blocks if f"class {name}" in text)
    return block


def documented(name: str) -> Any:
    """A class of the documents."""
    names: dict[str, Any] = {"__name__": __name__, "dataclasses": dataclasses}
    exec(documented_block(name), names)
    return names[name]


def test_a_file_of_ones_own_has_the_method_and_the_gate(tmp_path: Path, monkeypatch: Any):
    (tmp_path / "twice.py").write_text(documented_block("Twice"))
    gate = documented_block("ShortAnswers")
    (tmp_path / "short.py").write_text(gate + "\n\n@dataclasses.dataclass\nclass Other: pass\n")
    monkeypatch.chdir(tmp_path)
    config = load("configs/dtr.py:dtr@tiny")
    run = edited(config, {"method": "twice.py:Twice", "method.k": "3"})
    assert (type(run.method).__name__, run.method.k, run.name) == ("Twice", 3, "twice")
    changes = {"method.gate": f"{tmp_path}/short.py:ShortAnswers", "method.gate.longest": "2"}
    assert edited(config, changes).method.gate.longest == 2
    for told, wrong in {
        "method is 'twice.py:Twic': twice.py has no dataclass Twic; it has Twice": "twice.py:Twic",
        "there is no file nowhere.py": "nowhere.py:Twice",
        "does not fit there: it lacks name, reader, answer": "short.py:Other",
    }.items():
        with pytest.raises(InputError, match=told):
            edited(config, {"method": wrong})
    with pytest.raises(InputError, match="the nearest is --config"):
        edited(config, {"method": "twice.py:Twice", "method.kk": "3"})
    made = "\n    def __post_init__(self):\n        1 / 0"
    for said, added in {r", line \d+: Zero": made, "NameError": "\n    n: Missing = 1"}.items():
        (tmp_path / "wrong.py").write_text(f"from __future__ import annotations\n{gate}{added}\n")
        with pytest.raises(InputError, match=rf"wrong\.py.*{said}"):
            edited(config, {"method.gate": "wrong.py:ShortAnswers", "method.gate.longest": "2"})


def test_the_method_of_the_readme_is_recorded_whole():
    method = documented("Twice")(k=2)
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


def test_the_documented_gate_decides():
    for said, retrieved in (("Rome", True), ("in Rome", False)):
        gate, reader = documented("ShortAnswers")(), Reader(prompts="small")
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
