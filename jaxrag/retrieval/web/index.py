"""Web search as a retriever: snippets are the passages, and results are stored.

The corpus is what searches have found so far. Rankings are the engine's; the score of the i-th
passage is 1 / i, since engines give no meaningful scores.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import queue
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Literal, cast

from jaxrag.core.checks import check_limits, check_positive, check_range
from jaxrag.core.hashing import canonical
from jaxrag.core.http import check_address, read_key
from jaxrag.engines.scheduler import Workers
from jaxrag.retrieval.corpus.builds import BuildPart
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.settings import Footprint, IndexStatus, refuse_parts
from jaxrag.retrieval.web.cache import WebCache
from jaxrag.retrieval.web.engines import BRAVE, BRAVE_MOST, BraveClient, SearxngClient
from jaxrag.retrieval.web.pages import SearchRefusedError, WebPage, passage_of, row_in
from jaxrag.types import EngineDown, InputError, Passage, Ranking

_NUMERICS = "jaxrag-web-1"  # part of the identity; raise it when passages change
_MOST = {"brave": BRAVE_MOST, "searxng": 100}  # results of a search
_NAMED = 5  # queries quoted in a message


@dataclasses.dataclass(frozen=True)
class Web:
    """Settings of a web search engine as an index, which has no vectors.

    The data set's own corpus is not searched. No request is sent before a method searches, and no
    query is sent twice.

    Attributes:
      engine: "brave" (its API, which needs a key) or "searxng" (any instance of it).
      url: the instance's address; "" is Brave's own.
      key_variable: the environment variable that holds the key; "" is BRAVE_API_KEY for Brave and
        none for SearXNG. The key is never recorded.
      count: requested results of a search, and so the most that a method can use.
      rate: most requests a second; Brave's free plan allows 1.
      concurrency: most simultaneous requests.
      timeout: seconds until a request fails.
      patience: seconds for which a search is retried before the run stops.
      offline: whether only stored searches are used, and no request is sent.
    """

    engine: Literal["brave", "searxng"] = "brave"
    url: str = ""
    key_variable: str = ""
    count: int = 10
    rate: float = 1.0
    concurrency: int = 4
    timeout: float = 20.0
    patience: float = 120.0
    offline: bool = False

    gives_vectors = False
    checkpoints = ()

    def __post_init__(self) -> None:
        if self.engine not in _MOST:
            raise InputError(f"engine is {self.engine!r}; allowed are {', '.join(_MOST)}.")
        if not 1 <= self.count <= _MOST[self.engine]:
            raise InputError(
                f"count is {self.count}; {self.engine} allows 1 to {_MOST[self.engine]}."
            )
        check_positive(rate=self.rate, timeout=self.timeout)
        check_range(patience=self.patience)
        check_limits(concurrency=self.concurrency)
        if not self.url and self.engine == "searxng":
            raise InputError("no SearXNG instance is named: set url, such as http://localhost:8888")
        check_address(self._url)

    @property
    def name(self) -> str:
        """Name in tables."""
        return {"brave": "Brave", "searxng": "SearXNG"}[self.engine]

    def open(self, passages: Passages, cache: Path) -> TextRetriever:
        """Opens stored searches; InputError for no key, an invalid file, or offline without any."""
        client = None if self.offline else self._client()
        index = WebIndex(self, client, WebCache(self._file(cache)))
        return cast(TextRetriever, index)  # its passages have the methods of a corpus, but grow

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Nothing to build."""
        refuse_parts(self.name, part)

    def footprint(self, passages: Passages) -> Footprint:
        """Nothing but the stored searches."""
        return Footprint(0, 0)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """How many searches are stored."""
        path = self._file(cache)
        if not path.is_file():
            return IndexStatus(path, "not searched, but the web; no search is stored yet")
        try:
            searches, stored = WebCache(path).counts()
        except InputError as error:
            return IndexStatus(path, str(error))
        counts = f"{searches:,} searches, {stored:,} passages stored"
        return IndexStatus(path, f"not searched, but the web; {counts}")

    def _file(self, cache: Path) -> Path:
        """The file of searches; one for each engine."""
        return cache / "web" / f"{self.engine}.sqlite"

    @property
    def _url(self) -> str:
        return (self.url or BRAVE).rstrip("/")

    @property
    def source(self) -> str:
        """Canonical JSON of all that determines results: engine, address, count."""
        settings = {"engine": self.engine, "url": self._url, "count": self.count}
        return canonical({"numerics": _NUMERICS, **settings})

    @property
    def variable(self) -> str:
        """The environment variable that holds the key; "" for an engine without one."""
        return self.key_variable or ("BRAVE_API_KEY" if self.engine == "brave" else "")

    def _client(self) -> BraveClient | SearxngClient:
        options = {"rate": self.rate, "timeout": self.timeout, "patience": self.patience}
        variable = self.variable
        key = read_key(variable) if variable else ""
        if variable and not key:
            raise InputError(
                f"the environment variable {variable} holds no key for {self.name}: set it, or "
                "set offline=True to search only what is stored."
            )
        if self.engine == "brave":
            return BraveClient(self._url, key=key, **options)
        return SearxngClient(self._url, key=key, **options)


class WebPassages:
    """The passages that searches found, by row (see `jaxrag.retrieval.web.pages`) and by id."""

    def __init__(self, cache: WebCache, identity: str) -> None:
        self._cache, self.identity = cache, identity

    def __len__(self) -> int:
        """Number of passages found so far, in all editions."""
        return self._cache.counts()[1]

    def get(self, rows: Iterable[int]) -> list[Passage]:
        """The passages of rows, in their order; SearchRefusedError for a row that was not found."""
        numbers = [operator.index(row) for row in rows]
        try:
            return [passage_of(page) for page in self._cache.pages(numbers)]
        except KeyError as error:
            raise SearchRefusedError(
                f"{self._cache.path} has no passage {error}, which an earlier search found: it is "
                "not the file of that search. Restore that file, or give the run a new store."
            ) from None

    def find(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids, in their order; KeyError for an id without a passage."""
        passages = [passage_of(page) for page in self._cache.pages([row_in(name) for name in ids])]
        for name, passage in zip(ids, passages, strict=True):
            if passage.id != name:
                raise KeyError(name)
        return passages


class WebIndex:
    """A `TextRetriever` over a search engine on the web, or stored searches without a ``client``.

    A query is sent once in an edition; after that its results come from the file. InputError if it
    is offline without any stored search.
    """

    def __init__(
        self, settings: Web, client: BraveClient | SearxngClient | None, cache: WebCache
    ) -> None:
        self._settings, self._client, self._cache = settings, client, cache
        edition = cache.edition(settings.source, offline=client is None)
        self._edition = settings.source, edition
        self._refused: dict[str, str] = {}
        self.identity = canonical({"web": json.loads(settings.source), "edition": edition})
        self.passages = WebPassages(cache, self.identity)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The engine's first ``k`` results for each query; fewer if it has no more.

        A blank query finds nothing and is not sent. Results are stored as they arrive, so that an
        interrupted call sends no query twice. InputError if ``k`` is below 1 or above the count, or
        the engine refuses a query; SearchRefusedError if it refuses all, or the run is offline and
        a query is not stored; EngineDown if the engine does not answer.
        """
        count = self._settings.count
        if not 1 <= k <= count:
            raise InputError(
                f"k is {k}, but a search requests {count} results: k must be 1 to {count}; raise "
                "the index's count."
            )
        queries = [" ".join(text.split()) for text in texts]
        distinct = list(dict.fromkeys(query for query in queries if query))
        results = self._cache.searches(*self._edition, distinct)
        unknown = [query for query in distinct if query not in results]
        self._check(unknown)
        results |= self._send(unknown)
        results[""] = ()
        rows = [results[query][:k] for query in queries]
        return [Ranking(some, tuple(1 / (i + 1) for i in range(len(some)))) for some in rows]

    def _check(self, unknown: Sequence[str]) -> None:
        for query in unknown:  # repeated by a scheduler that looks for the query at fault
            if query in self._refused:
                raise InputError(self._refused[query])
        if unknown and self._client is None:
            more = ", ..." if len(unknown) > _NAMED else ""
            raise SearchRefusedError(
                f"the run is offline, and {len(unknown)} of its queries are not in "
                f"{self._cache.path}: {', '.join(map(repr, unknown[:_NAMED]))}{more}. Set "
                "offline=False to ask the engine."
            )

    def _send(self, queries: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Sends queries concurrently; stores what arrived before an error is raised."""
        if not queries or self._client is None:
            return {}
        workers, results = Workers(min(self._settings.concurrency, len(queries))), {}
        done: queue.SimpleQueue[tuple[str, Future[list[WebPage]]]] = queue.SimpleQueue()
        for query in queries:
            future = workers.submit(self._client.search, query, self._settings.count)
            future.add_done_callback(lambda future, query=query: done.put((query, future)))
        errors: list[Exception] = []
        try:
            for _ in queries:
                self._store(*done.get(), results, errors)
                if errors and isinstance(errors[-1], EngineDown):  # all others would fail too
                    workers.close()
        finally:
            workers.close()
            while not done.empty():  # arrived during an interruption
                self._store(*done.get(), results, errors)
        if errors:
            raise next((error for error in errors if isinstance(error, EngineDown)), errors[0])
        return results

    def _store(
        self,
        query: str,
        future: Future[list[WebPage]],
        results: dict[str, tuple[int, ...]],
        errors: list[Exception],
    ) -> None:
        try:
            pages = future.result()
        except CancelledError:
            return
        except Exception as error:
            if isinstance(error, InputError) and not isinstance(error, EngineDown):
                self._refused[query] = str(error)
            errors.append(error)
            return
        try:
            results[query] = self._cache.keep(*self._edition, query, pages)
        except InputError as error:  # such as a full disk, after which queries would be sent again
            raise SearchRefusedError(str(error)) from error
