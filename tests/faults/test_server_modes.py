"""Runs against servers as they are met: the right value, or one clear error; see `server_modes`."""

from __future__ import annotations

import dataclasses
import json
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import jaxrag.experiments.run
from jaxrag.core import http
from jaxrag.evaluation import records
from tests.engines.tiny_model import TEMPLATE, write_tiny_model
from tests.evaluation.fabricate import ENVIRONMENT
from tests.faults.damage import call
from tests.faults.server_modes import (
    FAST,
    LIMIT,
    MODES,
    PLAIN,
    UNSURE,
    Mode,
    NoAnswer,
    Refused,
    Right,
    logprobs,
    serving,
)
from tests.models.bert import small_bert

CONFIG = """
from jaxrag.data.folder import Folder
from jaxrag.engines.server import Server
from jaxrag.methods import dtr, pairs
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs.run import Run
from jaxrag.steps.reader import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Rerank, Top

HERE = {here!r}


def get_config(method):
    finds = dict(candidates=OnePath(n=3), select=Top(k=1))
    short = dict(answer_tokens=32, passage_tokens=32)
    sure, never = dtr.UncertaintyGate(0.5), dtr.UncertaintyGate(0.0)
    chosen = {{
        "dtr": dtr.Config(sure, **finds, reader=Reader("dtr", **short)),
        "pairs": pairs.Config(**finds, reader=Reader("pairs", **short)),
        "rerank": dtr.Config(never, OnePath(n=3), Rerank(k=1), Reader("dtr", **short)),
    }}
    return Run(
        method=chosen[method],
        data=Folder(HERE + "/data"),
        model=Server("tiny", timeout=5.0, patience=5.0),
        index=Exact(BiEncoder(HERE + "/encoder", max_length=32)),
        reranker=QueryLikelihood(),
        cache=HERE + "/cache",
        limit=3,
        check_model=False,
    )
"""
PROMPTS = """
extends = "dtr"

[direct]
{more}
user = "Question: {{question}}"
parse = "first_line"

[context]
{more}
user = "{{passages}}\\nQuestion: {{question}}"
parse = "first_line"
"""
TOLERANCE = 1e-6
CONTEXT = ssl.create_default_context()  # of no use: all addresses begin with http://


@pytest.fixture(scope="module")
def world(tmp_path_factory: Any) -> Path:
    """A folder with data, an encoder, tokenizers, prompts and the config."""
    here = tmp_path_factory.mktemp("modes")
    small_bert.write(here / "encoder", small_bert.BERT, classifier=False)
    write_tiny_model(here / "tokenizer")
    opened = TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    write_tiny_model(here / "thinking", template=opened)
    (here / "data").mkdir()
    names = ["capital", UNSURE, "seat of government", *(f"city number {i}" for i in range(80))]
    rows = [
        {"id": f"q{i}", "question": f"What is the {name} of Peru?", "answers": ["Lima"]}
        for i, name in enumerate(names)
    ]
    corpus = [{"id": f"p{i}", "title": "Peru", "text": f"the {word} of"} for i, word in
              enumerate(small_bert.WORDS[:6])]  # fmt: skip
    for name, lines in (("queries", rows), ("corpus", corpus)):
        (here / f"data/{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    for name, more in (
        ("system", 'system = "Reply in one word."'),
        ("stops", 'stop = [".", "\\n"]'),
    ):
        (here / f"{name}.toml").write_text(PROMPTS.format(more=more))
    (here / "config.py").write_text(CONFIG.format(here=str(here)))
    for method in ("dtr", "rerank"):  # compiles programs and builds the index
        with serving(PLAIN, str(here / "tokenizer")) as server:
            run(here, here / "first" / method, server, MODES["completions"], method)
    return here


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses; what has nothing to do with servers, and takes long, is done once or not."""
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(records, "describe_environment", lambda: ENVIRONMENT)
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setattr("ssl.create_default_context", lambda *_, **settings: CONTEXT)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a run did: exit code, last words, seconds, lines of answers, warnings, requests."""

    code: int | None
    said: str
    seconds: float
    lines: list[dict[str, Any]]
    warnings: list[str]
    asked: int

    @property
    def errors(self) -> list[str]:
        """Errors of questions, and the one that ended the run."""
        return [x["error"] for x in self.lines if "error" in x] + ([self.said] if self.said else [])

    @property
    def reports(self) -> list[str]:
        """Errors as the user reads them during the run."""
        failed = (re.sub(r"^question \S+ failed: ", "", x) for x in self.warnings if "failed" in x)
        return [*failed, *([self.said] if self.said else [])]


def run(world: Path, work: Path, server: Any, mode: Mode, method: str) -> Seen:
    settings = {"model.urls": f"{server.url}/v1", "store": work / "store.sqlite", **mode.settings}
    if mode.endpoint == "completions":
        settings["model.tokenizer"] = world / settings.get("model.tokenizer", "tokenizer")
    if (own := settings.get("method.reader.prompts")) in ("system", "stops"):
        settings["method.reader.prompts"] = world / f"{own}.toml"
    changes = [f"--config.{name}={value}" for name, value in settings.items()]
    server.asked.clear()
    config = f"--config={world / 'config.py'}:{method}"
    kept = ("open_index_over",)
    told = call(jaxrag.experiments.run, config, f"--workdir={work / 'run'}", *changes, keep=kept)
    last = [x for x in told.said.splitlines() if told.code is None or re.match("error|stopped", x)]
    lines, log = read(work / "run/answers.jsonl"), read(work / "run/log.jsonl")
    warnings = [one["message"] for one in log if one["level"] == "warning"]
    newest = {line["question_id"]: line for line in lines}
    asked = len(server.asked)
    said = "\n".join(last)
    return Seen(told.code, said, told.seconds, [*newest.values()], warnings, asked)


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def judged(mode: Mode, method: str, seen: Seen) -> str:
    """What is wrong with an outcome, beginning with its kind; "" for nothing."""
    answered = [line for line in seen.lines if "error" not in line]
    unforeseen = [x for x in seen.errors if not re.match("InputError|EngineDown|error|stopped", x)]
    if seen.code is None or unforeseen or any("Traceback" in x for x in seen.errors):
        return f"traceback: {[seen.said, *unforeseen][-1][:150]}"
    if mode.ends_late and seen.seconds > LIMIT:
        return f"late: {seen.seconds:.1f} s"
    if any(matches(mode, method, seen, wanted) for wanted in mode.right):
        if mode.most and seen.asked > mode.most:
            return f"repeated: {seen.asked} requests"
        times = max(Counter(seen.reports).values(), default=0)
        return f"repeated: reported {times} times" if seen.errors and times != 1 else ""
    if answered and not any(isinstance(x, (Right, NoAnswer)) and fits(x, mode, method, seen)
                            for x in mode.right):  # fmt: skip
        one = answered[0]
        return f"silent: {one['prediction']!r}, u {one['trace']['direct']['u']}"
    return f"other: {(seen.errors or [f'nothing said, exit {seen.code}'])[0][:150]}"


def fits(wanted: Right | NoAnswer, mode: Mode, method: str, seen: Seen) -> bool:
    """Whether all answers that were given are the right ones."""
    given = [line for line in seen.lines if "error" not in line]
    return all(is_right(wanted, mode, method, line) for line in given)


def matches(mode: Mode, method: str, seen: Seen, wanted: Right | Refused | NoAnswer) -> bool:
    """Whether the outcome is one that is right."""
    failed = [line for line in seen.lines if "error" in line]
    if isinstance(wanted, Refused):
        named = [x for x in seen.errors if re.search(wanted.fault, x, re.I | re.S)]
        one_line = all(len(x.splitlines()) == 1 and len(x) < 900 for x in seen.errors)
        early = not (wanted.stops and failed) and not (wanted.first and seen.asked)
        none = len(failed) == len(seen.lines) and seen.code in (1, 2)
        return bool(named) and named == seen.errors and one_line and early and none
    said = not isinstance(wanted, Right) or re.search(wanted.says, "\n".join(seen.warnings), re.I)
    whole = len(seen.lines) == mode.settings.get("limit", 3) and not failed
    return bool(seen.code == 0 and whole and said and fits(wanted, mode, method, seen))


def is_right(wanted: Right | NoAnswer, mode: Mode, method: str, line: dict[str, Any]) -> bool:
    direct = line["trace"]["direct"]
    if isinstance(wanted, NoAnswer):
        return line["prediction"] == "" and direct["u"] is None
    unsure = UNSURE in line["question"]
    tags = method == "pairs" and "method.reader.prompts" not in mode.settings
    text = f"<answer>{wanted.text}</answer>" if tags else wanted.text
    counted = [*logprobs(len(text.encode()), unsure), *(x - unsure for x in wanted.counted)]
    u = -sum(counted) / len(counted)
    right = line["prediction"] == wanted.text and abs((direct["u"] or 9e9) - u) < TOLERANCE
    if method == "rerank":
        scores = line["trace"]["selected"]["scores"]
        right = right and abs(scores[0] - score(line["question"])) < 1e-5
    return right


def score(question: str) -> float:
    """Mean log-probability of a question whose tokens are its bytes; see `server_modes.echo`."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = [letters.index("Ġ" if x == " " else x) for x in question]
    return -sum(ids) / len(ids) / 100


def tried(world: Path, work: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a run of each method did, and whether it was right when the server was mended."""
    mode, seen = MODES[name], {}
    for variable, value in mode.environment.items():
        monkeypatch.setenv(variable, value)
    for method in mode.methods:
        with serving(mode, str(world / "tokenizer")) as server:
            found = run(world, work / method, server, mode, method)
            wrong, again = judged(mode, method, found), ""
            first = method == mode.methods[0] and "model.urls" not in mode.settings
            if found.errors and not wrong and first:
                server.mode, server.fault = PLAIN, PLAIN.answer
                lasting = {k: v for k, v in mode.settings.items() if k not in FAST}
                calm = dataclasses.replace(mode, right=(Right(),), settings=lasting)
                kept = run(world, work / method, server, calm, method)
                again = judged(calm, method, kept)
        seen[method] = (wrong or (again and f"kept: {again}"), found)
    return seen


@pytest.mark.parametrize("name", MODES)
def test_a_server_gives_right_values_or_one_error(
    world: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tried(world, tmp_path, name, monkeypatch)
    assert {method: wrong for method, (wrong, _) in seen.items() if wrong} == {}
