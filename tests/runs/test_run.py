"""What a run has come to so far, counted by hand; and checkpoints that saw its questions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.data.dataset import Dataset
from jaxrag.data.folder import Folder
from jaxrag.data.leakage import write_trained_on
from jaxrag.engines.local.engine import Local
from jaxrag.engines.scheduler import QuestionOutcome
from jaxrag.engines.server import Server
from jaxrag.methods.ars import ars
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.strategies import Chosen, Ranked
from jaxrag.methods.errr import queries, rrr
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL, STANDARD_RAG
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.scann import index as scann_index
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs import parts
from jaxrag.runs.parts import load_questions, load_tools, with_loadable_index
from jaxrag.runs.run import Run, execute
from jaxrag.runs.run_record import settings_record
from jaxrag.runs.tally import Failures, Tally
from jaxrag.steps.gates import JudgeGate
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import ModelHelper, Needs
from jaxrag.types import EngineDown, InputError, Question
from tests.scripted import ScriptedModel

COST = {"llm_calls": 2, "prompt_tokens": 700, "new_tokens": 10, "searches": 1}


def test_a_mistake_in_a_method_is_told_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(episode: Any) -> None:
        await episode.serch()

    with pytest.raises(AttributeError) as caught:
        answer(object()).send(None)
    ended = QuestionOutcome(Question("q", "?", ()), None, caught.value, {}, 0.0, 0, 0.0, 0)
    Failures().report([ended])
    line = answer.__code__.co_firstlineno + 1
    assert f"{__file__}, line {line}: AttributeError: 'object' object has no" in caplog.text


def test_counts() -> None:
    tally = Tally()
    tally.request("search", 1000)
    tally.request("generate", 128)
    tally.request("search", 500)
    assert tally.note() == "requests answered: generate 128, search 1.5k"
    retrieved = {"gate": {"retrieve": True}, "truncated": {"passages": 1}}
    tally.add(
        [
            {"question_id": "a", "trace": retrieved, "cost": COST},
            {"question_id": "b", "trace": {"gate": {"retrieve": False}}, "cost": COST},
            {"question_id": "c", "error": "InputError: no"},
        ],
        [{"store_hits": 3}, {"store_hits": 1}],
    )
    none = {"gate": {"retrieve": True}, "searches": [{"ids": ["p"]}, {"ids": []}, {"ids": []}]}
    tally.add([{"question_id": "d", "trace": none, "cost": COST}], [])
    # three answered, two of them retrieved: 67 %; 3 x 710 tokens; 3 + 1 hits
    assert tally.fields() == {
        "empty_searches": 1,
        "errors": 1,
        "llm_calls": 6,
        "new_tokens": 30,
        "prompt_tokens": 2100,
        "questions": 4,
        "retrieved": 2,
        "searches": 3,
        "store_hits": 4,
        "truncated": 1,
    }
    assert tally.note() == (
        "retrieves 67 %, 6 LLM calls, 2.13k tokens, 4 from the store, 1 with passages cut, 1 errors"
    )


RRR_INPUT = queries.StudentInput(context=False)
SEEN = {
    "order.ranker": lambda path: ars.Config(order=Ranked(ranker=RewriteRanker(path))),
    "count.bandit": lambda path: ars.Config(count=Chosen(CountBandit(path))),
    "rewriter.model": lambda path: rrr.Config(rewriter=queries.Trained(RRR_INPUT, Local(path))),
}


@pytest.mark.parametrize("field", SEEN)
def test_a_helper_that_was_trained_on_evaluated_questions_is_refused(
    field: str, tmp_path: Path
) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    for directory in (data, checkpoint):
        directory.mkdir()
    row = {"id": "q", "question": "Who is it?", "answers": ["a"]}
    (data / "queries.jsonl").write_text(json.dumps(row) + "\n")
    (data / "corpus.jsonl").write_text('{"id": "p", "text": "a text"}\n')
    run = Run(SEEN[field](str(checkpoint)), Folder(str(data)), Local())
    write_trained_on(checkpoint, ["where is it"])
    load_questions(run, tmp_path / "cache")
    write_trained_on(checkpoint, ["who is it"])
    told = rf"config\.method\.{field}\.checkpoint .* was trained on 1 of"
    with pytest.raises(InputError, match=told):
        load_questions(run, tmp_path / "cache")


@dataclasses.dataclass(frozen=True)
class NotedParts:
    """Method, model, reranker and helper at once; each notes in ``order`` when it is loaded."""

    order: list[str] = dataclasses.field(default_factory=list, hash=False, compare=False)
    checkpoint: str | None = ""
    name = "noted"
    dtype = identity = ""
    logprobs: bool = False
    model_gives: bool = True

    @property
    def needs(self) -> Needs:
        helpers: dict[str, Any] = {"part": NotedHelper(self.order)}
        return Needs(search=True, reranker=True, logprobs=self.logprobs, helpers=helpers)

    def load(self, cache: Path) -> ScriptedModel:
        self.order.append("language model")
        model = ScriptedModel()
        model.gives_logprobs = self.model_gives
        return model


@dataclasses.dataclass(frozen=True)
class NotedHelper:
    order: list[str] = dataclasses.field(hash=False, compare=False)

    def load(self, loaded: Any) -> str:
        self.order.append("helper")
        return "tool"


@dataclasses.dataclass(frozen=True)
class NotedReranker:
    order: list[str] = dataclasses.field(hash=False, compare=False)

    def load(self, model: Any, cache: Path) -> Any:
        self.order.append("reranker")
        return ScriptedModel()


def _loaded(noted: NotedParts, monkeypatch: Any, tmp_path: Path, reranker: Any = None) -> list[str]:
    def opened(run: Run, cache: Path) -> Any:
        noted.order.append("index")
        return ScriptedModel()

    monkeypatch.setattr(parts, "open_index", opened)
    monkeypatch.setattr(parts, "RetrieverTool", lambda retriever: retriever)
    given: Any = noted
    chosen = reranker or NotedReranker(noted.order)
    load_tools(Run(given, given, given, given, chosen), tmp_path)
    return noted.order


@pytest.mark.parametrize(
    ("checkpoint", "reranker", "order"),
    [
        # last, so that it sizes its batches by what index, reranker and helpers leave of a device
        ("", None, ["index", "reranker", "helper", "language model"]),
        # without a checkpoint it is a server's, which may not be there: before an index is built
        (None, None, ["language model", "index", "reranker", "helper"]),
        # as the reranker it is loaded once
        ("", QueryLikelihood(), ["index", "language model", "helper"]),
    ],
)
def test_when_the_language_model_is_loaded(
    checkpoint: str | None, reranker: Any, order: list[str], monkeypatch: Any, tmp_path: Path
) -> None:
    assert _loaded(NotedParts(checkpoint=checkpoint), monkeypatch, tmp_path, reranker) == order


def test_a_missing_checkpoint_is_found_before_an_index_is_built(
    monkeypatch: Any, tmp_path: Path
) -> None:
    noted = NotedParts(checkpoint=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"No checkpoint at .*nowhere"):
        _loaded(noted, monkeypatch, tmp_path)
    assert noted.order == []


def test_a_model_without_the_log_probabilities_that_a_method_needs_is_refused(
    monkeypatch: Any, tmp_path: Path
) -> None:
    noted = NotedParts(logprobs=True, model_gives=False)
    with pytest.raises(InputError, match="decides by the log-probabilities"):
        _loaded(noted, monkeypatch, tmp_path)


@dataclasses.dataclass(frozen=True)
class Lacking:
    """An index, of a package that is not installed."""

    name = "lacking"
    gives_vectors = False
    checkpoints = ()

    def require(self) -> None:
        raise InputError("the package is missing")


def test_what_is_missing_is_found_before_the_data_are_loaded(tmp_path: Path) -> None:
    nowhere = Folder(str(tmp_path / "nowhere"))
    method = dataclasses.replace(STANDARD_RAG, reader=Reader(prompts="small"))
    with pytest.raises(InputError, match="the package is missing"):
        execute(Run(method, nowhere, Local(), Lacking()), tmp_path / "run")  # type: ignore[arg-type]
    many = Local(data_parallel=1_000)
    with pytest.raises(InputError, match=r"is 1000 devices"):
        execute(Run(NO_RETRIEVAL, nowhere, many), tmp_path / "run")
    dead = Server(model="m", urls="http://127.0.0.1:9/v1", patience=0.0)
    with pytest.raises(EngineDown, match=r"127\.0\.0\.1:9"):
        execute(Run(NO_RETRIEVAL, nowhere, dead), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_helpers_are_recorded_apart_from_the_settings_of_a_method() -> None:
    """A checkpoint may be moved, so a run's method is recorded without it."""

    def recorded(method: Any) -> dict[str, Any]:
        none: Any = ()
        run = Run(method, Folder("nowhere"), Local())
        return settings_record(run, Dataset("d", (), none, {}, ""), ())

    method = JudgedHere(JudgeGate(Local(checkpoint="somewhere")))
    found = recorded(method)
    assert found["method"]["gate"] == {"is": "JudgeGate"} and [*found["helpers"]] == ["gate.judge"]
    assert recorded(dataclasses.replace(method, gate=None))["helpers"] == {}
    # one that needs names, but no field holds
    found = recorded(NamesAHelper(None))
    assert [*found["helpers"]] == ["judge"] and "judge" not in found["method"]


@dataclasses.dataclass(frozen=True)
class JudgedHere:
    gate: JudgeGate | None
    reader: Reader = Reader(prompts="small")

    name = "judged"


class NamesAHelper(JudgedHere):
    needs = Needs(helpers={"judge": ModelHelper(Local())})


def test_where_scann_cannot_be_loaded_every_passage_is_scored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(STANDARD_RAG, Folder("x"), Local(), Scann(metric="l2"))
    assert with_loadable_index(run) == run

    def missing() -> None:
        raise InputError("ScaNN cannot be loaded here")

    monkeypatch.setattr(scann_index, "library", missing)
    assert with_loadable_index(run).index == Exact(metric="l2")
    assert "every passage is scored instead" in capsys.readouterr().err
    closed = dataclasses.replace(run, method=NO_RETRIEVAL)
    assert with_loadable_index(closed) == closed
