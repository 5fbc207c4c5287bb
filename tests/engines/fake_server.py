"""A server that speaks the OpenAI protocol and fails as told; for faults that no real one makes."""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

END = 257


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """The prompt's first tokens backwards and an end token, each with log-probability -0.1."""
    prompt = body["prompt"]
    if body.get("echo"):
        values = [None, *(-token / 100 for token in prompt[1:])]
        return {"choices": [{"text": "", "logprobs": {"token_logprobs": values}}]}
    made = [*prompt[: body["max_tokens"] - 1][::-1], END]
    choice = {
        "text": "?",
        "token_ids": made,
        "finish_reason": "stop",
        "stop_reason": None,
        "logprobs": {"token_logprobs": [-0.1] * len(made)},
    }
    return {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": "tiny", "max_model_len": self.server.max_length}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.bodies)
            self.server.bodies.append((self.path, body, self.headers.get("Authorization")))
            self.server.busy += 1
            self.server.most = max(self.server.most, self.server.busy)
        try:
            self.server.fault(self, number, body)
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def drop(self) -> None:
        """Breaks the connection off."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, status: int, value: Any, **headers: str) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)


def well(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """No fault."""
    with handler.server.lock:
        handler.server.answered.append(body["prompt"])
    handler.send(200, answer(body))


@contextmanager
def serving(
    fault: Callable[[Handler, int, dict[str, Any]], None] = well,
    port: int = 0,
    max_length: int = 64,
) -> Any:
    """A server here: its ``url``, the ``bodies`` it was asked, the prompts that it ``answered``."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.lock, server.bodies, server.fault = threading.Lock(), [], fault
    server.answered = []
    server.busy = server.most = 0
    server.max_length = max_length
    server.daemon_threads = True
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.fault = lambda handler, *_: handler.drop()  # for connections that are kept alive
        server.shutdown()
        server.server_close()
        thread.join()


def faulty(handler: Handler, number: int, body: dict[str, Any]) -> None:
    """Of seven answers one is lost, one refused, one is no JSON, one is asked to wait for."""
    kind = number % 7
    if kind == 1:
        handler.drop()
    elif kind == 3:
        handler.send(503, {"error": "starting"})
    elif kind == 4:
        handler.send(200, b"<html>a proxy's page</html>")
    elif kind == 5:
        handler.send(429, {"error": "slow down"}, Retry_After="0.02")
    else:
        well(handler, number, body)


def slowly(seconds: float) -> Callable[[Handler, int, dict[str, Any]], None]:
    """Answers well, but only after a while."""

    def fault(handler: Handler, number: int, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        well(handler, number, body)

    return fault
