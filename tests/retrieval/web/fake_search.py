"""A server that speaks Brave's and SearXNG's formats, and fails as told."""

import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests import local_http

KEY = "BSA-secret-token"


def hits(query: str, count: int) -> list[tuple[str, str, str]]:
    """Address, title and snippet of made-up results; none for a query that begins with "no"."""
    if query.startswith("no"):
        return []
    return [(f"https://x.org/{query}/{i}", f"{query} {i}", f"about {query}") for i in range(count)]


def brave(query: str, count: int) -> dict[str, Any]:
    """What ``/res/v1/web/search`` answers; without results it has no "web"."""
    answer: dict[str, Any] = {"type": "search", "query": {"original": query, "country": "us"}}
    results = [
        {
            "title": f"<strong>{title}</strong>",
            "url": url,
            "description": f"{snippet} &amp; <strong>more</strong>",
            "age": "2 days ago",
            "profile": {"name": "X"},
        }
        for url, title, snippet in hits(query, count)
    ]
    if results:
        answer["web"] = {"type": "search", "results": results, "family_friendly": True}
    return answer


def brave_error(status: int, code: str, detail: str) -> dict[str, Any]:
    """Brave's error envelope."""
    error = {"id": "1", "code": code, "detail": detail, "status": status, "meta": {}}
    return {"type": "ErrorResponse", "error": error, "time": 1700000000}


def searxng(query: str, page: int, *, each: int = 3, pages: int = 3) -> dict[str, Any]:
    """What ``/search?format=json`` answers: ``pages`` pages of ``each`` results."""
    every = hits(query, each * pages)[(page - 1) * each : page * each]
    results = [
        {"url": url, "title": title, "content": snippet, "engine": "x", "score": 1.0 / (i + 1)}
        for i, (url, title, snippet) in enumerate(every)
    ]
    return {
        "query": query,
        "number_of_results": 0,
        "results": results,
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [],
    }


class Handler(local_http.Handler):
    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
        with self.counted(self.server.asked, asked["q"]) as number:
            self.server.times.append(time.monotonic())
            if not self.server.fault(self, number, asked):
                self.answer(address.path, asked)

    def answer(self, path: str, asked: dict[str, str]) -> None:
        """The answer without a fault."""
        if path == "/search" and asked.get("format") == "json":
            self.send(200, searxng(asked["q"], int(asked["pageno"])))
        elif path != "/res/v1/web/search":
            self.send(404, b"nothing here")
        elif self.headers.get("X-Subscription-Token") != KEY:
            detail = "The provided subscription token is invalid."
            self.send(422, brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", detail))
        else:
            self.send(200, brave(asked["q"], int(asked["count"])))


Fault = Callable[[Handler, int, dict[str, str]], Any]
"""Given the request's number; true where it has answered."""


@contextmanager
def serving(fault: Fault = lambda handler, number, asked: False) -> Iterator[Any]:
    """Runs the server; it has ``url``, ``asked`` (queries), ``times`` and ``most`` at once."""
    with local_http.serving(Handler, fault, asked=[], times=[]) as server:
        yield server
