"""The event loop that all HTTP clients share; requests are tested with servers and web search."""

import gc
import gzip
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jaxrag.core.http import HttpClient
from jaxrag.types import EngineDown, InputError
from tests import local_http

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
NAMED = CHUNKED.replace(b"OK\r\n", b"OK\r\nContent-Encoding: gzip\r\n", 1)


def body(data: bytes, headers: bytes = b"") -> bytes:
    return OK + headers + b"Content-Length: %d\r\n\r\n" % len(data) + data


BOMB = gzip.compress(gzip.compress(bytes(200_000_000), 9), 9)
HOSTILE: dict[str, tuple[bytes, bytes, str]] = {  # sent once, then again and again; what is said
    "header": (OK + b"X: ", b"a" * 9999, "Receive buffer too long"),
    "slow header": (OK + b"X: ", b"a", "not answered after 0.5 s"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99, "not answered after 0.5 s"),
    "Early Hints": (b"", b"HTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\n", "not answered after 0.5 s"),
    "chunk extension": (CHUNKED + b"1;", b"a" * 9999, "Receive buffer too long"),
    "empty chunks": (CHUNKED, b"1;" + b"a" * 99 + b"\r\n \r\n", "not answered after 0.5 s"),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: a\r\n" * 99, "Receive buffer too long"),
    "name in gzip": (NAMED + b"a\r\n\x1f\x8b\x08\x08" + bytes(6) + b"\r\n", b"1\r\na\r\n", "0.5 s"),
    "bomb": (body(BOMB, b"Content-Encoding: gzip, gzip\r\n"), b"", "more than 16 MB"),
    "status line": (b"HTTP/1.1 200 ", b"a" * 9999, "Receive buffer too long"),
    "no status": (b"HTTX/9\r\n\r\n", b"", "illegal status line"),
    "length": (OK + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\n", b"", "bad Content-Length"),
    "two lengths": (OK + b"Content-Length: 2\r\n" + body(b"")[17:], b"", "conflicting Content-Len"),
    "end": (body(b"{}")[:-1], b"", "closed connection"),
    "body": (OK + b"\r\n", b" " * 99_999, "more than 16 MB"),
    "lists": (body(b'{"a":[' + b"[]," * 1_100_000 + b"1]}"), b"", "over 2,000,000 values"),
    "depth": (body(b"[" * 99_999), b"", "something else than a JSON object"),
    "redirect": (
        b"HTTP/1.1 302 x\r\nLocation: file:///x\r\n" + body(b"")[17:],
        b"",
        "to file:///x",
    ),
    "pause": (
        b"HTTP/1.1 503 x\r\nRetry-After: 1e300\r\n" + body(b"")[17:],
        b"",
        "wait 1,000,000",
    ),
}


class Handler(local_http.Handler):
    """Sends bytes once, then others until the client goes; notes the cookies that it gets."""

    def do_GET(self) -> None:
        once, always, _ = self.server.fault
        self.server.cookies.append(self.headers.get("Cookie"))
        self.wfile.write(once)
        while always:
            self.wfile.write(always)
            time.sleep(0.01 * (len(always) < 9))
        self.drop()


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_without_end_or_sense_is_one_error(name: str) -> None:
    with local_http.serving(Handler, HOSTILE[name], cookies=[]) as server:
        timeout = 0.5 if "0.5 s" in HOSTILE[name][2] else 5.0  # 16 MB take time
        client = HttpClient([server.url], headers={}, timeout=timeout, patience=0.0)
        began = time.monotonic()
        with pytest.raises((EngineDown, InputError), match=HOSTILE[name][2]) as failed:
            client.request("GET", "/x")
        client.close()
        server.fault = (b"", b"", "")
    assert server.url in str(failed.value) and time.monotonic() - began < 5.5


def test_cookies_are_not_kept() -> None:
    answer = body(b"{}", b"Set-Cookie: a=b; Path=/\r\nConnection: close\r\n")
    with local_http.serving(Handler, (answer, b"", ""), cookies=[]) as server:
        client = HttpClient([server.url], headers={}, timeout=9.0, patience=0.0)
        assert [client.request("GET", "/x") for _ in range(2)] == [{}, {}]
        client.close()
        assert server.cookies == [None, None]
        server.fault = (b"", b"", "")


def test_a_client_collected_in_the_loops_own_thread_does_not_stop_it() -> None:
    client: Any = HttpClient(["http://localhost:1"], headers={}, timeout=1, patience=1)
    loop, collected = client._loop, threading.Event()
    client.itself = client  # so that only the collector finds it
    del client
    loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
    assert collected.wait(30)


class Held(local_http.Handler):
    """Refuses the first request for now, answers the second, and holds the others for a while."""

    def do_GET(self) -> None:
        with self.counted(self.server.asked, self.path) as number:
            if number > 1:
                self.server.fault.wait(30)
            self.send(503 if number == 0 else 200, {})


def test_a_server_that_failed_gets_half_as_many_requests_at_once() -> None:
    go_on = threading.Event()
    with local_http.serving(Held, go_on, asked=[]) as server:
        client = HttpClient([server.url], headers={}, timeout=60, patience=60)
        client.request("GET", "/x")  # 4 at first, halved, and one more for the prompt answer
        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(client.request, "GET", "/x") for _ in range(8)]
            for _ in range(500):
                time.sleep(0.01 if server.busy < 3 else 0)
            time.sleep(0.2)
            assert server.busy == 3
            go_on.set()
            assert [one.result() for one in answers] == [{}] * 8
        client.close()
