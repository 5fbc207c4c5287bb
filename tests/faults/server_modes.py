"""Servers of the OpenAI protocol as they are met, each a mode, with what a run against it must say.

The model says "Lima" to every question, inside <answer> tags where the prompt asks for them. Its
tokens are characters (completions: bytes); every second has log-probability -0.5, the others -0.25,
and 1 less where the question holds "largest"; the end token has -2. So u is known (DTR eq 3), and
is another one where the end token counts.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrag.models.tokenizer import load_tokenizer
from tests import local_http

END = ("<|im_end|>", -2.0)
END_ID = 257
UNSURE = "largest"
NAN = float("nan")
LIMIT = 3.5  # seconds that a server which never ends goes on
Row = tuple[str, Any]


# What a run must end with ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Right:
    """Every question answered by ``text``, with the u of its tokens and ``counted`` others.

    Attributes:
      text: the answer.
      counted: log-probabilities of tokens that belong to the generation but not to its text.
      says: a pattern that the log must match, where the value is right only if something is said.
    """

    text: str = "Lima"
    counted: tuple[float, ...] = ()
    says: str = ""


@dataclasses.dataclass(frozen=True)
class Refused:
    """No question answered, and an error that matches ``fault``.

    Attributes:
      fault: a pattern that names the server's fault; case is ignored.
      stops: the run stops at once, instead of failing question by question.
      first: the run is refused before its first question is sent.
    """

    fault: str
    stops: bool = False
    first: bool = False


@dataclasses.dataclass(frozen=True)
class NoAnswer:
    """Every question has the answer "" with an infinite u: the model gave none."""


# What is asked, and how the model answers ---------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request: its path and body, its number among those of the run, and the open ones."""

    path: str
    body: dict[str, Any]
    number: int
    busy: int
    tokenizer: Any

    @property
    def chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def prompt(self) -> str:
        if self.chat:
            return "\n".join(str(message["content"]) for message in self.body["messages"])
        prompt = self.body["prompt"]
        return prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)

    def text(self, name: str = "Lima") -> str:
        return f"<answer>{name}</answer>" if "<answer>" in self.prompt else name


def logprobs(count: int, unsure: bool) -> list[float]:
    """Those of the tokens of a text; see the module's docstring."""
    return [-(0.5 if i % 2 else 0.25) - unsure for i in range(count)]


def rows_of(asked: Asked, text: str) -> list[Row]:
    """The tokens of a text: characters with their log-probabilities."""
    return list(zip(text, logprobs(len(text), UNSURE in asked.prompt), strict=True))


def reply(
    asked: Asked,
    *,
    text: Any = None,
    rows: Sequence[Row] | None = None,
    end: Row | None = END,
    finish: Any = "stop",
    octets: Callable[[str], list[int] | None] = lambda name: list(name.encode()),
    message: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A response of the endpoint that was asked.

    Args:
      asked: the request.
      text: the response's; by default the model's answer.
      rows: tokens and log-probabilities; by default those of ``text``.
      end: the end token as it is listed, or None.
      finish: the response's finish_reason.
      octets: the bytes of a token as the chat endpoint gives them.
      message: further fields of the message.
    """
    text = asked.text() if text is None else text
    listed = [*(rows_of(asked, text) if rows is None else rows), *([end] if end else [])]
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if asked.chat:
        wanted = [
            {"token": name, "logprob": value, "bytes": octets(name), "top_logprobs": []}
            for name, value in listed
        ]
        choice["message"] = {"role": "assistant", "content": text, **(message or {})}
        choice["logprobs"] = {"content": wanted} if asked.body.get("logprobs") else None
    else:
        choice["text"] = text
        if asked.body.get("return_token_ids"):
            ids = [token for name, _ in listed for token in _ids(asked, name)]
            choice["token_ids"] = ids
        names, values = [name for name, _ in listed], [value for _, value in listed]
        table = {"tokens": names, "token_logprobs": values, "top_logprobs": None}
        choice["logprobs"] = table if asked.body.get("logprobs") is not None else None
    usage = {"prompt_tokens": len(asked.prompt), "completion_tokens": len(listed)}
    return {"id": "x", "model": "tiny", "choices": [choice], "usage": usage}


def _ids(asked: Asked, name: str) -> list[int]:
    return [END_ID] if name == END[0] else asked.tokenizer.encode(name, add_special_tokens=False)


def edited(asked: Asked, change: Callable[[dict[str, Any]], Any], **given: Any) -> dict[str, Any]:
    """`reply` after a change of its only choice."""
    made = copy.deepcopy(reply(asked, **given))
    change(made["choices"][0])
    return made


def echo(asked: Asked) -> dict[str, Any]:
    """Log-probabilities of a prompt's tokens: -id / 100, and none of the first."""
    given = asked.body["prompt"]
    ids = asked.tokenizer.encode(given) if isinstance(given, str) else given
    values = [None, *(-token / 100 for token in ids[1:])]
    names = [asked.tokenizer.decode([token]) for token in ids]
    table = {"tokens": names, "token_logprobs": values, "top_logprobs": None}
    choice = {"index": 0, "text": asked.prompt, "finish_reason": "length", "logprobs": table}
    return {"choices": [choice], "usage": {"prompt_tokens": len(ids), "completion_tokens": 0}}


# A server, and its modes ----------------------------------------------------------------------


class Handler(local_http.Handler):
    def do_GET(self) -> None:
        models = self.server.mode.models
        if isinstance(models, int):
            self.send(models, {"error": {"message": "no such key", "code": models}})
        else:
            own = {"max_model_len": 4096, "owned_by": self.server.mode.owner}
            listed = [{"id": name, **own} for name in models]
            self.send(200, listed if self.server.mode.owner == "together" else {"data": listed})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.counted(self.server.asked, body) as number:
            asked = Asked(self.path, body, number, self.server.busy, self.server.tokenizer)
            found = self.server.fault(self, asked)
            if isinstance(found, tuple):
                self.send(*found)
            elif isinstance(found, (dict, bytes)):
                self.send(200, found)


_tokenizer = functools.cache(load_tokenizer)


def serving(mode: Mode, tokenizer: str) -> Any:
    """A server of a mode; ``mode`` and ``fault`` may be changed while it runs."""
    state = {"mode": mode, "asked": [], "tokenizer": _tokenizer(tokenizer)}
    return local_http.serving(Handler, lambda h, asked: mode.answer(h, asked), **state)


def plain(asked: Asked) -> dict[str, Any]:
    """No fault."""
    if asked.body.get("echo"):
        return echo(asked)
    return reply(asked)


@dataclasses.dataclass(frozen=True)
class Mode:
    """A kind of server.

    Attributes:
      reply: the response to a request: an object, or a status and an object.
      right: the outcomes that are right.
      endpoint: "chat" (no tokenizer is named) or "completions" (it is).
      methods: variants of the config that are run.
      settings: changes of the run.
      environment: variables.
      models: names of the models that the server lists, or the status of the refusal.
      owner: whose models they are; vLLM is asked whether it takes seeds.
      talk: instead of ``reply``: writes to the connection.
      most: requests that a run of DTR may send; 0 for any number.
      ends_late: whether the server goes on for `LIMIT` seconds, so that a run must end before.
    """

    reply: Callable[[Asked], Any] = plain
    right: tuple[Right | Refused | NoAnswer, ...] = (Right(),)
    endpoint: str = "chat"
    methods: tuple[str, ...] = ("dtr", "pairs")
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    models: Sequence[str] | int = ("tiny",)
    owner: str = ""
    talk: Callable[[Handler, Asked], Any] | None = None
    most: int = 0
    ends_late: bool = False

    def answer(self, handler: Handler, asked: Asked) -> Any:
        return self.talk(handler, asked) if self.talk else self.reply(asked)


PLAIN = Mode()


def refused_if(
    unfit: Callable[[Asked], Any],
    said: str,
    status: int = 400,
    later: Callable[[Asked], Any] = plain,
) -> Callable[[Asked], Any]:
    """Refuses requests that are ``unfit``."""
    return lambda asked: (status, {"error": {"message": said}}) if unfit(asked) else later(asked)


no_seed = refused_if(lambda asked: "seed" in asked.body, "Unsupported parameter: 'seed'")


def quoting(asked: Asked) -> Any:
    """Refuses unknown fields, and quotes the request."""
    unknown = set(asked.body) - CHAT_FIELDS
    return (422, {"unknown": min(unknown), "body": asked.body}) if unknown else plain(asked)


CHAT_FIELDS = {
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop"),
    *("seed", "logprobs", "top_logprobs", "n", "frequency_penalty", "presence_penalty"),
}
COMPLETION_FIELDS = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "stop", "seed", "logprobs", "echo"),
    *("n", "frequency_penalty", "presence_penalty"),
}


def strict(asked: Asked) -> Any:
    """Knows the fields of OpenAI's interface only."""
    if unknown := sorted(set(asked.body) - CHAT_FIELDS):
        return 400, {"error": {"message": f"Unrecognized request argument: {unknown[0]}"}}
    return plain(asked)


string_prompts = refused_if(
    lambda asked: not isinstance(asked.body["prompt"], str), "prompt must be a string"
)
chat_only = refused_if(lambda asked: not asked.chat, "Not Found", 404)
newer_limit = refused_if(
    lambda asked: "max_completion_tokens" not in asked.body or "max_tokens" in asked.body,
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
)
vllm_tpu = refused_if(
    lambda asked: not asked.chat and asked.body.get("logprobs") == 0, "Internal server error", 500
)


def transformers_serve(asked: Asked) -> Any:
    """Refuses unknown fields (422) and prompts of tokens (400), as ``transformers serve`` does."""
    if unknown := set(asked.body) - COMPLETION_FIELDS:
        return 422, {"detail": f"Unexpected fields in the request: {unknown}"}
    return string_prompts(asked)


def no_system_role(asked: Asked) -> Any:
    roles = [message["role"] for message in asked.body["messages"]]
    if "system" in roles:
        return 400, {"error": {"message": "System role not supported", "code": 400}}
    text = None if "Reply in one word." in asked.prompt else asked.text("Cusco")
    return reply(asked, text=text)


def llama_cpp(asked: Asked) -> Any:
    """Completions: no log-probabilities for 0, else those of the chat endpoint's form."""
    made = edited(asked, lambda choice: choice.pop("token_ids", None), end=None)
    wanted = asked.body.get("logprobs")
    rows = rows_of(asked, asked.text())
    content = [{"id": 1, "token": n, "logprob": p, "top_logprobs": []} for n, p in rows]
    made["choices"][0]["logprobs"] = {"content": content} if wanted else None
    return made


def own_defaults(asked: Asked) -> Any:
    """Takes what is not sent from the model's generation_config.json, or from its own options."""
    defaults = {"repetition_penalty": 1.05, "repeat_penalty": 1.1, "top_p": 0.8, "top_k": 20}
    used = {name: asked.body.get(name, value) for name, value in defaults.items()}
    cut = used["top_p"] != 1 or used["top_k"] not in (-1, 0)
    penalties = used["repetition_penalty"], used["repeat_penalty"]
    changed = penalties != (1, 1) or (asked.body["temperature"] and cut)
    return reply(asked, text=asked.text("Cusco") if changed else None)


def stopping(asked: Asked, *, kept: bool = False, listed: bool = True) -> Any:
    """Goes on after the answer until a stop string is met, which the text may keep or not."""
    full = asked.text() + ". It is in Peru."
    rows, stop = rows_of(asked, full), (asked.body.get("stop") or [None])[0]
    if not stop:
        return reply(asked, text=full, rows=rows)
    at = full.index(stop)
    shown = rows[: at + 1] if listed else rows[:at]
    return reply(asked, text=full[: at + len(stop)] if kept else full[:at], rows=shown, end=None)


THOUGHTS = "Cusco is old.\nLima?"


def thinking(asked: Asked, field: str, blanks: str = "") -> Any:
    """Thoughts in a field of their own, whose tokens are listed before the answer's."""
    text, more = asked.text(), {field: THOUGHTS}
    rows = [*rows_of(asked, f"<think>{THOUGHTS}</think>\n\n"), *rows_of(asked, text)]
    return reply(asked, text=blanks + text, rows=rows, message=more)


def thinking_aloud(asked: Asked, before: str) -> Any:
    """Thoughts in the text."""
    text = asked.text()
    return reply(asked, text=before + text, rows=rows_of(asked, before) + rows_of(asked, text))


def stopped_in_thoughts(asked: Asked) -> Any:
    """Thoughts in a field of their own, which a stop string may end."""
    if asked.body.get("stop"):
        return reply(asked, text="", rows=[("a", -9.0)], end=None, message={"reasoning": "a"})
    rows = [("a.b", -9.0), *rows_of(asked, asked.text())]
    return reply(asked, rows=rows, message={"reasoning": "a.b"})


def opened_by_template(asked: Asked, *, unfinished: bool = False) -> Any:
    """Thoughts that the template has opened, in the prompt."""
    if not asked.chat and not asked.prompt.endswith("<think>\n"):
        return reply(asked, text=asked.text("Cusco"))
    if unfinished:
        return reply(asked, text=THOUGHTS, end=None, finish="length")
    return thinking_aloud(asked, f"{THOUGHTS}\n</think>\n\n")


def with_content(content: Any, **given: Any) -> Callable[[Asked], Any]:
    """A chat message whose content is not the plain text."""

    def answer(asked: Asked) -> Any:
        shown = content(asked) if callable(content) else content

        def change(choice: dict[str, Any]) -> None:
            choice["message"]["content"] = shown

        return edited(asked, change, **given)

    return answer


def with_text(text: Any) -> Callable[[Asked], Any]:
    """A completion without token ids whose text is none."""

    def change(choice: dict[str, Any]) -> None:
        choice.pop("token_ids", None)
        choice["text"] = text

    return lambda asked: edited(asked, change)


def without_ids(asked: Asked, **given: Any) -> Any:
    return edited(asked, lambda choice: choice.pop("token_ids", None), **given)


def finishing(reason: Any) -> Callable[[Asked], Any]:
    return lambda asked: reply(asked, finish=reason)


def cut_short(reason: str) -> Callable[[Asked], Any]:
    """Broken off after two letters."""
    return lambda asked: reply(asked, text=asked.text()[:2], end=None, finish=reason)


def instead(**fields: Any) -> Callable[[Asked], Any]:
    """A whole response with other fields."""
    return lambda asked: {**plain(asked), **fields}


def once(first: Any, later: Callable[[Asked], Any] = plain) -> Callable[[Asked], Any]:
    """Answers otherwise to the first request of a run."""
    return lambda asked: first if asked.number == 0 else later(asked)


def always(answer: Any) -> Callable[[Asked], Any]:
    return lambda asked: answer


def choice_error(asked: Asked) -> Any:
    error = {"message": "Provider overloaded", "code": 529}
    return {"choices": [{"index": 0, "error": error, "finish_reason": "error"}]}


def values(change: Callable[[list[Any]], list[Any]]) -> Callable[[Asked], Any]:
    """Other log-probabilities, or other many of them, than the tokens'."""

    def alter(choice: dict[str, Any]) -> None:
        table = choice["logprobs"]
        if "content" not in table:
            table["token_logprobs"] = change(table["token_logprobs"])
            return
        rows = table["content"]
        changed = change([row["logprob"] for row in rows])
        names = [*rows, *[rows[-1]] * len(changed)][: len(changed)]
        table["content"] = [{**row, "logprob": p} for row, p in zip(names, changed, strict=True)]

    return lambda asked: edited(asked, alter)


def first_value(value: Any) -> Callable[[Asked], Any]:
    return values(lambda given: [value, *given[1:]])


def no_logprobs(asked: Asked) -> Any:
    made = edited(asked, lambda choice: choice.update(logprobs=None))
    del made["usage"]
    return made


def too_long(asked: Asked) -> Any:
    return reply(asked, text=asked.text() + "\n" + "x" * 60)


def scored(change: Callable[[list[Any]], list[Any]]) -> Callable[[Asked], Any]:
    """Other log-probabilities of prompts."""

    def answer(asked: Asked) -> Any:
        made = plain(asked)
        if asked.body.get("echo"):
            table = made["choices"][0]["logprobs"]
            table["token_logprobs"] = change(table["token_logprobs"])
            del table["tokens"]
        return made

    return answer


ACCENTS = "S\u00e3o Tom\u00e9"


def accents(asked: Asked, name: Callable[[int], str], given: bool, end: Row | None = END) -> Any:
    """A text whose accents are two tokens each, called by their bytes."""
    text, rows, octets = asked.text(ACCENTS), [], {}
    whole = text.encode()
    for byte, value in zip(whole, logprobs(len(whole), UNSURE in asked.prompt), strict=True):
        called = chr(byte) if byte < 128 else name(byte)
        octets[called] = [byte]
        rows.append((called, value))
    of = (lambda token: octets.get(token, list(token.encode()))) if given else lambda token: None
    return reply(asked, text=text, rows=rows, end=end, octets=of)


def blank_first(asked: Asked) -> Any:
    (name, value), *others = rows_of(asked, asked.text())
    return reply(asked, rows=[(f" {name}", value), *others])


# Connections that end badly or not at all -----------------------------------------------------


def for_ever(handler: Handler, asked: Asked) -> None:
    """Writes blanks for longer than any request may take, then breaks off."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        handler.wfile.write(b" ")
        time.sleep(0.05)
    handler.drop()


def broken_off(handler: Handler, asked: Asked) -> None:
    """Half of an answer."""
    whole = json.dumps(plain(asked)).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(whole)))
    handler.end_headers()
    handler.wfile.write(whole[: len(whole) // 2])
    handler.drop()


def broken_once(handler: Handler, asked: Asked) -> Any:
    return plain(asked) if asked.number else broken_off(handler, asked)


def few_at_once(handler: Handler, asked: Asked) -> Any:
    """Refuses a fifth open request."""
    if asked.busy > 4:
        return 503, {"error": {"message": "too many requests are open"}}
    time.sleep(0.02)
    return plain(asked)


def one_at_a_time(handler: Handler, asked: Asked) -> Any:
    """Works on one request after the other, those included whose clients have gone."""
    with handler.server.lock:
        handler.server.free = max(getattr(handler.server, "free", 0.0), time.monotonic()) + 0.06
        wait = handler.server.free - time.monotonic()
    time.sleep(wait)
    return plain(asked)


# The modes ------------------------------------------------------------------------------------

ROOM = {"method.reader.answer_tokens": 80, "method.reader.passage_tokens": 80}
SAMPLED = {"method.reader.temperature": 0.6}
SYSTEM = {"method.reader.prompts": "system"}
STOPS = {"method.reader.prompts": "stops"}
ONE = {"model.concurrency": 1}
MOST = 7  # requests: 4, one that is refused, and two to find out about the server
FAST = {"model.timeout": 0.4, "model.patience": 0.4}
SHORT = {"model.patience": 0.4}
LOGPROB = r"log-?prob"
NO_TEXT = r"\bcontent\b|\btext\b"
OR_REFUSED = (Right(), Refused(r"completions|messages", stops=True))
PART = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
HTML = b"<html><body>a proxy's page</body></html>"
BUSY = {"error": {"message": "Provider overloaded", "code": 529}}
NO_ANSWER = (NoAnswer(), Refused(r"reason|think"))
COMPLETIONS = functools.partial(Mode, endpoint="completions")
DTR = functools.partial(Mode, methods=("dtr",))  # where the kind of prompt makes no difference
COMPLETIONS_DTR = functools.partial(DTR, endpoint="completions")
FAULTY = {  # log-probabilities: which values, or how many
    "above 0": first_value(0.7),
    "NaN": first_value(NAN),
    "-9999": first_value(-9999.0),
    "null": first_value(None),
    "texts": values(lambda given: [f"{p}x" for p in given]),
    "missing": no_logprobs,
    "too few": values(lambda given: given[:2]),
    "too many": values(lambda given: given + given[:3]),
}

MODES: dict[str, Mode] = {
    "chat": Mode(),
    "completions": COMPLETIONS(),
    "completions, no ids": COMPLETIONS(without_ids),
    "scores": COMPLETIONS(methods=("rerank",)),
    # what a server lacks or refuses
    "chat only, plain text": Mode(
        chat_only, OR_REFUSED, settings={"method.reader.prompts": "small"}
    ),
    "chat only, a tokenizer named": COMPLETIONS(chat_only, OR_REFUSED),
    "prompts must be strings": COMPLETIONS(string_prompts),
    "transformers serve": COMPLETIONS(transformers_serve),
    "a template around prompts": COMPLETIONS_DTR(
        refused_if(
            lambda asked: not isinstance(asked.body["prompt"], str),
            "prompt must be a string",
            later=lambda asked: {**without_ids(asked), "usage": {"prompt_tokens": 900}},
        ),
        (Right(says="template"),),
    ),
    "strict chat": Mode(strict),
    "max_completion_tokens": DTR(newer_limit, settings=ONE, most=MOST),
    "max_tokens unknown": DTR(
        refused_if(lambda asked: "max_tokens" in asked.body, "Unrecognized argument: max_tokens")
    ),
    "stop unknown": Mode(
        refused_if(lambda asked: "stop" in asked.body, "'stop' is not supported", later=stopping),
        (Right(counted=(-0.25,)),),
        settings=STOPS,
    ),
    "logprobs a number": DTR(
        refused_if(lambda asked: asked.body.get("logprobs") is True, "logprobs: not an integer")
    ),
    "other fields, called otherwise": DTR(
        refused_if(lambda asked: "top_k" in asked.body, "Top-K sampling is not supported")
    ),
    "other fields, unnamed": Mode(
        refused_if(lambda asked: {*asked.body} - CHAT_FIELDS, "Bad Request")
    ),
    "fields and prompts, unnamed": COMPLETIONS(
        refused_if(
            lambda a: {*a.body} - COMPLETION_FIELDS or isinstance(a.body["prompt"], list), "No"
        )
    ),
    "a refusal quotes the request": DTR(quoting, settings=SAMPLED),
    **{
        f"no system role, {status} {said}": DTR(
            refused_if(
                lambda asked: asked.body["messages"][0]["role"] == "system",
                said,
                status,
                no_system_role,
            ),
            settings={**SYSTEM, **ONE},
            most=MOST,
        )
        for status, said in [(400, "roles must alternate"), (500, "Jinja: raise_exception")]
    },
    "no system role": DTR(no_system_role, settings={**SYSTEM, **ONE}, most=MOST),
    "no seed, chat": DTR(no_seed, settings={**SAMPLED, **ONE}, owner="vllm", most=MOST),
    "no seed, completions": COMPLETIONS_DTR(no_seed, settings=SAMPLED, owner="vllm"),
    "no seed, another server": DTR(
        no_seed,
        settings=SAMPLED,
        right=(Refused("model.seeds=False", stops=True),),
    ),
    "llama.cpp completions": COMPLETIONS(llama_cpp),
    "500 for logprobs 0": COMPLETIONS_DTR(vllm_tpu, settings=SHORT),
    "own defaults": Mode(own_defaults),
    "adds 2 to presence_penalty": DTR(
        lambda asked: reply(asked, text="Cusco" if "presence_penalty" in asked.body else None),
        owner="tiny",  # as TGI's models
    ),
    "own defaults, sampled": DTR(own_defaults, settings=SAMPLED),
    # stop strings: the token that meets one belongs to the generation (engines/prompts.py), so it
    # counts in u; where a server does not list it, u is that of the others, and the run says so
    "stop left in the text": Mode(
        functools.partial(stopping, kept=True),
        (Right(counted=(-0.25,)),),
        settings=STOPS,
    ),
    "stop not listed": Mode(
        functools.partial(stopping, listed=False),
        (Right(counted=(-0.25,)), Right(says="stop")),
        settings=STOPS,
    ),
    # thoughts
    "thoughts in reasoning_content": Mode(
        functools.partial(thinking, field="reasoning_content"), settings=ROOM
    ),
    "thoughts in reasoning": Mode(functools.partial(thinking, field="reasoning"), settings=ROOM),
    "thoughts in reasoning, blanks left in the text": DTR(
        functools.partial(thinking, field="reasoning", blanks="\n\n"), settings={**STOPS, **ROOM}
    ),
    "thoughts hidden by the server": Mode(functools.partial(thinking, field="x"), settings=ROOM),
    "thoughts in the text": Mode(
        lambda asked: thinking_aloud(asked, f"<think>\n{THOUGHTS}\n</think>\n\n"), settings=ROOM
    ),
    "an answer in the thoughts": Mode(
        lambda asked: thinking_aloud(asked, "<think><answer>Cusco</answer></think>"), settings=ROOM
    ),
    "thoughts opened by the template, chat": Mode(opened_by_template, settings=ROOM),
    "thoughts opened by the template, completions": COMPLETIONS(
        opened_by_template, settings={"model.tokenizer": "thinking", **ROOM}
    ),
    "unfinished thoughts": Mode(
        lambda asked: reply(asked, text=f"<think>{THOUGHTS}", end=None, finish="length"), NO_ANSWER
    ),
    "unfinished thoughts opened by the template": COMPLETIONS(
        functools.partial(opened_by_template, unfinished=True),
        NO_ANSWER,
        settings={"model.tokenizer": "thinking"},
    ),
    "thoughts only": Mode(
        with_content(None, finish="length", message={"reasoning_content": THOUGHTS}),
        (Refused(r"reason|think|no text|null"),),
    ),
    "stopped in thoughts": Mode(
        stopped_in_thoughts, (Right(),), settings={**STOPS, **ROOM}, methods=("dtr",)
    ),
    "an answer in the end token's name": DTR(
        lambda asked: reply(
            asked,
            text="im",
            rows=[("a", -9.0), *rows_of(asked, "im")],
            message={"reasoning": "a"},
        ),
        (Right("im"),),
    ),
    "thoughts only, no null": DTR(
        with_content("", finish="length", message={"reasoning": THOUGHTS}),
        (Refused(r"reason|think|no text"),),
    ),
    "a refusal, no null": DTR(
        with_content("", message={"refusal": "I cannot help."}), (Refused("refus|I cannot"),)
    ),
    "a call": DTR(with_content("", message={"tool_calls": [{"id": "1"}]}), (Refused("call"),)),
    "thoughts in usage": Mode(
        instead(usage={"completion_tokens_details": {"reasoning_tokens": 9}})
    ),
    # content that is no text
    "refusal": Mode(
        with_content(None, message={"refusal": "I cannot help."}), (Refused("refus|I cannot"),)
    ),
    "content a number": Mode(with_content(42), (Refused(NO_TEXT),)),
    "content of text parts": Mode(
        with_content(lambda asked: [{"type": "text", "text": p} for p in asked.text()])
    ),
    "content with an image": Mode(with_content(PART), (Refused(NO_TEXT),)),
    "text a number": COMPLETIONS(with_text(42), (Refused(NO_TEXT),)),
    "text null": COMPLETIONS(with_text(None), (Refused(NO_TEXT),)),
    "text a list": COMPLETIONS(with_text(["Lima"]), (Refused(NO_TEXT),)),
    # ends
    **{
        f"cut by {reason}, {endpoint}": kind(cut_short(reason), (Refused(reason),))
        for reason in ("content_filter", "abort", "error")
        for endpoint, kind in {"chat": Mode, "completions": COMPLETIONS_DTR}.items()
    },
    "finish_reason null": DTR(finishing(None), (Right(), Refused("finish_reason"))),
    "finish_reason unknown": DTR(finishing("banana"), (Right(), Refused("finish_reason|banana"))),
    # responses without a choice
    "no choice": DTR(instead(choices=[]), (Refused("choice"),)),
    "two choices": DTR(
        lambda asked: {**plain(asked), "choices": plain(asked)["choices"] * 2},
        (Refused("choice"),),
    ),
    "choice null": DTR(instead(choices=[None]), (Refused("choice"),)),
    "error in a 200, once": DTR(once(BUSY)),
    "error in a 200, always": DTR(always(BUSY), (Refused("overloaded"),), settings=SHORT),
    "no choice, once": DTR(once({"choices": []})),
    "error in a choice, once": DTR(lambda a: plain(a) if a.number else choice_error(a)),
    "error in a choice, always": DTR(choice_error, (Refused("overloaded"),), settings=SHORT),
    "usage missing": DTR(instead(usage=None)),
    "usage in words": DTR(
        instead(usage={"prompt_tokens": "many"}), (Right(), Refused("usage|prompt_tokens"))
    ),
    # statuses
    **{
        f"{status} once": DTR(once((status, HTML)))
        for status in (202, 408, 429, 498, 500, 503, 524)
    },
    "500 always": DTR(always((500, BUSY)), (Refused("500"),), settings=SHORT),
    "401 at once": DTR(models=401, right=(Refused("401", stops=True, first=True),)),
    "401": Mode(always((401, {"error": "no such key"})), (Refused("401", stops=True),)),
    "403": DTR(always((403, {"error": "not allowed"})), (Refused("403", stops=True),)),
    "no such model at once": DTR(
        models=("other",), right=(Refused("no model 'tiny'", stops=True, first=True),)
    ),
    "a list without models": DTR(models=()),
    "a list of models alone": DTR(owner="together"),
    "no such model": DTR(
        always((404, {"error": {"message": "The model `tiny` does not exist."}})),
        (Refused("does not exist|no model"),),
    ),
    # log-probabilities
    **{
        f"log-probabilities {name}, {endpoint}": DTR(fault, (Refused(LOGPROB),), endpoint)
        for name, fault in FAULTY.items()
        for endpoint in ("chat", "completions")
    },
    "log-probabilities of tokens without names": DTR(
        lambda asked: reply(asked, rows=[("", -0.5)] * 4, end=("", -2.0), octets=lambda _: []),
        (Refused(LOGPROB),),
    ),
    "log-probabilities of tokens called by ids": DTR(
        lambda asked: reply(asked, text="a. b", rows=[(f"token_id:{i}", -0.5) for i in range(4)]),
        (Refused(LOGPROB),),
        settings=STOPS,
    ),
    "log-probabilities a list": DTR(
        lambda asked: edited(asked, lambda c: c.update(logprobs=[-0.1])), (Refused(LOGPROB),)
    ),
    "more tokens than asked for, chat": Mode(too_long, (Refused("tokens"),)),
    "more tokens than asked for, completions": COMPLETIONS(too_long, (Refused("tokens"),)),
    **{
        f"scores {name}": Mode(
            scored(change), (Refused(f"{LOGPROB}|score|echo"),), "completions", ("rerank",)
        )
        for name, change in {
            "with one more before": lambda given: [None, *given],
            "of too few": lambda given: given[:-1],
            "above 0": lambda given: [*given[:-1], 0.7],
            "NaN": lambda given: [*given[:-1], NAN],
            "null": lambda given: [None] * len(given),
        }.items()
    },
    "scores, echo ignored": COMPLETIONS(
        lambda asked: reply(asked),
        (Refused(f"{LOGPROB}|score|echo"),),
        methods=("rerank",),
    ),
    "scores, prompts must be strings": COMPLETIONS(
        string_prompts,
        (Right(), Refused(f"{LOGPROB}|score|echo|string", stops=True)),
        methods=("rerank",),
    ),
    # names of tokens: whatever they are, u is the same
    "end token not listed": Mode(lambda asked: reply(asked, end=None)),
    "end token without a name": Mode(lambda asked: reply(asked, end=("", END[1]))),
    "end token not listed, no ids": COMPLETIONS_DTR(lambda asked: without_ids(asked, end=None)),
    **{
        f"{kind}, {place}": Mode(
            lambda asked, name=name, given=given, end=end: accents(asked, name, given, end),
            (Right(ACCENTS),),
        )
        for kind, name, given in (
            ("bytes", "\\x{:02x}".format, True),
            ("bytes of SentencePiece", "<0x{:02X}>".format, False),
            ("bytes replaced", lambda byte: "\ufffd", False),
            ("bytes as letters of GPT-2's vocabulary", chr, False),
        )
        for place, end in {
            "end listed": END,
            "end not listed": None,
        }.items()
    },
    "blank first": Mode(blank_first),
    # connections
    "a body for ever": Mode(
        talk=for_ever,
        right=(Refused("answer|respon", stops=True),),
        methods=("dtr",),
        settings=FAST,
        ends_late=True,
    ),
    "broken off once": DTR(talk=broken_once),
    "broken off always": DTR(
        talk=broken_off, right=(Refused("no server answered", stops=True),), settings=SHORT
    ),
    "a page once": DTR(once(HTML)),
    "a page always": DTR(always(HTML), (Refused("JSON", stops=True),), settings=SHORT),
    # proxies
    "SOCKS proxy, local server": DTR(environment={"ALL_PROXY": "socks5://127.0.0.1:9"}),
    "SOCKS proxy": DTR(
        environment={"ALL_PROXY": "socks5://127.0.0.1:9"},
        settings={"model.urls": "http://server.example/v1", **FAST},
        right=(Refused("SOCKS", stops=True, first=True),),
    ),
    # more requests than a server can take
    "few requests at once": Mode(
        talk=few_at_once, methods=("dtr",), settings={"limit": 24, "model.patience": 3.0}
    ),
    "one request at a time": Mode(
        talk=one_at_a_time,
        methods=("dtr",),
        settings={"limit": 60, "model.timeout": 1.5, "model.patience": 3.0},
    ),
}
