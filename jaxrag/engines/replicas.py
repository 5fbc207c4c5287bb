"""HTTP to one or several equal servers: which one is asked, and what happens when it fails."""

from __future__ import annotations

import contextlib
import email.utils
import logging
import random
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2 as httpx

from jaxrag.engines.requests import EngineDown
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}  # statuses that may pass
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds, doubled from failure to failure


class _PassingError(Exception):
    """Something that may be gone at the next try."""

    def __init__(self, message: str, *, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class _Replica:
    """One server: how many requests it has, and since when it is not to be asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.busy = 0
        self.failures = 0
        self.away_until = 0.0


class Replicas:
    """Sends requests to the least busy of the servers that answer.

    A server that cannot be reached or says that it cannot serve is left alone for a while, twice as
    long each time, and its request goes to another (or to it again). A server that has answered is
    forgiven. 429 and Retry-After are honoured. What a server refuses for good (other 4xx) is an
    `InputError` with its words.

    Args:
      urls: of the servers, up to "/v1".
      key: sent as bearer token; it appears nowhere else.
      timeout: seconds that one answer may take.
      patience: seconds that a request is tried for before the run stops.
    """

    def __init__(
        self, urls: Sequence[str], *, key: str | None, timeout: float, patience: float
    ) -> None:
        if not urls:
            raise InputError("no server is given: set urls, such as http://localhost:8000/v1")
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise InputError(f"{url!r} is not a server's address: http:// or https:// it is.")
            if "@" in urllib.parse.urlsplit(url).netloc:
                raise InputError("A server's address holds a password: give it as a key instead.")
        self._replicas = [_Replica(url.rstrip("/")) for url in urls]
        self._key, self._patience = key, patience
        self._lock = threading.Lock()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.Client(
            headers=headers, timeout=httpx.Timeout(timeout, connect=10.0), limits=limits
        )

    def get(self, path: str, *, patience: float) -> dict[str, Any]:
        """What some server answers to GET ``path``, tried for ``patience`` seconds."""
        return self._request("GET", path, None, patience)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What some server answers to POST ``path``.

        Raises:
          InputError: it was refused for good.
          EngineDown: no server answered for as long as ``patience`` says.
        """
        return self._request("POST", path, body, self._patience)

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, patience: float
    ) -> dict[str, Any]:
        deadline, trouble = time.monotonic() + patience, "no server was free"
        while True:
            with self._least_busy() as replica:
                if replica is not None:
                    try:
                        return self._once(replica, method, path, body)
                    except _PassingError as error:
                        trouble = str(error)
                        self._leave_alone(replica, error)
                wait = self._until_one_is_back()
            if time.monotonic() + wait > deadline:
                raise EngineDown(
                    f"no server answered for {patience:.0f} s (last: {trouble}). What was "
                    "answered is kept: start the server and run the same command again."
                )
            time.sleep(wait)

    @contextlib.contextmanager
    def _least_busy(self) -> Iterator[_Replica | None]:
        with self._lock:
            now = time.monotonic()
            there = [r for r in self._replicas if r.away_until <= now]
            replica = min(there, key=lambda r: r.busy, default=None)
            if replica is not None:
                replica.busy += 1
        try:
            yield replica
        finally:
            if replica is not None:
                with self._lock:
                    replica.busy -= 1

    def _once(
        self, replica: _Replica, method: str, path: str, body: dict[str, Any] | None
    ) -> dict[str, Any]:
        where = replica.url + path
        try:
            response = self._client.request(method, where, json=body)
        except httpx.TransportError as error:
            raise _PassingError(f"{where}: {type(error).__name__}: {error}") from None
        if response.status_code in _AGAIN:
            message = f"{where} answers {response.status_code}: {self._words(response)}"
            raise _PassingError(message, pause=_retry_after(response))
        if response.is_error:
            raise InputError(f"{where} refuses ({response.status_code}): {self._words(response)}")
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise _PassingError(f"{where} answers something else than a JSON object")
        with self._lock:
            replica.failures, replica.away_until = 0, 0.0
        return value

    def _leave_alone(self, replica: _Replica, error: _PassingError) -> None:
        with self._lock:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**replica.failures)
            pause = error.pause if error.pause is not None else longest * random.uniform(0.5, 1)
            first = replica.failures == 0
            replica.failures += 1
            replica.away_until = max(replica.away_until, time.monotonic() + pause)
        if first:
            _log.warning("%s; trying again", error)

    def _until_one_is_back(self) -> float:
        with self._lock:
            now = time.monotonic()
            return max(0.0, min(r.away_until for r in self._replicas) - now)

    def _words(self, response: httpx.Response) -> str:
        text = " ".join(response.text.split())[:500]
        return text.replace(self._key, "***") if self._key else text


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks for, given as such or as a date."""
    value = response.headers.get("Retry-After")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
