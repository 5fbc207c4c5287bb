"""Clients of two web search engines: Brave's API, and SearXNG, which anyone can host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx2 as httpx

from jaxrag.core.http import HttpClient, TransientError, retry_after
from jaxrag.retrieval.web.pages import SearchRefusedError, WebPage, plain, usable
from jaxrag.types import InputError

BRAVE = "https://api.search.brave.com"
BRAVE_MOST = 20  # results of one request
BRAVE_CHARACTERS, BRAVE_WORDS = 400, 50  # of a query, at most
_QUERY = {400, 413, 414, 422}  # status codes of an invalid query
_SEARXNG_PAGES = 5  # most pages of results of one search
_KEY = "the engine does not accept the key; check it, and its subscription."
_FORMATS = (
    "a SearXNG instance answers JSON only where its settings.yml lists it: search: formats: "
    "[html, json]. Many public instances have it off; host your own."
)


class BraveClient:
    """Client of Brave's web search, ``GET /res/v1/web/search`` (api.search.brave.com).

    ``key``: the subscription's token. For the others see `jaxrag.core.http.HttpClient`.
    """

    def __init__(
        self, url: str = BRAVE, *, key: str, rate: float, timeout: float, patience: float
    ) -> None:
        headers = {"X-Subscription-Token": key, "Accept": "application/json"}
        self._server = HttpClient(
            [url],
            headers=headers,
            secrets=(key,),
            rate=rate,
            timeout=timeout,
            patience=patience,
            requested_pause=_brave_pause,
            refused=_brave_refusal,
        )

    def search(self, query: str, count: int) -> list[WebPage]:
        """The first ``count`` results, best first; the query is cut to 50 words, 400 characters.

        InputError if the engine refuses this query, EngineDown if it answers none.
        """
        parameters = {"q": shortened(query), "count": str(count)}
        pages = self._server.request(
            "GET", "/res/v1/web/search", parameters=parameters, read=_brave_pages
        )
        return usable(pages, count)


def shortened(query: str) -> str:
    """The part of a query that Brave accepts: the first 50 words, at most 400 characters."""
    words = query.split()[:BRAVE_WORDS]
    while len(words) > 1 and len(" ".join(words)) > BRAVE_CHARACTERS:
        words.pop()
    return " ".join(words)[:BRAVE_CHARACTERS]


def _refusal(status: int, message: str) -> Exception:
    """The error for a refused search: InputError for one query, else `SearchRefusedError`."""
    if status in _QUERY:
        return InputError(f"{message}: the engine refuses this query; others may be answered.")
    return SearchRefusedError(f"{message}: check the key and the address.")


def _brave_refusal(status: int, text: str, message: str) -> Exception:
    """Brave answers 422 to an invalid key as well as to an invalid query."""
    token = "SUBSCRIPTION_TOKEN" in text or "x-subscription-token" in text.lower()
    if status in (401, 402, 403) or (status == 422 and token):
        return SearchRefusedError(f"{message}: {_KEY}")
    return _refusal(status, message)


def _brave_pause(response: httpx.Response) -> float | None:
    """Seconds to wait: the longer of Retry-After and Brave's headers; None without any.

    X-RateLimit-Remaining lists the requests left in each window, X-RateLimit-Reset its seconds.
    """
    resets = _numbers(response.headers.get("X-RateLimit-Reset", ""))
    left = _numbers(response.headers.get("X-RateLimit-Remaining", ""))
    spent = [reset for reset, some in zip(resets, left, strict=False) if some <= 0]
    pauses = [retry_after(response), max(spent) if spent else min(resets, default=None)]
    return max((seconds for seconds in pauses if seconds is not None), default=None)


def _numbers(text: str) -> list[float]:
    try:
        return [max(0.0, float(part)) for part in text.split(",") if part.strip()]
    except ValueError:
        return []


def _brave_pages(answer: Mapping[str, Any]) -> list[WebPage]:
    """The results; an answer without any has no "web", but always its query."""
    web = answer.get("web")
    if web is None and "query" in answer:
        return []
    results = web.get("results") if isinstance(web, Mapping) else None
    return [
        WebPage(
            plain(result.get("url")),
            plain(result.get("title"), tags=True),
            plain(result.get("description"), tags=True),
        )
        for result in _objects(results, answer, "web.results")
    ]


class SearxngClient:
    """Client of a SearXNG instance, ``GET /search?format=json`` (docs.searxng.org/dev/search_api).

    Its scores count agreeing engines, so only its order is used. ``key``: bearer token, for an
    instance behind a proxy that needs one; "" sends none. For the others see
    `jaxrag.core.http.HttpClient`.
    """

    def __init__(
        self, url: str, *, key: str = "", rate: float, timeout: float, patience: float
    ) -> None:
        headers = {"Accept": "application/json"}
        self._server = HttpClient(
            [url],
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            secrets=(key,) if key else (),
            rate=rate,
            timeout=timeout,
            patience=patience,
            refused=_searxng_refusal,
        )

    def search(self, query: str, count: int) -> list[WebPage]:
        """See `BraveClient.search`; requests pages of results until there are enough."""
        pages: list[WebPage] = []
        for number in range(1, _SEARXNG_PAGES + 1):
            parameters = {"q": query, "format": "json", "pageno": str(number)}
            read = _first_pages if number == 1 else _searxng_pages
            more = self._server.request("GET", "/search", parameters=parameters, read=read)
            before = len(pages)
            pages = usable([*pages, *more], count)
            if len(pages) in (before, count):
                break
        return pages


def _searxng_refusal(status: int, text: str, message: str) -> Exception:
    if status == 403:
        return SearchRefusedError(f"{message}: {_FORMATS}")
    return _refusal(status, message)


def _first_pages(answer: Mapping[str, Any]) -> list[WebPage]:
    """The first page of results; an empty one is an error if engines did not respond."""
    pages = _searxng_pages(answer)
    silent = answer.get("unresponsive_engines")
    if not pages and silent:
        raise TransientError(
            f"SearXNG found nothing, and these engines did not answer: {str(silent)[:200]}"
        )
    return pages


def _searxng_pages(answer: Mapping[str, Any]) -> list[WebPage]:
    return [
        WebPage(plain(result.get("url")), plain(result.get("title")), plain(result.get("content")))
        for result in _objects(answer.get("results"), answer, "results")
    ]


def _objects(results: object, answer: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    """The results that are objects; TransientError for an answer without a list."""
    if not isinstance(results, list):
        raise TransientError(
            f"the answer has no list {where!r}: it has {str(sorted(answer))[:200]}"
        )
    return (result for result in results if isinstance(result, Mapping))
