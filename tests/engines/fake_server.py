"""A server that speaks the OpenAI protocol and fails as told; for faults that no real one makes."""

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from tests import local_http

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


class Handler(local_http.Handler):
    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": "tiny", "max_model_len": self.server.max_length}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        what = (self.path, body, self.headers.get("Authorization"))
        with self.counted(self.server.bodies, what) as number:
            self.server.fault(self, number, body)


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
    state = {"bodies": [], "answered": [], "max_length": max_length}
    with local_http.serving(Handler, fault, port, **state) as server:
        server.url += "/v1"
        yield server


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
