"""Web search as a retriever: snippets are the passages, and what was found is kept.

The corpus is what searches have found so far. Rankings are as the engine gave them; the score of
the passage at place i is 1 / i, for engines tell no scores that mean anything.
"""

from __future__ import annotations

import json
import logging
import operator
import queue
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future

from jaxrag.core.hashing import canonical
from jaxrag.engines.scheduler import Workers
from jaxrag.retrieval.web.cache import StoredSearch, WebCache
from jaxrag.retrieval.web.pages import SearchClient, SearchRefusedError, WebPage, passage_of, row_in
from jaxrag.types import EngineDown, InputError, Passage, Ranking

_log = logging.getLogger("jaxrag")
_NAMED = 5  # queries that a message quotes
_TOLD = 100  # queries between two lines of the log


class WebPassages:
    """The passages that searches found, by row (see `web_pages.row_of`) and by id."""

    def __init__(self, cache: WebCache, identity: str) -> None:
        self._cache, self.identity = cache, identity

    def __len__(self) -> int:
        """How many were found so far, in whatever edition."""
        return self._cache.counts()[1]

    def __getitem__(self, row: int) -> Passage:
        return self.get([row])[0]

    def get(self, rows: Iterable[int]) -> list[Passage]:
        """The passages of the given rows, in the given order.

        Raises:
          SearchRefusedError: a row that no search of this file has found.
        """
        wanted = [operator.index(row) for row in rows]
        try:
            return [passage_of(page) for page in self._cache.pages(wanted)]
        except KeyError as error:
            raise SearchRefusedError(
                f"{self._cache.path} has no passage {error}, which an earlier search found: it is "
                "not the file of that search. Bring that one back, or give the run a new store."
            ) from None

    def row_of(self, passage_id: str) -> int:
        """The row of the passage with this id; KeyError where there is none."""
        self.find([passage_id])
        return row_in(passage_id)

    def find(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids, in the given order.

        Raises:
          KeyError: no passage has one of the ids.
        """
        found = [passage_of(page) for page in self._cache.pages([row_in(name) for name in ids])]
        for name, passage in zip(ids, found, strict=True):
            if passage.id != name:
                raise KeyError(name)
        return found


class WebIndex:
    """A `TextRetriever` over a search engine on the web.

    A query is asked once in an edition; after that its results come from the file.

    Args:
      client: the engine; None asks nobody, so that only stored searches are answered.
      cache: where searches are kept.
      source: canonical JSON of what determines what is found: engine, address, results asked for.
      edition: when the searches of this run began (see `WebCache.edition`).
      count: results that are asked for, and so the most that ``k`` can be.
      concurrency: most requests under way at once.
    """

    def __init__(
        self,
        client: SearchClient | None,
        cache: WebCache,
        *,
        source: str,
        edition: str,
        count: int,
        concurrency: int,
    ) -> None:
        self._client, self._cache, self._count = client, cache, count
        self._source, self._edition, self._concurrency = source, edition, concurrency
        self._refused: dict[str, str] = {}
        self.identity = canonical({"web": json.loads(source), "edition": edition})
        self.passages = WebPassages(cache, self.identity)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The engine's first ``k`` results for each query; fewer, or none, where it has no more.

        A blank query finds nothing and asks nobody. What comes back is stored at once, so whatever
        stops a call, nothing is asked twice.

        Raises:
          InputError: ``k`` is below 1 or above what is asked for, or the engine refuses a query.
          SearchRefusedError: the engine refuses everything, or the run is offline and has queries
            that are not stored.
          EngineDown: the engine does not answer.
        """
        if not 1 <= k <= self._count:
            raise InputError(
                f"k is {k}, and a search asks for {self._count} results: it must be 1 to "
                f"{self._count}; raise the index's count."
            )
        queries = [" ".join(text.split()) for text in texts]
        wanted = list(dict.fromkeys(query for query in queries if query))
        found = self._cache.searches(self._source, self._edition, wanted)
        unknown = [query for query in wanted if query not in found]
        self._check(unknown)
        found |= self._ask(unknown)
        found[""] = StoredSearch((), "")
        return [_ranking(found[query].rows[:k]) for query in queries]

    def _check(self, unknown: Sequence[str]) -> None:
        for query in unknown:  # asked again by a scheduler that looks for the query at fault
            if query in self._refused:
                raise InputError(self._refused[query])
        if unknown and self._client is None:
            more = ", ..." if len(unknown) > _NAMED else ""
            raise SearchRefusedError(
                f"the run is offline, and {len(unknown)} of its queries are not in "
                f"{self._cache.path}: {', '.join(map(repr, unknown[:_NAMED]))}{more}. Set "
                "offline=False to ask the engine."
            )

    def _ask(self, queries: Sequence[str]) -> dict[str, StoredSearch]:
        """Asks the engine side by side; what came back is stored before an error is raised."""
        if not queries or self._client is None:
            return {}
        workers, found = Workers(min(self._concurrency, len(queries))), {}
        done: queue.SimpleQueue[tuple[str, Future[list[WebPage]]]] = queue.SimpleQueue()
        for query in queries:
            future = workers.submit(self._client.search, query, self._count)
            future.add_done_callback(lambda future, query=query: done.put((query, future)))
        errors: list[Exception] = []
        try:
            for number in range(1, len(queries) + 1):
                self._land(*done.get(), found, errors)
                if errors and isinstance(errors[-1], EngineDown):  # no other would fare better
                    workers.close()
                if not number % _TOLD:
                    _log.info("web search: %d of %d queries", number, len(queries))
        finally:
            workers.close()
            while not done.empty():  # came back while this was interrupted
                self._land(*done.get(), found, errors)
        if errors:
            raise next((error for error in errors if isinstance(error, EngineDown)), errors[0])
        return found

    def _land(
        self,
        query: str,
        future: Future[list[WebPage]],
        found: dict[str, StoredSearch],
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
            found[query] = self._cache.keep(self._source, self._edition, query, pages)
        except InputError as error:  # a full disk, say: without this, queries would be asked again
            raise SearchRefusedError(str(error)) from error


def _ranking(rows: Sequence[int]) -> Ranking:
    return Ranking(tuple(rows), tuple(1 / place for place in range(1, len(rows) + 1)))
