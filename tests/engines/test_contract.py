"""The contract of engines, kept by Local and by Server; vLLM's files have those that need vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.server import Server
from tests.engines import contract
from tests.engines.fake_server import serving
from tests.engines.tiny_model import CHATS

SERVED = {**dict.fromkeys(contract.CAPABILITIES, "yes"), "inspect": "no"}


def served(local: LocalModel) -> Any:
    """What a server with this model answers."""

    def text(tokens: list[int]) -> str:
        return str(local.tokenizer.decode(tokens))

    def answer(handler: Any, number: int, body: dict[str, Any]) -> None:
        asked, choice = body["prompt"], {"text": "", "finish_reason": "stop"}
        if body.get("echo"):
            (values,) = local.logprob([text(asked[:1])], [text(asked[1:])])
            choice["logprobs"] = {"token_logprobs": [None, *values.tolist()]}
        else:
            options = {k: body[k] for k in ("temperature", "seed") if k in body}
            (made,) = local.generate(
                [text(asked)],
                max_new_tokens=body["max_tokens"],
                stop=body.get("stop", ()),
                **options,
            )
            choice |= {"text": made.text, "token_ids": made.tokens}
            choice["logprobs"] = {"token_logprobs": made.logprobs}
            choice["finish_reason"] = "length" if made.finish_reason == "length" else "stop"
        handler.send(200, {"choices": [choice], "usage": {"prompt_tokens": len(asked)}})

    return answer


def test_local(model: LocalModel) -> None:
    assert contract.shown(model, model, CHATS) == contract.recorded("Local", "CPU")


def test_server(model: LocalModel, directory: Path) -> None:
    with serving(served(model), max_length=1024) as server:
        engine = Server("tiny", server.url, str(directory)).load(Path())
        assert contract.shown(engine, model, CHATS) == SERVED
        engine.close()
