"""JSON over HTTP from one or several equivalent servers: load balancing, rate limit, retries."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import email.utils
import functools
import html
import ipaddress
import logging
import os
import random
import re
import string
import threading
import time
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx2 as httpx

from jaxrag.core.json_text import parse_json
from jaxrag.core.printable import printable
from jaxrag.types import EngineDown, InputError

_log = logging.getLogger("jaxrag")
TRANSIENT = frozenset({202, 204, 408, 409, 420, 425, 429, 498, 499, *range(500, 600)})
"""Status codes that are retried: of answers to come, and of busy servers, clouds and proxies."""
_FIRST_OPEN = 4  # open requests of a server at first
_KEEPING_UP = 1 / 8  # of the timeout: a server that answers within it gets one more at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds; doubled after every failure
_MOST_BYTES = 16_000_000  # of a response, unpacked: 100,000 tokens with log-probabilities
_MARKS, _MOST_MARKS = (b"[", b"{", b",", b"\\", b"&", b"%"), 2_000_000  # values, escapes
_QUOTED = 500  # characters of a response that an error message quotes
_SHORT = 16  # characters; a shorter key, such as EMPTY, may be a word of an answer
_TIMEOUTS = httpx.Timeout(None, connect=10.0).as_dict()
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "jaxrag"}

T = TypeVar("T")


class TransientError(Exception):
    """A failure to be retried, after ``pause`` seconds if the server requests a pause.

    After ``attempts`` of a request, if given, it is final, and an `InputError`.
    """

    def __init__(
        self, message: str, *, pause: float | None = None, attempts: int | None = None
    ) -> None:
        super().__init__(message)
        self.pause, self.attempts = pause, attempts


@dataclasses.dataclass(eq=False)
class _Server:
    """An address with its open requests, and the times until which it gets no new requests."""

    url: str
    transport: httpx.AsyncHTTPTransport
    most: int  # open requests that it gets; rises while it keeps up
    busy: int = 0
    failures: int = 0  # in a row
    backoff_until: float = 0.0  # after a failure
    paused_until: float = 0.0  # as requested by the server
    last_failure: str = ""

    def wait(self, now: float, deadline: float, resting: float) -> float:
        """Seconds until it may get a request that itself avoids it until ``resting``."""
        return max(self.paused_until, min(self.backoff_until, deadline), resting, now) - now


def retry_after(response: httpx.Response) -> float | None:
    """Seconds in the header Retry-After (a number or a date); None without one, or for no pause."""
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value)) or None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time()) or None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


class HttpClient:
    """Sends requests to the least busy server and retries transient failures; thread-safe.

    Timeouts, broken connections, status of `TRANSIENT` and responses that are not a JSON
    object, or have over 16 MB or 2 million values and escapes, are retried. A server that failed
    gets no requests for 0.5 to 30 s, twice as long after each consecutive failure, or for as long
    as it requests. A server gets few requests at once first, one more with each prompt answer, and
    half as many after a failure. Redirects are not followed, cookies not kept. The environment's
    proxy serves all but this machine and NO_PROXY.

    Args:
      urls: addresses of equivalent servers, up to the path.
      headers: headers of every request.
      secrets: strings such as keys in ``headers``. Messages have *** in their place, and so have
        answers in place of those of 16 characters or more. Of an answer that spells such a one
        otherwise (`_spells`) nothing is shown or read.
      timeout: seconds of an attempt, from sending it to the last byte of the response.
      patience: seconds of a request, over all attempts.
      rate: largest number of attempts per second; None for no limit.
      concurrency: largest number of open requests of a server.
      requested_pause: response -> seconds of pause that a failed response requests, or None.
      refused: the error for a status that is not retried, from (status, text, message).
      final: whether a status that would be retried is refused, too, from (status, text).

    InputError for no address, a malformed one, one with a password, or a number out of range.
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
        concurrency: int = 64,
        requested_pause: Callable[[httpx.Response], float | None] = retry_after,
        refused: Callable[[int, str, str], Exception] = lambda _, text, message: InputError(
            message
        ),
        final: Callable[[int, str], bool] = lambda status, text: False,
    ) -> None:
        if not urls:
            raise InputError("no server is given: set its address, such as http://localhost:8000")
        for url in urls:
            check_address(url)
        rates = () if rate is None else (rate,)
        longest = 1e9  # seconds; larger integers are no floats
        if not (0 <= patience < longest and all(1e-9 < x < longest for x in (timeout, *rates))):
            raise InputError(
                f"timeout is {timeout}, patience {patience} and rate {rate}: timeout and rate must "
                f"be above 0, patience at least 0, all finite and below {longest:g}."
            )
        first = min(_FIRST_OPEN, concurrency)
        self._servers = [_Server(url.rstrip("/"), _transport(url), first) for url in urls]
        self._headers = {**_HEADERS, **headers}
        self._secrets = [secret for secret in secrets if secret]
        self._long_secrets = [secret for secret in secrets if len(secret) >= _SHORT]
        self._patience, self._timeout = patience, timeout
        self._requested_pause, self._refused, self._final = requested_pause, refused, final
        self._concurrency = concurrency
        self._lock, self._next = threading.Condition(), 0.0
        self._spacing = 1 / rate if rate else 0.0
        self._loop = _loop()
        # garbage may be collected in the loop's own thread, where waiting would never end
        self._close = weakref.finalize(self, _start, self._loop, _close, self._servers)
        self._close.atexit = False

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
        """The JSON object of a response, or {"data": its list}, passed through ``read``.

        If that raises `TransientError`, the request is retried. ``path`` is below the servers'
        addresses, ``body`` sent as JSON, ``parameters`` as the query; ``patience`` replaces the
        client's. EngineDown if no server answered in time; for a status that is not retried, the
        error of ``refused``.
        """
        self._wait_for_rate()
        patience, failures = self._patience if patience is None else patience, 0
        resting: dict[_Server, float] = {}  # until when this request avoids a server
        since = [time.monotonic()]
        while True:
            with self._free_server(resting, since, patience) as server:
                if failures:
                    self._wait_for_rate()
                start = time.monotonic()
                try:
                    value = read(self._once(server, method, path, body, parameters))
                except TransientError as error:
                    pause = _pause(failures) if error.pause is None else error.pause
                    resting[server], failures = time.monotonic() + pause, failures + 1
                    self._back_off(server, error)
                    if error.attempts and failures >= error.attempts:
                        raise InputError(str(error)) from None
                else:
                    server.failures = 0
                    if time.monotonic() - start < _KEEPING_UP * self._timeout:
                        server.most = min(server.most + 1, self._concurrency)
                    return value

    def close(self) -> None:
        """Closes all connections."""
        if closing := self._close():
            closing.result()

    @contextlib.contextmanager
    def _free_server(
        self, resting: Mapping[_Server, float], since: list[float], patience: float
    ) -> Iterator[_Server]:
        """The least busy server that may get a request; patience counts from the first attempt."""
        with self._lock:
            while True:
                now = time.monotonic()
                if all(s.busy >= s.most for s in self._servers):
                    since[0] = since[0] if resting else now
                    self._lock.wait(1.0)
                    continue
                deadline, free = since[0] + patience, [s for s in self._servers if s.busy < s.most]
                waits = {s: s.wait(now, deadline, resting.get(s, 0.0)) for s in free}
                server = min(free, key=lambda s: (waits[s], s.busy))
                wait = waits[server]
                if (wait or resting) and now + wait > deadline:
                    raise EngineDown(
                        f"no server answered within {patience:.0f} s (last: "
                        f"{server.last_failure}). Finished work is kept: check the server, then "
                        "run the same command again."
                    )
                if not wait:
                    server.busy += 1
                    break
                self._lock.wait(wait)
        try:
            yield server
        finally:
            with self._lock:
                server.busy -= 1
                self._lock.notify_all()

    def _once(
        self,
        server: _Server,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        parameters: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        where, headers = server.url + path, self._headers
        request = httpx.Request(method, where, params=parameters, headers=headers, json=body)
        request.extensions = {"timeout": _TIMEOUTS}
        try:
            response, data = _start(self._loop, self._fetch, server, request).result()
        except TimeoutError:
            raise TransientError(f"{where} has not answered after {self._timeout:g} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            proxy = " (by the environment's proxy)" if _proxy(where) else ""
            reason = f"{type(error).__name__}: {self._quote(error)}"
            raise TransientError(f"{where}{proxy}: {reason}") from None
        for secret in self._long_secrets:
            data = data.replace(secret.encode(), b"***")
        text, status = data.decode("utf-8", "replace"), response.status_code
        hidden, quote = _spells(text, self._long_secrets), self._quote(text)
        text = "" if hidden else text
        if status in TRANSIENT and not self._final(status, text):
            raise TransientError(
                f"{where} answers {status}: {quote}", pause=self._requested_pause(response)
            )
        if 300 <= status < 400:
            to = self._quote(response.headers.get("Location", "nowhere"))
            quote = f"it redirects to {to}, which is not followed: name the server that answers."
        if status == 407:
            quote = "the environment's proxy asks for a name and a password"
        if status != 200:
            raise self._refused(status, text, f"{where} refuses ({status}): {quote}")
        if hidden:
            raise InputError(f"{where}: {quote}, so nothing of it is read.")
        try:
            value = parse_json(data)
        except ValueError:
            value = None
        value = {"data": value} if isinstance(value, list) else value  # as Together lists models
        if not isinstance(value, dict):
            raise TransientError(f"{where} answers something else than a JSON object: {quote}")
        return value

    async def _fetch(self, server: _Server, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        """A response and its unpacked body; TransientError if that has too many bytes or values."""
        data = bytearray()
        async with asyncio.timeout(self._timeout):
            response = await server.transport.handle_async_request(request)
            async with contextlib.aclosing(response):
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > _MOST_BYTES:
                        most = f"{_MOST_BYTES / 1e6:.0f} MB"
                        raise TransientError(f"{server.url} answers more than {most}")
        if sum(map(data.count, _MARKS)) > _MOST_MARKS:
            raise TransientError(f"{server.url} answers over {_MOST_MARKS:,} values and escapes")
        return response, bytes(data)

    def _back_off(self, server: _Server, error: TransientError) -> None:
        with self._lock:
            now, first = time.monotonic(), not server.failures
            server.last_failure = str(error)
            if error.pause is not None:
                server.last_failure += f"; it asks to wait {min(error.pause, 1e9):,.0f} s"
                server.paused_until = max(server.paused_until, now + error.pause)
                server.failures = max(server.failures, 1)
                server.most = max(server.most // 2, 1) if first else server.most
            elif now >= server.backoff_until:  # requests that fail together count as one failure
                server.backoff_until = now + _pause(server.failures)
                server.failures += 1
                server.most = max(server.most // 2, 1)
        if first:
            _log.warning("%s; trying again", error)

    def _wait_for_rate(self) -> None:
        with self._lock:
            start = max(self._next, time.monotonic())
            self._next = start + self._spacing
        time.sleep(max(0.0, start - time.monotonic()))

    def _quote(self, text: object) -> str:
        """The beginning of a text on one line, without secrets and control characters."""
        quoted = str(text)
        for secret in self._secrets:
            quoted = quoted.replace(secret, "***")
        if _spells(quoted, self._long_secrets):
            return "its answer has the request's key in it"
        return printable(" ".join(quoted.split())[:_QUOTED])


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all clients, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="jaxrag-http").start()
    return loop


def _start(
    loop: asyncio.AbstractEventLoop, work: Callable[..., Coroutine[Any, Any, T]], *args: Any
) -> Future[T]:
    """Starts a coroutine function in a loop."""
    return asyncio.run_coroutine_threadsafe(work(*args), loop)


async def _close(servers: Sequence[_Server]) -> None:
    for server in servers:
        await server.transport.aclose()


def _transport(url: str) -> httpx.AsyncHTTPTransport:
    """Connections to a server; redirects and cookies are no matter of a transport."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    try:
        return httpx.AsyncHTTPTransport(limits=limits, proxy=_proxy(url))
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        # the text of the last may quote a password
        reason = "it is no address" if isinstance(error, httpx.InvalidURL) else error
        raise InputError(
            f"The proxy that the environment names cannot be used ({reason}): unset ALL_PROXY, "
            "HTTP_PROXY or HTTPS_PROXY, or name the server's host in NO_PROXY."
        ) from None


def _proxy(url: str) -> str | None:
    """The environment's proxy for an address; None for this machine and hosts in NO_PROXY."""
    parts, proxies = urllib.parse.urlsplit(url), urllib.request.getproxies()
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_loopback or address.is_unspecified:
            return None
    local = host == "localhost" or host.endswith(".localhost")
    if local or urllib.request.proxy_bypass(host):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return (proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _pause(failures: int) -> float:
    """Seconds of backoff after that many earlier failures, with jitter."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures) * random.uniform(0.5, 1)


_OTHERS = bytes(c for c in range(256) if chr(c) not in string.ascii_lowercase + string.digits)
_ESCAPE = re.compile(r"(?:\\u|u\+)([0-9a-f]{4})|[\\0]x([0-9a-f]{2})|\\[nrtbf]", re.IGNORECASE)
_TAG = re.compile("<[^<>]*>")
_LONG_NUMBER = re.compile("&#x?[0-9a-f]{40,}", re.IGNORECASE)  # of no character


def _spells(text: str, secrets: Sequence[str]) -> bool:
    """Whether a text has a secret in it, however it is spelt.

    Only letters and digits count, of the text with and without tags, after escapes of JSON,
    addresses and HTML up to three deep. A secret may be in base64 or a list of codes, too.
    """
    forms = {_alphanumeric(form) for secret in secrets for form in _encoded(secret)}
    forms = {form for form in forms if len(form) >= _SHORT // 2}
    texts = {text, _TAG.sub("", text)} if forms else set[str]()
    for _ in range(3):
        texts, escaped = {_unescaped(t) for t in texts}, texts
        if texts == escaped:
            break
    texts |= {text, *(_TAG.sub("", t) for t in texts)}  # a key may have a "0x" itself
    return any(form in t for t in map(_alphanumeric, texts) for form in forms)


def _unescaped(text: str) -> str:
    text = re.sub(r"\\+", r"\\", text)
    text = _ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or "20", 16)), text)
    return html.unescape(_LONG_NUMBER.sub("", urllib.parse.unquote(text)))


def _alphanumeric(text: str) -> bytes:
    return text.lower().encode("utf-8", "replace").translate(None, _OTHERS)


def _encoded(secret: str) -> list[str]:
    """A secret as it is, as codes of three bases, and in base64, wherever that begins in a text."""
    data = secret.encode()
    forms = [secret, data.hex(), "".join(map(str, data)), "".join(f"{c:03o}" for c in data)]
    for before in range(3):  # bytes before it in a group of three; characters shared with others go
        encoded = base64.b64encode(bytes(before) + data).decode()
        forms.append(encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6])
    return forms


def read_key(variable: str) -> str:
    """The key in an environment variable, without white space around it; "" if it is not set.

    InputError if ``variable`` is not a variable's name (it may be the key itself, so it is not
    quoted), or the value has spaces or other characters that no key has.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise InputError(
            "key_variable is not the name of an environment variable: give the name of the "
            "variable that holds the key, never the key itself."
        )
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(
            f"the value of {variable} is not a key: it has spaces or invalid characters."
        )
    return key


def check_address(url: str) -> None:
    """Raises `InputError` for a malformed address, or one with a password or a query."""
    if set(url) & set("?#"):
        raise InputError(
            "A server's address has a part after ? or #, which may be a key: give the address "
            "alone, and a key in the environment variable that key_variable names."
        )
    try:
        parts = httpx.URL(url)
        host, netloc = parts.host, urllib.parse.urlsplit(url).netloc
        password = parts.userinfo or re.search("@|%40", netloc)
        valid = bool(host) and parts.scheme in ("http", "https") and 0 < (parts.port or 80) < 65_536
        valid = valid and parts.port != 0 and not re.search(r"\s|%20|\.\.", host + netloc)
    except (ValueError, httpx.InvalidURL):
        valid, password = False, re.search("@|%40", url)
    if password:
        raise InputError("A server's address holds a password: give it as a key instead.")
    if not valid:
        raise InputError(
            f"{url[:200]!r} is not a server's address: write http://HOST or https://HOST."
        )
