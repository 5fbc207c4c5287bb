"""Answers, searches and reports from Python: what is shown, errors, event loops."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import jaxrag
from jaxrag.api.rag import TracedAnswer
from jaxrag.core.progress import _console
from jaxrag.evaluation.report.trace import trace_steps
from jaxrag.experiments import ask
from jaxrag.types import EngineDown, Passage, Question
from tests.api.small_configs import write_small_configs

TEXT = "a text"
TRACE = {
    "direct": {"text": TEXT, "u": 0.61, "raw": TEXT + " more"},
    "gate": {"name": "nll", "retrieve": True, "value": 0.61, "threshold": 0.4},
    "pseudo_context": TEXT,
    "searches": [
        {"path": "q", "query": "who", "ids": ["a", "b"], "scores": [0.9, 0.8]},
        {"path": "p", "query": TEXT, "ids": ["c"], "scores": [0.7]},
    ],
    "selected": {
        "ids": ["b"],
        "scores": [-0.2],
        "candidates": [{"id": "b", "s1": 0.8, "s2": 0.5, "score": -0.2}],
    },
    "loop": {TEXT: [TEXT]},
    "answer": {"text": "two", "raw": "two\nthree"},
}
PASSAGES = {"b": Passage("b", TEXT, TEXT)}
COST = {"llm_calls": 3, "prompt_tokens": 1200}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_small_configs(tmp_path_factory.mktemp("small"))
    return f"{folder / 'configs' / 'dtr.py'}:dtr@tiny"


def test_the_trace_has_all_steps_in_order() -> None:
    steps = trace_steps(TRACE, PASSAGES, "two")
    assert [step.heading for step in steps] == [
        "Direct answer, uncertainty u = 0.61 nats a token",
        "Decision",
        "Pseudo-context, written by the model",
        "Search by the question",
        "Search by the pseudo-context",
        "Given to the reader: 1 of 1 passages",
        "Loop",
        "Answer",
    ]
    assert steps[1].reason == "u = 0.61 is above the threshold 0.4: it retrieves"
    assert [line.kept for line in steps[3].passages] == [False, True]
    assert steps[5].passages[0].scores == "-0.200 (question 0.800, pseudo-context 0.500)"
    assert (
        "the highest scores" in steps[5].reason
        and steps[-1].reason == "the model wrote: two\nthree"
    )


def test_passages_without_scores_are_shown() -> None:
    step, _ = trace_steps({"selected": {"ids": ["b"]}}, PASSAGES, "two")
    assert step.heading == "Given to the reader: 1 passage"
    assert [(line.passage.id, line.scores) for line in step.passages] == [("b", "")]


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        (
            {"name": "nll", "retrieve": False, "value": 0.1, "threshold": 0.4},
            "u = 0.1 is not above the threshold 0.4: it answers without retrieval",
        ),
        (
            {"name": "nll", "retrieve": True, "value": None, "threshold": 0.4},
            "u = ∞ (empty answer) is above the threshold 0.4: it retrieves",
        ),
        (
            {"name": "agreement", "retrieve": True, "agree": False, "second": {"text": "x"}},
            "the direct answer and “x”, read from a passage that the model wrote, differ: "
            "it retrieves",
        ),
        ({"name": "judge", "retrieve": True, "verdict": "Yes"}, "“Yes”: it retrieves (judge)"),
        (
            {"name": "short", "retrieve": True, "value": 1, "threshold": 1},
            "short = 1, threshold 1: it retrieves",
        ),
        ({"name": "seakr", "retrieve": True, "threshold": 2.0}, "it retrieves (seakr)"),
    ],
)
def test_decisions_are_explained(gate: dict[str, Any], reason: str) -> None:
    assert trace_steps({"gate": gate}, {}, "a")[0].reason == reason


def test_answers_are_those_of_a_run_and_work_inside_an_event_loop(
    config: str, tmp_path: Path
) -> None:
    rag = jaxrag.load(config)
    dataset = rag.settings.data.load(Path(rag.settings.cache))
    questions = dataset.questions[:4]

    async def inside() -> list[TracedAnswer]:
        return rag.answers([question.text for question in questions])

    answers = asyncio.run(inside())
    results = jaxrag.run(rag, tmp_path / "run")
    recorded = [(r["prediction"], r["cost"]) for r in read(tmp_path / "run")]
    assert [(one.text, one.cost) for one in answers] == recorded
    assert results.rows[0].answered == 4 and str(results) in repr(results)
    one = rag.answer(questions[0])
    assert (one.text, one.question) == (answers[0].text, questions[0])
    names = {name for search in one.trace["searches"] for name in search["ids"]}
    assert {*one.passages} == names and "<details>" in one._repr_html_()
    page = jaxrag.report(results)
    assert page._repr_html_().startswith('<iframe sandbox="allow-scripts"')
    assert all(figure._repr_svg_().startswith("<svg") for figure in page.figures)
    assert all(tag in results._repr_html_() for tag in ("<table>", "<th>", "<td>"))


def read(path: Path) -> Any:
    from jaxrag.evaluation.records import read_run

    return read_run(path).records


def test_search_returns_passages_with_scores(config: str) -> None:
    found = jaxrag.search(config, "the 3 of 2", k=3)
    assert len(found) == 3 and list(found.scores) == sorted(found.scores, reverse=True)
    assert found.passages[0].text in str(found) and "<th>score</th>" in found._repr_html_()


def test_bad_input_is_named(config: str) -> None:
    rag = jaxrag.load(config)
    with pytest.raises(jaxrag.InputError, match="question 2 is empty"):
        rag.answers(["a", " "])
    with pytest.raises(jaxrag.InputError, match="takes a list of questions"):
        rag.answers("a")
    with pytest.raises(jaxrag.InputError, match="k is 0"):
        rag.search("a", 0)
    with pytest.raises(jaxrag.InputError, match="the nearest is"):
        rag.changed({"method.gate.treshold": 1})
    with pytest.raises(jaxrag.InputError, match="at least one run directory"):
        jaxrag.compare()
    with pytest.raises(jaxrag.InputError, match="there is no such directory"):
        jaxrag.compare("nowhere")


def test_a_failing_model_raises(config: str, monkeypatch: Any) -> None:
    from jaxrag.engines.local.engine import LocalModel

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(LocalModel, "generate_each", fails)
    with pytest.raises(RuntimeError, match="no luck"):
        jaxrag.load(config).answer(Question("new", "a question that no store has", ()))


def test_the_script_prints_the_trace(config: str, capsys: Any) -> None:
    assert ask.main(["ask", "--config", config, "is a b 1", "is b c 2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("1. Direct answer") == 2 and "Answer" in shown
    with pytest.raises(jaxrag.InputError, match="give a question in quotes"):
        ask.main(["ask", "--config", config])


def test_a_server_that_is_not_there_is_named_within_seconds(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "_PATIENCE", 1.0)
    server = ["--config.model=Server", "--config.model.model=m"]
    server += ["--config.model.urls=http://127.0.0.1:9/v1"]
    began = time.monotonic()
    with pytest.raises(EngineDown, match=r"within 1 s .*127\.0\.0\.1:9/v1/models"):
        ask.main(["ask", "--config", config, *server, "who"])
    assert time.monotonic() - began < 9
    # a patience that is given counts, be it that of runs
    opened: list[Any] = []
    monkeypatch.setattr(ask.Rag, "answers", lambda rag, _: opened.append(rag.settings) or [])
    ask.main(["ask", "--config", config, *server, "--config.model.patience=900", "who"])
    assert opened[0].model.patience == 900


def test_in_a_notebook_text_is_returned_and_not_printed_into_the_cell(monkeypatch: Any) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernels of notebooks do
    answer = TracedAnswer(Question("q", "who", ()), "two", TRACE, COST, PASSAGES)
    assert str(answer).startswith("who\n\n1. Direct answer") and "\x1b" not in str(answer)
    # rich's progress bars need ipywidgets in a notebook and warn without them
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not _console().is_jupyter
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert _console().is_jupyter
