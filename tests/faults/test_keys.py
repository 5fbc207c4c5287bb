"""Servers that send the request's key back in every way: no file, log, trace or message has it."""

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jaxrag.experiments.report
import jaxrag.experiments.run
from jaxrag.core import http
from jaxrag.core.http import read_key
from jaxrag.engines.server import Server
from jaxrag.evaluation import records
from jaxrag.retrieval.web.index import Web
from jaxrag.types import InputError
from tests import local_http
from tests.core.test_echoed_keys import SPELT
from tests.faults.damage import KEYS, call, files_with_keys, shows_key

CONFIG = """
import dataclasses
from jaxrag.data.folder import Folder
from jaxrag.engines.server import Server
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.retrieval.web.index import Web
from jaxrag.runs.run import Run


def get_config():
    web = Web({engine!r}, {url!r}, {variable!r}, rate=1e4, patience=0.05, count=5)
    model = Server("tiny", {url!r} + "/v1", logprobs=False, patience=0.05)
    return Run(STANDARD_RAG, Folder({here!r} + "/data"), model, web, cache={here!r} + "/cache")
"""
Echo = Callable[[local_http.Handler, str], Any]


def escaped(text: str) -> str:
    """JSON's escapes of every character."""
    return "".join(f"\\u{ord(c):04X}" for c in text)


def percent(text: str) -> str:
    return "".join(f"%{ord(c):02x}" for c in text)


def status(code: int) -> Echo:
    return lambda handler, echo: handler.send(code, {"error": {"message": echo}})


def raw(data: str) -> Echo:
    """A response that is written as it is."""

    def write(handler: local_http.Handler, echo: str) -> None:
        handler.wfile.write(data.format(echo=echo).encode())
        handler.drop()

    return write


REFUSALS: dict[str, Echo] = {
    **{f"status {code}": status(code) for code in (400, 401, 500)},
    "an error with status 200": status(200),
    "no JSON": lambda handler, echo: handler.send(200, echo.encode()),
    "a redirect": lambda handler, echo: handler.send(307, b"", Location=f"/{percent(echo)}"),
    "a header": lambda handler, echo: handler.send(401, b"", WWW_Authenticate=echo),
    "no HTTP": raw("{echo}\r\n\r\n"),
    "a broken length": raw("HTTP/1.1 200 OK\r\nContent-Length: {echo}\r\n\r\n"),
}


class Handler(local_http.Handler):
    """A model's server and a search engine; one of them sends back what it was sent."""

    def do_GET(self) -> None:
        if "/models" in self.path:
            self.answer("models", {"data": [{"id": "tiny"}]})
        else:
            found = [{"url": f"https://x.org/{i}", "title": "a", "content": "b", "description": "c"}
                     for i in range(5)]  # fmt: skip
            self.answer("search", {"query": {}, "results": found, "web": {"results": found}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"message": {"content": "Paris"}, "finish_reason": "stop"}
        self.answer("model", {"choices": [choice], "usage": {"completion_tokens": 1}})

    def answer(self, what: str, well: dict[str, Any]) -> None:
        where, fault = self.server.fault
        self.server.reached += where == what
        sent = f"{self.headers.get('Authorization', '')} {self.headers.get('X-Subscription-Token')}"
        if where != what:
            self.send(200, well)
        elif fault is not None:
            fault(self, sent)
        else:
            text = json.dumps(well).replace('"Paris"', json.dumps(sent))
            self.send(200, text.replace('"a"', json.dumps(sent)).encode())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(records, "describe_environment", dict)  # asks git and all packages


@pytest.fixture
def server() -> Iterator[Any]:
    with local_http.serving(Handler, ("", None), reached=0) as server:
        yield server


def configured(here: Path, server: Any, engine: str) -> Path:
    (here / "data").mkdir()
    for name, line in (
        ("queries", {"id": "q", "question": "Where?", "answers": ["Paris"]}),
        ("corpus", {"id": "p", "title": "t", "text": "u"}),
    ):
        (here / "data" / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    (here / "data" / "qrels.jsonl").write_text("")
    variable = {"brave": "BRAVE_API_KEY", "searxng": "SEARXNG_KEY"}[engine]
    config = here / "config.py"
    config.write_text(
        CONFIG.format(url=server.url, here=str(here), engine=engine, variable=variable)
    )
    return config


@pytest.mark.parametrize(
    ("where", "engine"),
    [("models", "brave"), ("model", "brave"), ("search", "brave"), ("search", "searxng")],
)
def test_no_failure_shows_a_key(where: str, engine: str, tmp_path: Path, server: Any) -> None:
    config = configured(tmp_path, server, engine)
    for number, (name, fault) in enumerate(REFUSALS.items()):
        server.fault = where, fault
        outcome = call(
            jaxrag.experiments.run, f"--config={config}", f"--workdir={tmp_path}/{number}"
        )
        assert outcome.clear and outcome.code and server.reached > number, (name, outcome)
        assert not shows_key(outcome.shown.encode()), (name, outcome.shown)
        assert not files_with_keys(tmp_path), name


@pytest.mark.parametrize(
    ("where", "engine"), [("model", "brave"), ("search", "brave"), ("search", "searxng")]
)
def test_no_answer_shows_a_key(where: str, engine: str, tmp_path: Path, server: Any) -> None:
    """A page or an answer that contains the key is a result like any other, without the key."""
    config = configured(tmp_path, server, engine)
    server.fault = where, None
    outcome = call(jaxrag.experiments.run, f"--config={config}", f"--workdir={tmp_path}/run")
    assert outcome.code == 0, outcome
    call(jaxrag.experiments.report, f"--runs={tmp_path}/run", f"--out={tmp_path}/page/report.html")
    assert not files_with_keys(tmp_path) and not shows_key(outcome.shown.encode())
    assert "***" in (tmp_path / "run" / "answers.jsonl").read_text() or where == "search"


@pytest.mark.parametrize("engine", ["brave", "searxng"])
def test_no_search_result_stores_a_key(engine: str, tmp_path: Path, server: Any) -> None:
    """Brave's results are HTML, of which a text is made after the answer was looked through."""
    config = configured(tmp_path, server, engine)
    key = KEYS[{"brave": "BRAVE_API_KEY", "searxng": "SEARXNG_KEY"}[engine]]
    for number, (name, spell) in enumerate(SPELT.items()):
        said = spell(key)

        def echo(handler: local_http.Handler, _: str, said: str = said) -> None:
            texts = dict.fromkeys(("title", "content", "description"), said)
            found = [{"url": "https://x.org/", **texts}]
            handler.send(200, {"results": found, "web": {"results": found}})

        server.fault = "search", echo
        work = tmp_path / str(number)
        told = call(jaxrag.experiments.run, f"--config={config}", f"--workdir={work}")
        assert told.code == 1 and "has the request's key in it" in told.shown, (name, told)
        kept = [file for file in tmp_path.rglob("*") if file.is_file() and file != config]
        for data in [told.shown, *(file.read_bytes().decode("latin-1") for file in kept)]:
            assert said not in data and json.dumps(said)[1:-1] not in data, name
            assert alphanumeric(key) not in alphanumeric(html.unescape(data)), name


def alphanumeric(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def test_the_canary_is_found_where_a_key_is_shown(tmp_path: Path) -> None:
    key = KEYS["OPENAI_API_KEY"]
    for form in (key, escaped(key).lower(), percent(key), f"x{key}y"):
        assert shows_key(form.encode())
    assert not shows_key(base64.b64encode(b"no key"))
    (tmp_path / "a").write_text(f"x {key}")
    assert files_with_keys(tmp_path) == [str(tmp_path / "a")]


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "quote\u201d", "\x1b[31m"])
def test_a_value_that_is_no_key_is_not_quoted(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(InputError, match="value of MY_KEY is not a key") as raised:
        read_key("MY_KEY")
    assert value not in str(raised.value)
    monkeypatch.setenv("MY_KEY", " sk-1\n")
    assert read_key("MY_KEY") == "sk-1"


@pytest.mark.parametrize(
    "settings", [Server("m", key_variable="sk-proj-1"), Web(key_variable="a-1")]
)
def test_a_key_in_place_of_the_variable_s_name_is_not_quoted(settings: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="never the key itself") as raised:
        settings._client() if isinstance(settings, Web) else settings.load(tmp_path)
    assert settings.key_variable not in str(raised.value)
