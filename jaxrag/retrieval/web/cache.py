"""Stored web searches with their dates, so that a run can be repeated offline.

Since the web changes, searches belong to an edition, which begins with the first run and is part of
the index's identity.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.hashing import canonical
from jaxrag.core.store import Store, entry_key
from jaxrag.retrieval.web.pages import WebPage, row_of
from jaxrag.types import InputError

_EDITION, _SEARCH, _PASSAGE = "web-edition", "web-search", "web-passage"


def now() -> datetime.datetime:
    """The time, UTC, in whole seconds."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class WebCache:
    """The searches of one engine, for one thread; several processes may share the file.

    InputError if it is not a store, is damaged or not writable, or its disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = Store(path)

    def editions(self, source: str) -> list[str]:
        """Times at which the editions of these settings began, oldest first."""
        began: list[str] = []
        while value := self._get(_EDITION, source, str(len(began))):
            began.append(str(value["began"]))
        return began

    def edition(self, source: str, *, offline: bool) -> str:
        """When the newest edition of a ``source`` began: now, if there was none.

        InputError if there was none and the run is ``offline``.
        """
        if editions := self.editions(source):
            return editions[-1]
        if offline:
            raise InputError(
                f"{self.path} holds no searches with these settings ({source}), and the run is "
                "offline: run it once with offline=False, or copy the file of such a run there."
            )
        self._put(_EDITION, source, {"0": {"began": now().isoformat()}})
        return self.editions(source)[-1]  # another process may have begun one at the same time

    def searches(
        self, source: str, edition: str, queries: Sequence[str]
    ) -> dict[str, tuple[int, ...]]:
        """The stored searches of an edition among the queries: rows of passages, best first."""
        keys = {query: entry_key(_SEARCH, canonical([source, edition]), query) for query in queries}
        stored = self._store.get([*keys.values()])
        return {
            query: tuple(json.loads(stored[key])["rows"])
            for query, key in keys.items()
            if key in stored
        }

    def keep(
        self, source: str, edition: str, query: str, pages: Sequence[WebPage]
    ) -> tuple[int, ...]:
        """Stores a search unless another process has done so; returns the stored rows."""
        rows = [row_of(page) for page in pages]
        values = {str(row): list(page) for row, page in zip(rows, pages, strict=True)}
        self._put(_PASSAGE, "", values)  # first: a search that is stored has its passages
        search = {"asked": now().isoformat(), "rows": rows}
        self._put(_SEARCH, canonical([source, edition]), {query: search})
        return self.searches(source, edition, [query])[query]

    def pages(self, rows: Sequence[int]) -> list[WebPage]:
        """The pages of these rows, in the given order; KeyError for an unknown row."""
        keys = {row: entry_key(_PASSAGE, "", str(row)) for row in rows}
        stored = self._store.get([*keys.values()])
        if missing := [row for row, key in keys.items() if key not in stored]:
            raise KeyError(missing[0])
        return [WebPage(*json.loads(stored[keys[row]])) for row in rows]

    def counts(self) -> tuple[int, int]:
        """Numbers of stored searches and passages."""
        stored = self._store.producers()
        searches, passages = (
            sum(producer.entries for producer in stored if producer.operation == kind)
            for kind in (_SEARCH, _PASSAGE)
        )
        return searches, passages

    def _get(self, kind: str, identity: str, name: str) -> dict[str, Any] | None:
        key = entry_key(kind, identity, name)
        stored = self._store.get([key])
        return json.loads(stored[key]) if stored else None

    def _put(self, kind: str, identity: str, values: dict[str, Any]) -> None:
        encoded = {
            entry_key(kind, identity, name): canonical(value).encode()
            for name, value in values.items()
        }
        self._store.put(kind, identity, encoded)
