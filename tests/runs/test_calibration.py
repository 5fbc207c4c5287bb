"""Thresholds that are given as a ratio of retrieval."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.evaluation.summary import summarise
from jaxrag.functional import uncertainty
from jaxrag.methods import dtr
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.pairs import AgreementGate
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs.calibration import calibrated, threshold_of, training_split
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError
from tests.scripted import ScriptedModel


def test_the_threshold_is_the_score_with_the_nearest_share_above_it() -> None:
    scores = np.array([0.1, 0.2, 0.2, 0.4, math.inf])
    assert threshold_of(scores, 1.0) == (0.0, 1.0)
    assert threshold_of(np.array([0.0, 0.5]), 1.0) == (0.0, 1.0)  # at 0 the gate always retrieves
    assert threshold_of(scores, 0.8) == (pytest.approx(0.15), 0.8)
    assert threshold_of(scores, 0.4) == (pytest.approx(0.3), 0.4)
    assert threshold_of(scores, 0.0) == (pytest.approx(0.4000004), 0.2)  # infinite: always
    assert threshold_of(np.array([0.5, 0.3]), 0.25) == (0.4, 0.5)  # of 0 and 0.5, the larger share
    for ratio in np.linspace(0, 1, 11):  # both rules of DTR's gate retrieve for the share
        threshold, share = threshold_of(scores, ratio)
        for rule in ("paper", "released"):
            assert np.mean(uncertainty.trigger(scores, threshold, rule=rule)) == pytest.approx(
                share
            )
    with pytest.raises(InputError, match="no training question was answered"):
        threshold_of(np.array([]), 0.5)


def test_scores_and_thresholds_of_both_gates_decide_alike() -> None:
    gate = AgreementGate("f1", "ratio:0.5")

    def trace(first: str, second: str) -> Any:
        return {
            "direct": {"text": first},
            "gate": {"second": {"text": second}, "excluded": False},
        }

    assert gate.score(trace("red hat", "red")) == pytest.approx(-2 / 3)
    assert gate.score(trace("red", "blue")) == math.inf
    at = gate.with_threshold(gate.score(trace("red hat", "red")))
    assert at._agree("red hat", "red") and not at._agree("red hat", "red x y")
    assert gate.with_threshold(1e30)._agree("b c d e f g h", "b x")
    assert UncertaintyGate("ratio:0.5").score({"gate": {"value": None}}) == math.inf
    assert UncertaintyGate("ratio:0.5").with_threshold(0.25) == UncertaintyGate(0.25)


def test_a_gate_of_ones_own_may_have_a_ratio_of_another_kind(tmp_path: Path) -> None:
    run = SimpleNamespace(method=SimpleNamespace(gate=SimpleNamespace(ratio=0.5)))
    assert calibrated(run, tmp_path, lambda *_: None) == (run, {})


@pytest.mark.parametrize("text", ["ratio:2", "ratio:", "much", "ratio:-0.1", "ratio:nan"])
def test_what_is_no_ratio(text: str) -> None:
    for make in (UncertaintyGate, lambda value: AgreementGate("f1", value)):
        with pytest.raises(InputError, match=r"give a number, or ratio:SHARE"):
            make(text)
    with pytest.raises(InputError, match=r"set gate\.test to 'f1'"):
        AgreementGate("exact", "ratio:0.5")


def test_training_questions_of_data() -> None:
    assert training_split(Folder("x", corpus="y")) == Folder("x", "train", "y")
    drawn = Draw(Folder("x"), part="test", train=5, test=3)
    assert training_split(drawn) == Draw(Folder("x"), part="train", train=5, test=3)
    with pytest.raises(InputError, match="have no training split beside"):
        training_split(Folder("x", "train"))


U = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4, "e": 0.15, "f": 0.35, "g": 0.28}
"""Uncertainty of the direct answer by the word of a question."""


@dataclasses.dataclass(frozen=True)
class Model:
    """Answers a question about a word with the word's uncertainty."""

    name = "scripted"
    checkpoint = None
    dtype = ""

    def load(self, cache: Path) -> ScriptedModel:
        def said(prompt: str, settings: Any) -> Any:
            word = prompt.rpartition("zork ")[2][0]
            return "x", [math.exp(-U[word])]

        return ScriptedModel(said, last_turn=True)


def _run(folder: Path, ratio: str, train: str) -> Run:
    folder.mkdir()
    for name, words in {"queries": "efg", "train": train}.items():
        rows = [{"id": w, "question": f"the zork {w}", "answers": ["x"]} for w in words]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "corpus.jsonl").write_text('{"id": "p", "text": "a text about words"}\n')
    method = dtr.Config(UncertaintyGate(ratio), OnePath(n=1), Top(k=1))
    cache = str(folder / "cache")
    return Run(method, Folder(str(folder)), Model(), Bm25(), cache=cache, check_model=False)


def test_a_run_sets_its_threshold_on_training_questions(tmp_path: Path) -> None:
    run = _run(tmp_path / "data", "ratio:0.5", "abcd")
    results = execute(run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    # two of 0.1, 0.2, 0.3, 0.4 are above 0.25; of 0.15, 0.35, 0.28 two
    assert config["calibration"] == {
        "ratio": 0.5,
        "reached": 0.5,
        "threshold": pytest.approx(0.25),
        "questions": 4,
        "split": "train",
    }
    assert config["method"]["gate"]["threshold"] == pytest.approx(0.25)
    lines = (tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    retrieved = {r["question_id"]: r["trace"]["gate"]["retrieve"] for r in map(json.loads, lines)}
    assert retrieved == {"e": False, "f": True, "g": True}
    assert execute(run, tmp_path / "run") == results  # goes on with the same settings
    (row,) = summarise([tmp_path / "run"])
    how = "threshold 0.25 retrieves for 50.0% of 4 train questions (50.0% wanted)."
    assert f"{row.label}: {how}" in row.notes


def test_training_questions_that_are_evaluated_are_refused(tmp_path: Path) -> None:
    run = _run(tmp_path / "data", "ratio:0.5", "abe")
    with pytest.raises(InputError, match=r"1 of 3 training questions .*\n  the zork e"):
        execute(run, tmp_path / "run")
    execute(dataclasses.replace(run, leakage="keep"), tmp_path / "run")
