"""Any OpenAI-compatible server as a language model: `vllm serve`, SGLang, a cloud API.

What a server refuses is left out, or sent in another form, from then on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import logging
import os
import re
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrag.core.checks import check_limits
from jaxrag.core.hashing import canonical
from jaxrag.core.http import TRANSIENT, HttpClient, TransientError, read_key
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions
from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    end_tokens,
    merged_system,
    parse_template_options,
    prompt_number,
)
from jaxrag.engines.replies import (
    ServerReply,
    checked_logprobs,
    listed_tokens,
    only_choice,
    read_reply,
    reply_text,
)
from jaxrag.engines.scheduler import Workers
from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.tokenizer import load_tokenizer, tokenizer_digest
from jaxrag.text.reasoning import opens_reasoning
from jaxrag.types import EngineDown, FilledText, Generation, InputError, Prompt

_log = logging.getLogger("jaxrag")
_NUMERICS = "jaxrag-server-3"  # part of the identity; raise it when results change
_START = 60.0  # seconds for a server's first response; later ``patience`` counts
_CHAT = "/chat/completions"
_UNLIMITED = 1 << 30  # max_length where the server reports none
_NEUTRAL = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,  # llama.cpp's name
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Settings that a server takes from its own or the model's defaults where a request has none."""

_OPTIONAL = {*_NEUTRAL, "return_token_ids", "top_logprobs", "repeat_last_n", "stop"}
"""Fields that are left out once a server refuses them; texts are then cut at stop strings here."""

# Texts that tokenizers of published models take for control tokens.
_CONTROL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]|<(?:bos|eos)>"
)
_UNKNOWN = re.compile(
    "un(?:supported|known|recogni[sz]ed|expected)|not (?:supported|permitted|allowed)|deprecated"
)
_OF_TEMPLATE = re.compile(r"\broles?\b|jinja|chat.?template|raise_exception", re.I)


class RefusedError(EngineDown, InputError):
    """A server refuses all requests, such as for a wrong key; stops the run."""


class _FieldError(InputError):
    """A server refuses a request for its form; ``text`` is its answer."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def _refused(status: int, text: str, message: str, *, key: str) -> Exception:
    """What a status that is not retried means; ``key`` names the key's variable."""
    if status < 400:
        return InputError(message)
    if status in (401, 402) or (status == 403 and "input was flagged" not in text):
        state = "is set, perhaps to another key" if os.environ.get(key) else "is not set"
        return RefusedError(f"{message} The key is read from ${key}, which {state}.")
    if status == 404:
        return RefusedError(
            f"{message} An address ends in /v1 on most servers, such as "
            "http://localhost:11434/v1. With an empty `tokenizer` the chat endpoint is asked, with "
            "one the completions endpoint."
        )
    if "logprobs" in text:
        message += (
            " Without log-probabilities, set --config.model.logprobs=False; methods that decide "
            "by them (DTR) are then refused, and PAIRS needs none."
        )
    return _FieldError(message, text)


def _written(body: Mapping[str, Any], text: str, refused: Set[str]) -> dict[str, Any]:
    """A request without what the server has refused before.

    Args:
      body: the request in its first form; fields that are None are not sent.
      text: its prompt as a text.
      refused: names of fields that are left out, and of those that are sent in another form:
        "max_tokens" as max_completion_tokens, "prompt" as text instead of tokens, "logprobs" as
        their number, and "system": a system message goes before the user's.
    """
    left_out = _changeable(body) & refused
    sent = {k: v for k, v in body.items() if v is not None and k not in left_out}
    if "max_tokens" in refused:
        sent["max_completion_tokens"] = sent.pop("max_tokens")
    if "prompt" in refused and "prompt" in sent:
        sent["prompt"] = text
    if "logprobs" in refused and sent.get("logprobs") is True:
        sent["logprobs"] = sent.pop("top_logprobs", 1)
    if "system" in refused and "messages" in sent:
        sent["messages"] = merged_system(sent["messages"])
    return sent


def _named(sent: Mapping[str, Any], refusal: str) -> set[str]:
    """What a refusal names, as in `_written`; RefusedError for what results depend on."""
    said = refusal.lower()
    names = {name for name in sent if _mentions(said, name)}
    if changes := _changeable(sent) & names:
        return changes
    if "seed" in names:
        raise RefusedError(
            "The server refuses a seed per request (as vLLM on TPUs): set "
            "--config.model.seeds=False. Samples then cannot be repeated."
        )
    if "repetition_penalty" in names:
        raise RefusedError(
            f"The server refuses repetition_penalty, which is {sent['repetition_penalty']}: "
            "set it to 1, or choose another server."
        )
    if _mentions(said, "max_completion_tokens") or (
        "max_tokens" in names and _UNKNOWN.search(said)
    ):
        return {"max_tokens"}
    if isinstance(sent.get("prompt"), list) and re.search(r"prompt.*\bstr", said, re.S):
        return {"prompt"}
    if sent.get("logprobs") is True and "logprobs" in names and re.search(r"\bint", said):
        return {"logprobs"}
    return {"system"} if _has_system(sent) and "system" in said else set()


def _guesses(sent: Mapping[str, Any]) -> list[set[str]]:
    """What may be refused where a refusal names nothing: one after the other, then all."""
    system = {"system"} if _has_system(sent) else set[str]()
    prompt = {"prompt"} if isinstance(sent.get("prompt"), list) else set[str]()
    fields = _changeable(sent)
    return [system, prompt, fields, system | prompt | fields]


def _mentions(said: str, name: str) -> bool:
    """Whether a text in lower case names a field, however its words are joined."""
    return bool(re.search(rf"\b{name.replace('_', '[-_ ]?')}\b", said))


def _has_system(sent: Mapping[str, Any]) -> bool:
    return any(message["role"] == "system" for message in sent.get("messages", ()))


def _changeable(sent: Mapping[str, Any]) -> set[str]:
    """The fields of a request that may be left out: not a penalty that the user has set."""
    kept = {"repetition_penalty"} if sent.get("repetition_penalty", 1) != 1 else set()
    return {*_OPTIONAL} & {*sent} - kept


def _kind(sent: Mapping[str, Any]) -> tuple[str, ...]:
    return (*sorted(sent), type(sent.get("prompt")).__name__, str(_has_system(sent)))


class ServerModel:
    """A `LanguageModel` behind HTTP; `Server.load` makes one.

    Attributes:
      identity: canonical JSON of what determines results, as far as the client can know, without
        the servers' addresses: a run may be continued with other servers.
      gives_logprobs: whether the servers return log-probabilities.
      tokenizer, max_length: tokenizer and length limit of the model; None where unknown.
    """

    def __init__(
        self,
        http: HttpClient,
        settings: Server,
        encode: PromptEncoder | None,
        *,
        ends: Sequence[int],
        identity: str,
        refused: Set[str],
    ) -> None:
        self._http, self._settings, self._encode = http, settings, encode
        self._ends, self.identity = tuple(ends), identity
        self._workers = Workers(settings.concurrency)
        limit = encode.max_length if encode else _UNLIMITED
        self.tokenizer = encode.tokenizer if encode else None
        self.max_length = limit if limit < _UNLIMITED else None
        self.gives_logprobs = settings.logprobs
        self._refused = frozenset(refused)  # see `_written`; "seed", too
        self._taken: set[tuple[str, ...]] = set()  # kinds of requests that were taken
        # whether the tokens that met a stop string are not listed; None until it is known
        self._cuts_stop: bool | None = None
        self._warned: set[str] = set()

    @functools.cached_property
    def gives_scores(self) -> bool:
        """Whether `logprob` works: not at the chat endpoint; the other is asked when first read."""
        if not self.gives_logprobs or self._encode is None:
            return False
        try:
            self._score(self._encode, "Hi", " there")
        except RefusedError:
            raise
        except InputError as error:
            _log.warning("The server scores no given texts: %s", error)
            return False
        return True

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """See `LanguageModel.generate`; all prompts are sent at once, up to the concurrency."""
        seeds = DecodingOptions(**options).seeds(len(prompts))
        futures = [
            self.submit(prompt, **{**options, "seed": seed})
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        return [future.result() for future in futures]

    def submit(self, prompt: Prompt, **options: Unpack[DecodingKeywords]) -> Future[Generation]:
        """Continues one prompt in the background."""
        decoding = DecodingOptions(**options)
        if self._encode is None:
            return self._workers.submit(self._chat, prompt, decoding)
        return self._workers.submit(self._complete, self._encode, prompt, decoding)

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """See `LanguageModel.logprob`."""
        pairs = zip(prompts, continuations, strict=True)
        return [future.result() for future in [self.submit_logprob(*pair) for pair in pairs]]

    def submit_logprob(self, prompt: Prompt, continuation: str) -> Future[np.ndarray]:
        """Scores one continuation in the background; InputError at a chat endpoint."""
        if self._encode is None:
            raise InputError(
                "A chat endpoint scores no texts: name the model's checkpoint as `tokenizer`, so "
                "that the completions endpoint is used."
            )
        return self._workers.submit(self._score, self._encode, prompt, continuation)

    def close(self) -> None:
        """Drops queued requests and closes all connections."""
        self._workers.close()
        self._http.close()

    def _complete(
        self, encode: PromptEncoder, prompt: Prompt, decoding: DecodingOptions
    ) -> Generation:
        tokens, text = encode(prompt, room=decoding.max_new_tokens), encode.text(prompt)
        body = {"prompt": tokens, "return_token_ids": True}
        if self.gives_logprobs:
            body["logprobs"] = 1  # vLLM on TPUs answers 500 for 0, llama.cpp null
        return self._generate("/completions", body, prompt, text, decoding, tokens)

    def _chat(self, prompt: Prompt, decoding: DecodingOptions) -> Generation:
        chat = prompt.messages if isinstance(prompt, FilledText) else prompt
        if isinstance(chat, str) or not chat:
            raise InputError(
                "A chat endpoint takes messages, and this prompt is plain text: name the model's "
                "checkpoint as `tokenizer`, so that the completions endpoint is used."
            )
        if control := _CONTROL.search(" ".join(m.content for m in chat)):
            self._warn(
                "a control token",
                f"A prompt has {control[0]!r} in its data, which the server may take for a control "
                "token: name a `tokenizer`, so that texts are sent as tokens, where the server "
                "takes them.",
            )
        body: dict[str, Any] = {"messages": [{"role": m.role, "content": m.content} for m in chat]}
        if self.gives_logprobs:
            body |= {"logprobs": True, "top_logprobs": 1}
        options = parse_template_options(self._settings.template_options)
        if passed := {k: v for k, v in options.items() if k not in ("date", "control_tokens")}:
            body["chat_template_kwargs"] = passed
        return self._generate(_CHAT, body, prompt, "", decoding)

    def _generate(
        self,
        path: str,
        body: dict[str, Any],
        prompt: Prompt,
        text: str,
        decoding: DecodingOptions,
        tokens: Sequence[int] = (),
    ) -> Generation:
        """Asks, and reads the answer; ``text`` and ``tokens`` are those of the prompt."""
        body = {**self._settings_of(decoding, prompt), **body}
        if self._cuts_stop:
            body["stop"] = None
        reply = self._read(self._ask(path, body, text), decoding, text, tokens)
        sent = body["stop"] and "stop" not in self._refused
        if sent and self._must_repeat(reply):
            again = self._ask(path, {**body, "stop": None}, text)
            met_outside = not reply.in_reasoning
            reply = self._read(again, decoding, text, tokens)
            if met_outside and reply.generation.finish_reason == "stop":
                self._cuts_stop = True
        elif sent and reply.lists_stop:
            self._cuts_stop = bool(self._cuts_stop)
        if reply.in_reasoning:
            raise InputError("The server's answer ends inside its reasoning, without a text.")
        if "prompt" in self._refused and (n := reply.generation.prompt_tokens) > len(tokens) + 3:
            self._warn(
                "a template",
                f"The server counts {n} tokens in a prompt of {len(tokens)}: it may put its chat "
                "template around it, as Ollama does. Leave `tokenizer` empty.",
            )
        return reply.generation

    def _must_repeat(self, reply: ServerReply) -> bool:
        """Whether to ask again without stop strings, which then end the answer here.

        One that was met inside reasoning left no answer; and the log-probability of the token that
        met it counts in u, but some servers do not list it.
        """
        if reply.in_reasoning or reply.lacks_tokens:
            return True
        return reply.perhaps_cut and self.gives_logprobs and self._cuts_stop is not False

    def _settings_of(self, decoding: DecodingOptions, prompt: Prompt) -> dict[str, Any]:
        """The part of a request that both endpoints share."""
        penalty = decoding.repetition_penalty
        body: dict[str, Any] = {
            "model": self._settings.model,
            "max_tokens": decoding.max_new_tokens,
            "temperature": decoding.temperature,
            "stop": list(decoding.stop) or None,
            **_NEUTRAL,
            "repetition_penalty": penalty,
            "repeat_penalty": penalty,
        }
        if penalty != 1:
            body["repeat_last_n"] = -1
        if decoding.temperature and "seed" not in self._refused:
            sent = list(prompt) if isinstance(prompt, tuple) else prompt
            number = prompt_number(list(canonical(sent).encode()))
            body["seed"] = (decoding.seeds(1)[0] ^ number) & 0x7FFFFFFF
        return body

    def _ask(self, path: str, body: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        """The response to a request, in the first form that the server does not refuse.

        InputError if it refuses all, or has taken such requests before: it is the contents.
        """
        refused: Set[str] = self._refused
        while True:
            sent = _written(body, text, refused)
            try:
                return self._take(path, sent, refused)
            except _FieldError as error:
                refusal = error
            named = refused | _named(sent, refusal.text)
            if (new := _written(body, text, named)) == sent:
                break
            self._warn_of(refusal, {*sent} - {*new})
            refused = named
        tried = [sent]
        for guess in [] if _kind(sent) in self._taken else _guesses(sent):
            if (new := _written(body, text, refused | guess)) in tried:
                continue
            tried.append(new)
            with contextlib.suppress(_FieldError):
                response = self._take(path, new, refused | guess)
                self._warn_of(refusal, {*sent} - {*new})
                return response
        raise InputError(str(refusal)) from None

    def _take(self, path: str, sent: Mapping[str, Any], refused: Set[str]) -> Mapping[str, Any]:
        read = functools.partial(_without_error, key=self._settings.key_variable)
        response = self._http.request("POST", path, body=sent, read=read)
        self._refused |= refused
        self._taken.add(_kind(sent))
        return response

    def _warn_of(self, refusal: _FieldError, left_out: set[str]) -> None:
        said = ", ".join(sorted(left_out)) or " ".join(refusal.text.split())[:200]
        own = ", and its own settings apply" if left_out & set(_NEUTRAL) else ""
        what = f"is left out{own}" if left_out else "another form of request is sent"
        self._warn(said, f"The server refuses {said}: {what}.")

    def _warn(self, fault: str, message: str) -> None:
        """Warns once of a fault."""
        if fault not in self._warned:
            self._warned.add(fault)
            _log.warning("%s", message)

    def _read(
        self,
        response: Mapping[str, Any],
        decoding: DecodingOptions,
        text: str,
        tokens: Sequence[int],
    ) -> ServerReply:
        choice = only_choice(response)
        ids, limit = choice.get("token_ids"), decoding.max_new_tokens
        if self._encode is None or ids is None:
            return read_reply(
                response,
                stop=decoding.stop,
                limit=limit,
                ends=self._ends,
                opened=opens_reasoning(text),
                logprobs=self.gives_logprobs,
            )
        tokenizer = self._encode.tokenizer
        made = _checked_ids(ids, limit, len(tokenizer))
        shown, _ = reply_text(choice, allow_none=bool(made))
        values = [0.0] * len(made)
        if self.gives_logprobs:
            values = checked_logprobs(listed_tokens(choice), len(made))
        own = str(tokenizer.decode(made, skip_special_tokens=True))
        if shown.strip() not in own and own.strip() not in shown:
            self._warn(
                "the tokenizer",
                f"The server's text for its tokens is {shown[:80]!r}, `tokenizer` reads "
                f"{own[:80]!r}: is it the tokenizer of the model that it serves?",
            )
        reason = choice.get("stop_reason")  # of vLLM: the id of an end token that is not the usual
        ends = (*self._ends, reason) if type(reason) is int else self._ends
        reader = AnswerReader(tokenizer, ends=ends, stop=decoding.stop)
        answer = reader.read(made, values, prompt=tokens)
        if not self.gives_logprobs:
            answer = dataclasses.replace(answer, logprobs=(), reasoning_logprobs=())
        met = choice.get("finish_reason") == "stop" and answer.finish_reason == "length"
        return ServerReply(answer, in_reasoning=met and bool(answer.reasoning) and not answer.text)

    def _score(self, encode: PromptEncoder, prompt: Prompt, text: str) -> np.ndarray:
        tokens, added = encode.with_continuation(prompt, text)
        if not added:
            return np.zeros(0, np.float32)
        body = {
            "model": self._settings.model,
            "prompt": tokens + added,
            "max_tokens": 0,
            "temperature": 0.0,
            "echo": True,
            "logprobs": 1,
        }
        choice = only_choice(self._ask("/completions", body, encode.text(prompt) + text))
        values, count = listed_tokens(choice), len(tokens) + len(added)
        if not values:
            raise InputError("The server gives no log-probabilities of prompts (echo).")
        if len(values) != count:
            raise InputError(
                f"The server's echo has {len(values)} log-probabilities for {count} tokens, so "
                "nobody knows which belongs to which: choose another engine for methods that score."
            )
        return np.array(checked_logprobs(values[len(tokens) :], len(added)), np.float32)


def _checked_ids(ids: Any, limit: int, size: int) -> list[int]:
    """Token ids of a response; InputError if they are none, too many or not below ``size``."""
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise InputError(f"The server's token_ids are no list of numbers: {str(ids)[:100]}")
    if len(ids) > limit + 1:  # an end token may not be counted
        raise InputError(f"The server returned {len(ids)} tokens, of at most {limit}.")
    if wrong := [i for i in ids if not 0 <= i < size]:
        raise InputError(
            f"The server returned token {wrong[0]}, but `tokenizer` has {size}: name the "
            "tokenizer of the model that it serves."
        )
    return ids


def _without_error(response: dict[str, Any], *, key: str) -> dict[str, Any]:
    """The response; one without choices or with an error in it as the status it stands for."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    error = response.get("error") or (first.get("error") if isinstance(first, dict) else None)
    if not error and choices:
        return response
    error = error or response
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    message = f"The server answers with an error: {' '.join(str(error).split())[:300]}"
    if isinstance(code, int) and 400 <= code < 500 and code not in TRANSIENT:
        raise _refused(code, str(error), message, key=key)
    raise TransientError(message, attempts=4)


@dataclasses.dataclass(frozen=True)
class Server:
    """A model behind one or several OpenAI-compatible servers.

    Attributes:
      model: its name on the servers.
      urls: their addresses up to "/v1", separated by commas; all serve the same weights.
      tokenizer: the model's checkpoint (as in `Local`), of which only the tokenizer and the chat
        template are read. Prompts then go as tokens to the completions endpoint; with "" they go as
        messages to the chat endpoint.
      revision: distinguishes these weights from others of the same name; part of the identity.
      logprobs: whether the servers return log-probabilities; methods that need them refuse without.
      seeds: whether samples are drawn with a seed per request, which vLLM on TPUs refuses.
      max_length: limit of prompt and answer together, in tokens; 0 takes the servers' limit.
      concurrency: limit of open requests, over all servers. A server gets few at first, and more
        while it answers within an eighth of ``timeout``.
      timeout: seconds until an attempt of a request is given up.
      patience: seconds without a response to a request after which the run stops.
      key_variable: the environment variable with the servers' key; without one, no key is sent.
      template_options: as in `Local`; sent to a chat endpoint as "chat_template_kwargs".
    """

    model: str = ""
    urls: str = "http://localhost:8000/v1"
    tokenizer: str = ""
    revision: str = ""
    logprobs: bool = True
    seeds: bool = True
    max_length: int = 0
    concurrency: int = 64
    timeout: float = 600.0
    patience: float = 900.0
    key_variable: str = "OPENAI_API_KEY"
    template_options: str = ""

    checkpoint = None
    dtype = ""

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{short_name(self.model)}, server"

    def load(self, cache: Path) -> ServerModel:
        """Finds the model on the servers; ``cache`` is not used.

        InputError if a setting is wrong or no server has the model; EngineDown if none is reached.
        """
        if not self.model:
            raise InputError("no model is named: give --config.model.model=NAME, as served.")
        check_limits(concurrency=self.concurrency)
        options = parse_template_options(self.template_options)
        http = self._client()
        try:
            reported = http.request(
                "GET", "/models", read=self._find, patience=min(self.patience, _START)
            )
        except _FieldError as error:
            raise InputError(str(error)) from None
        identity = {
            "engine": _NUMERICS,
            "model": self.model,
            "revision": self.revision,
            "endpoint": "completions" if self.tokenizer else "chat",
            "logprobs": self.logprobs,
            "template_options": options,
        }
        refused = set[str]()
        if not (self.seeds and self._takes_seeds(http, reported)):
            refused.add("seed")
            identity["seeds"] = False  # samples of the store are then any of the model's
        if reported.get("owned_by") == reported.get("id", ""):  # TGI, where 0 is a penalty of 2
            refused.add("presence_penalty")
            identity["presence_penalty"] = None
        encode, ends = None, ()
        if self.tokenizer:
            path = locate(self.tokenizer, weights=False)
            own = load_tokenizer(path)
            most = reported.get("max_model_len")
            limit = self.max_length or (most if type(most) is int and most > 0 else _UNLIMITED)
            encode = PromptEncoder(own, template_options=options, max_length=limit)
            ends = end_tokens(path, own)
            identity |= encode.identity
            identity |= {"tokenizer": tokenizer_digest(own), "ends": list(ends)}
        return ServerModel(
            http, self, encode, ends=ends, identity=canonical(identity), refused=refused
        )

    def _takes_seeds(self, http: HttpClient, reported: Mapping[str, Any]) -> bool:
        """Whether the server takes a seed per request; vLLM is asked, which refuses it on TPUs."""
        if reported.get("owned_by") != "vllm":
            return True
        asked = {"model": self.model, "max_tokens": 1, "temperature": 1.0, "seed": 0}
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        path, prompt = ("/completions", {"prompt": "Hi"}) if self.tokenizer else (_CHAT, chat)
        try:
            http.request("POST", path, body={**asked, **prompt})
        except _FieldError as error:
            return "seed" not in error.text.lower()
        return True

    def _client(self) -> HttpClient:
        key = read_key(self.key_variable)
        return HttpClient(
            [url.strip() for url in self.urls.split(",") if url.strip()],
            headers={"Authorization": f"Bearer {key}"} if key else {},
            secrets=(key,),
            timeout=self.timeout,
            patience=self.patience,
            concurrency=self.concurrency,
            refused=functools.partial(_refused, key=self.key_variable),
            final=lambda status, text: status == 500 and bool(_OF_TEMPLATE.search(text)),
        )

    def _find(self, listed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's entry in the answer of "/models"; none if the list is empty."""
        data = listed.get("data")
        if data == []:  # such a server loads what is asked for
            return {}
        rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
        entries = {str(entry.get("id")): entry for entry in rows}
        if self.model not in entries:
            near = difflib.get_close_matches(self.model, entries, 1, 0)
            has = f"nearest: {near[0]}. It has {', '.join(sorted(entries))[:500]}" if near else ""
            raise InputError(f"The server has no model {self.model!r}; {has or str(listed)[:300]}.")
        return entries[self.model]
