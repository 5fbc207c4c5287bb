"""JSON over HTTP from one server or several equal ones: choice of server, rate, retries."""

from __future__ import annotations

import contextlib
import email.utils
import logging
import random
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx2 as httpx

from jaxrag.types import EngineDown, InputError

_log = logging.getLogger("jaxrag")
_TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504}  # status codes that are worth a retry
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds; doubled after every failure
_QUOTED = 500  # characters of a server's answer that a message quotes

T = TypeVar("T")


class TransientError(Exception):
    """A failure that a retry may mend; ``pause``: seconds that the server asks to wait, if any."""

    def __init__(self, message: str, *, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class _Server:
    """One address, its open requests, and until when no request goes there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.busy = 0
        self.failures = 0  # in a row
        self.away_until = 0.0  # by our choice, after a failure
        self.held_until = 0.0  # as the server asked
        self.trouble = ""  # its last failure

    def wait(self, now: float, deadline: float, resting: float) -> float:
        """Seconds until a request may go there, which itself avoids it until ``resting``."""
        return max(self.held_until, min(self.away_until, deadline), resting, now) - now


def retry_after(response: httpx.Response) -> float | None:
    """Seconds in the header Retry-After (a number or a date); None without one."""
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def refusal(status: int, text: str, message: str) -> Exception:
    """The error for a request that the server refuses: one `InputError`, whatever the status."""
    return InputError(message)


class HttpClient:
    """Sends a request to the least busy server and retries what may pass; threads may share it.

    Timeouts, broken connections, status 408, 409, 425, 429, 5xx and answers that are no JSON object
    are retried. A server that failed is left alone for 0.5 to 30 s, twice as long after every
    failure in a row, or for as long as it asks; meanwhile requests go to the other servers.

    Args:
      urls: addresses of equal servers, up to the path.
      headers: of every request.
      secrets: texts that no message may show, such as keys in ``headers``.
      timeout: seconds until one attempt is given up.
      patience: seconds until a request is given up, all attempts together.
      rate: most attempts that begin per second; None for no limit.
      requested_pause: seconds to wait that a failed response asks for.
      refused: the error for a status that no retry mends, from (status, text, message).

    Raises:
      InputError: no address, a malformed one, one that holds a password, or a number out of range.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        headers: Mapping[str, str],
        secrets: Sequence[str] = (),
        timeout: float,
        patience: float,
        rate: float | None = None,
        requested_pause: Callable[[httpx.Response], float | None] = retry_after,
        refused: Callable[[int, str, str], Exception] = refusal,
    ) -> None:
        if not urls:
            raise InputError("no server is given: set its address, such as http://localhost:8000")
        for url in urls:
            check_address(url)
        if timeout <= 0 or patience < 0 or (rate is not None and rate <= 0):
            raise InputError(
                f"timeout is {timeout}, patience {patience} and rate {rate}: timeout and rate must "
                "be above 0, patience at least 0."
            )
        self._servers = [_Server(url.rstrip("/")) for url in urls]
        self._secrets, self._patience = tuple(secrets), patience
        self._requested_pause, self._refused = requested_pause, refused
        self._lock, self._spacing, self._next = threading.Lock(), 1 / rate if rate else 0.0, 0.0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.Client(
            headers=dict(headers), timeout=httpx.Timeout(timeout, connect=10.0), limits=limits
        )
        self._close = weakref.finalize(self, self._client.close)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        parameters: Mapping[str, str] | None = None,
        read: Callable[[dict[str, Any]], T] = lambda answer: answer,
        patience: float | None = None,
    ) -> T:
        """What ``read`` makes of the JSON object that a server answers.

        Args:
          method: "GET" or "POST".
          path: below the servers' addresses.
          body: sent as JSON.
          parameters: of the query string.
          read: takes the answer apart; where it raises `TransientError`, the request is retried.
          patience: seconds for all attempts, instead of the client's own.

        Raises:
          EngineDown: no server answered within ``patience``.
          Exception: what ``refused`` returns for a status that no retry mends.
        """
        self._wait_for_rate()
        patience = self._patience if patience is None else patience
        deadline, failures = time.monotonic() + patience, 0
        resting: dict[_Server, float] = {}  # until when this request avoids a server
        while True:
            with self._free_server(resting, deadline, patience) as server:
                if failures:
                    self._wait_for_rate()
                try:
                    value = read(self._once(server, method, path, body, parameters))
                except TransientError as error:
                    pause = _pause(failures) if error.pause is None else error.pause
                    resting[server], failures = time.monotonic() + pause, failures + 1
                    self._leave_alone(server, error)
                else:
                    server.failures = 0
                    return value

    def close(self) -> None:
        """Closes all connections."""
        self._close()

    @contextlib.contextmanager
    def _free_server(
        self, resting: Mapping[_Server, float], deadline: float, patience: float
    ) -> Iterator[_Server]:
        """The least busy server that may be asked, as soon as there is one."""
        while True:
            with self._lock:
                now = time.monotonic()
                waits = {s: s.wait(now, deadline, resting.get(s, 0.0)) for s in self._servers}
                server = min(self._servers, key=lambda s: (waits[s], s.busy))
                wait = waits[server]
                if (wait or resting) and now + wait > deadline:
                    raise EngineDown(
                        f"no server answered within {patience:.0f} s (last: {server.trouble}). "
                        "Finished work is kept: check the server, then run the same command again."
                    )
                if not wait:
                    server.busy += 1
                    break
            time.sleep(wait)
        try:
            yield server
        finally:
            with self._lock:
                server.busy -= 1

    def _once(
        self,
        server: _Server,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        parameters: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        where = server.url + path
        try:
            response = self._client.request(method, where, json=body, params=parameters)
        except httpx.TransportError as error:
            raise TransientError(f"{where}: {type(error).__name__}: {self._quote(error)}") from None
        status, quote = response.status_code, self._quote(response.text)
        if status in _TRANSIENT:
            raise TransientError(
                f"{where} answers {status}: {quote}", pause=self._requested_pause(response)
            )
        if status != 200:
            raise self._refused(status, response.text, f"{where} refuses ({status}): {quote}")
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise TransientError(f"{where} answers something else than a JSON object: {quote}")
        return value

    def _leave_alone(self, server: _Server, error: TransientError) -> None:
        with self._lock:
            now, server.trouble, first = time.monotonic(), str(error), not server.failures
            if error.pause is not None:
                server.trouble += f"; it asks to wait {error.pause:,.0f} s"
                server.held_until = max(server.held_until, now + error.pause)
                server.failures = max(server.failures, 1)
            elif now >= server.away_until:  # requests that fail together count as one failure
                server.away_until = now + _pause(server.failures)
                server.failures += 1
        if first:
            _log.warning("%s; trying again", error)

    def _wait_for_rate(self) -> None:
        with self._lock:
            start = max(self._next, time.monotonic())
            self._next = start + self._spacing
        time.sleep(max(0.0, start - time.monotonic()))

    def _quote(self, text: object) -> str:
        """The beginning of a text on one line, without the secrets."""
        line = " ".join(str(text).split())
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line[:_QUOTED]


def _pause(failures: int) -> float:
    """Seconds to wait after that many earlier failures."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures) * random.uniform(0.5, 1)


def check_address(url: str) -> None:
    """Raises `InputError` for a malformed address, or one that holds a password."""
    host = urllib.parse.urlsplit(url).netloc
    if not url.startswith(("http://", "https://")) or not host:
        raise InputError(f"{url!r} is not a server's address: write http://HOST or https://HOST.")
    if "@" in host:
        raise InputError("A server's address holds a password: give it as a key instead.")
