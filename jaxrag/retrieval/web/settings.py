"""Search engines on the web."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal, cast

from jaxrag.core.hashing import canonical
from jaxrag.core.http import check_address
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.web import engines as web_engines
from jaxrag.retrieval.web.cache import WebCache
from jaxrag.retrieval.web.index import WebIndex
from jaxrag.retrieval.web.pages import SearchClient
from jaxrag.types import InputError

_NUMERICS = "jaxrag-web-1"  # goes into the identity; raise it when passages change
_MOST = {"brave": web_engines.BRAVE_MOST, "searxng": 100}


@dataclasses.dataclass(frozen=True)
class Web:
    """A search engine on the web, see `jaxrag.retrieval.web.index`; it has no vectors.

    The data set's own corpus is not searched. Nothing is asked before a method searches, and
    no query twice.

    Attributes:
      engine: "brave" (its API, for which a key is needed) or "searxng" (any instance of it).
      url: the instance's address; "" is Brave's own.
      key_variable: the environment variable that holds the key; "" is BRAVE_API_KEY for Brave and
        none for SearXNG. The key is never recorded.
      count: results that a search asks for; methods can take as many, or fewer.
      rate: most requests a second; Brave's free plan allows 1.
      concurrency: most requests under way at once.
      timeout: seconds that one answer may take.
      patience: seconds that a search is tried for before the run stops.
      offline: only what is stored is searched, and nobody is asked.
      fresh_after_days: age in days at which stored searches are left alone and new ones begun, of
        which a new run makes its own results; 0 is never.
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
    fresh_after_days: int = 0

    gives_vectors = False
    checkpoints = ()

    def __post_init__(self) -> None:
        if self.engine not in _MOST:
            raise InputError(f"engine is {self.engine!r}; there are {', '.join(_MOST)}.")
        if not 1 <= self.count <= _MOST[self.engine]:
            raise InputError(
                f"count is {self.count}; {self.engine} takes 1 to {_MOST[self.engine]}."
            )
        if min(self.rate, self.timeout) <= 0 or self.patience < 0:
            raise InputError(
                f"rate is {self.rate}, timeout {self.timeout} and patience {self.patience}: above "
                "0, above 0 and at least 0 are wanted."
            )
        if self.concurrency < 1 or self.fresh_after_days < 0:
            raise InputError(
                f"concurrency is {self.concurrency} and fresh_after_days {self.fresh_after_days}: "
                "at least 1 and at least 0 are wanted."
            )
        if not self.url and self.engine == "searxng":
            raise InputError("no SearXNG instance is named: set url, such as http://localhost:8888")
        check_address(self._url)

    @property
    def name(self) -> str:
        """For tables."""
        return {"brave": "Brave", "searxng": "SearXNG"}[self.engine]

    def open(self, passages: Passages, cache: Path) -> TextRetriever:
        """Opens the file of searches; asks nobody yet.

        Raises:
          InputError: no key, offline without any search stored, or a file that will not do.
        """
        client = None if self.offline else self._client()
        stored = WebCache(self.directory(passages, cache))
        edition = stored.edition(
            self._source, fresh_after_days=self.fresh_after_days, offline=self.offline
        )
        index = WebIndex(
            client,
            stored,
            source=self._source,
            edition=edition,
            count=self.count,
            concurrency=self.concurrency,
        )
        return cast(TextRetriever, index)  # its passages are what a corpus does, but grow

    def directory(self, passages: Passages, cache: Path) -> Path:
        """The file of searches; one for each engine."""
        return cache / "web" / f"{self.engine}.sqlite"

    def state(self, passages: Passages, cache: Path) -> str:
        """What is there, told without asking anybody."""
        path = self.directory(passages, cache)
        if not path.is_file():
            return "not searched, but the web; no search is stored yet"
        try:
            searches, stored = WebCache(path).counts()
        except InputError as error:
            return str(error)
        return f"not searched, but the web; {searches:,} searches, {stored:,} passages stored"

    def dimension(self) -> None:
        """No vectors are built."""

    @property
    def _url(self) -> str:
        return (self.url or web_engines.BRAVE).rstrip("/")

    @property
    def _source(self) -> str:
        source: dict[str, Any] = {
            "numerics": _NUMERICS,
            "engine": self.engine,
            "url": self._url,
            "count": self.count,
        }
        return canonical(source)

    def _client(self) -> SearchClient:
        options = {"rate": self.rate, "timeout": self.timeout, "patience": self.patience}
        variable = self.key_variable or ("BRAVE_API_KEY" if self.engine == "brave" else "")
        key = os.environ.get(variable, "").strip() if variable else ""
        if variable and not key:
            raise InputError(
                f"the environment variable {variable} holds no key for {self.name}: set it, or "
                "set offline=True to search only what is stored."
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise InputError(f"what {variable} holds is no key: it has white space or the like.")
        if self.engine == "brave":
            return web_engines.BraveClient(self._url, key=key, **options)
        return web_engines.SearxngClient(self._url, key=key, **options)
