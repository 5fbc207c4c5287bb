"""Asking a search engine over HTTP: its pace, what is tried again, and what stops a run."""

from __future__ import annotations

import email.utils
import logging
import random
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx2 as httpx

from jaxrag.engines.requests import EngineDown
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")
_AGAIN = {408, 425, 429, 500, 502, 503, 504}  # statuses that may pass
_QUERY = {400, 413, 414, 422}  # statuses that blame the one query
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds, doubled from failure to failure
_WORDS = 300  # characters that are quoted of what a server says

T = TypeVar("T")


class SearchRefusedError(EngineDown, InputError):
    """A wrong setting, key or state for which every search would fail: it stops the run."""


class PassingError(Exception):
    """Something that may be gone at the next try; ``pause``: seconds that the server asks for."""

    def __init__(self, message: str, *, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class Pace:
    """Lets at most ``rate`` requests a second begin, evenly, whatever thread they come from."""

    def __init__(self, rate: float) -> None:
        self._apart, self._next = 1 / rate, 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Returns when the next request may begin."""
        with self._lock:
            at = max(self._next, time.monotonic())
            self._next = at + self._apart
        time.sleep(max(0.0, at - time.monotonic()))

    def hold(self, seconds: float) -> None:
        """Lets no further request begin for so long."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


class SearchServer:
    """A search engine's address, asked for JSON objects; threads may share it.

    Args:
      url: up to the path.
      headers: of every request; those with a secret in ``secrets``.
      secrets: texts that no message may show.
      rate: most requests that begin in a second.
      timeout: seconds that one answer may take.
      patience: seconds that a request is tried for.

    Raises:
      InputError: an address that is none, or that holds a password; numbers out of range.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        rate: float,
        timeout: float,
        patience: float,
    ) -> None:
        check_address(url)
        if rate <= 0 or timeout <= 0 or patience < 0:
            raise InputError(
                f"rate is {rate}, timeout {timeout} and patience {patience}: above 0, above 0 and "
                "at least 0 are wanted."
            )
        self.url, self._secrets, self._patience = url.rstrip("/"), secrets, patience
        self._pace = Pace(rate)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.Client(
            headers=dict(headers), timeout=httpx.Timeout(timeout, connect=10.0), limits=limits
        )
        weakref.finalize(self, self._client.close)

    def get(
        self,
        path: str,
        parameters: Mapping[str, str],
        read: Callable[[dict[str, Any]], T],
        *,
        refused: Callable[[int, str], str | None] = lambda status, words: None,
    ) -> T:
        """What ``read`` makes of the JSON object that the server answers.

        Timeouts, broken connections, 429, 5xx, what is no JSON object and what ``read`` raises a
        `PassingError` for are tried again, with pauses that double or that the server asks for
        (Retry-After, X-RateLimit-Reset), until ``patience`` is over.

        Args:
          path: below the address.
          parameters: of the query string.
          read: takes the answer apart.
          refused: given a status and the answer's text, says why every search would fail, or
            None where it need not; 401, 402, 403 and what is neither an answer nor the query's
            fault always stop the run.

        Raises:
          InputError: the server refuses this query (400, 413, 414, 422).
          SearchRefusedError: it refuses everything.
          EngineDown: no answer for as long as ``patience`` says.
        """
        self._pace.wait()
        began, failures = time.monotonic(), 0
        while True:
            try:
                return read(self._once(path, parameters, refused))
            except PassingError as error:
                longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)
                asked = error.pause
                pause = longest * random.uniform(0.5, 1) if asked is None else asked
                if time.monotonic() + pause > began + self._patience:
                    raise self._gone(error, asked) from None
                if not failures:
                    _log.warning("%s; trying again", error)
                failures += 1
            if asked is not None:
                self._pace.hold(pause)  # for all: what one is told holds for the others
            else:
                time.sleep(pause)
            self._pace.wait()

    def _once(
        self,
        path: str,
        parameters: Mapping[str, str],
        refused: Callable[[int, str], str | None],
    ) -> dict[str, Any]:
        where = self.url + path
        try:
            response = self._client.get(where, params=dict(parameters))
        except httpx.TransportError as error:
            raise PassingError(f"{where}: {type(error).__name__}: {self._clean(error)}") from None
        status, text = response.status_code, response.text
        words = self._clean(text)
        if status in _AGAIN:
            raise PassingError(f"{where} answers {status}: {words}", pause=_asked_pause(response))
        if why := refused(status, text):
            raise SearchRefusedError(f"{where} refuses ({status}): {why} It says: {words}")
        if status in _QUERY:
            raise InputError(f"{where} refuses this query ({status}): {words}")
        if status != 200:
            raise SearchRefusedError(
                f"{where} refuses ({status}): check the key and the address. It says: {words}"
            )
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise PassingError(f"{where} answers something else than a JSON object: {words}")
        return value

    def _gone(self, error: PassingError, asked: float | None) -> EngineDown:
        told = f"; it asks to wait {asked:,.0f} s" if asked else ""
        return EngineDown(
            f"no answer of the search engine within {self._patience:.0f} s (last: {error}){told}. "
            "What was found is kept: run the same command again, later or with more patience."
        )

    def _clean(self, text: object) -> str:
        """The beginning of a text on one line, without the secrets."""
        line = " ".join(str(text).split())
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line[:_WORDS]


def check_address(url: str) -> None:
    """InputError for an address that is none, or that holds a password."""
    place = urllib.parse.urlsplit(url).netloc
    if not url.startswith(("http://", "https://")) or not place:
        raise InputError(f"{url!r} is not a server's address: http://HOST or https://HOST it is.")
    if "@" in place:
        raise InputError("A server's address holds a password: give it as a key instead.")


def _asked_pause(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait: the longer of its headers, None without any."""
    asked = [_retry_after(response), _until_reset(response)]
    return max((seconds for seconds in asked if seconds is not None), default=None)


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _until_reset(response: httpx.Response) -> float | None:
    """Brave's headers: for each window (second, month), what remains and when it begins anew."""
    resets = _numbers(response.headers.get("X-RateLimit-Reset", ""))
    left = _numbers(response.headers.get("X-RateLimit-Remaining", ""))
    if not resets:
        return None
    spent = [reset for reset, some in zip(resets, left, strict=False) if some <= 0]
    return max(spent) if spent else min(resets)


def _numbers(text: str) -> list[float]:
    try:
        return [max(0.0, float(part)) for part in text.split(",") if part.strip()]
    except ValueError:
        return []
