"""Any OpenAI-compatible server as a language model: `vllm serve`, SGLang, a cloud's API.

Two ways to ask. "completions" sends the tokens of our own chat template, so prompts are the same to
the byte as with the other engines, and can score texts; it needs the model's tokenizer here. "chat"
sends messages and leaves the template to the server.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core.hashing import canonical, digest
from jaxrag.core.http import HttpClient
from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    check_sampling,
    end_tokens,
    parse_template_options,
    prompt_number,
)
from jaxrag.engines.scheduler import Workers
from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Message, Prompt

UNLIMITED = 1 << 30  # max_length where the server reports none
_UNKNOWN = -1  # a token whose number the server does not tell


class ServerModel:
    """A `LanguageModel` behind HTTP; answers arrive one by one (see `submit`)."""

    gives_logprobs = True

    def __init__(
        self,
        http: HttpClient,
        *,
        model: str,
        encode: PromptEncoder | None,
        ends: Sequence[int],
        logprobs: bool,
        identity: str,
        concurrency: int,
        template_options: Mapping[str, Any],
    ) -> None:
        self._http, self._model, self._encode = http, model, encode
        self._ends, self._identity = tuple(ends), identity
        self._workers = Workers(concurrency)
        limit = encode.max_length if encode else UNLIMITED
        self.tokenizer = encode.tokenizer if encode else None
        self.max_length = limit if limit < UNLIMITED else None
        self.gives_logprobs, self._template_options = logprobs, dict(template_options)

    @property
    def identity(self) -> str:
        """Canonical JSON of what determines results, as far as it can be known from here.

        The servers' addresses are no part of it: the same run may go on with others.
        """
        return self._identity

    def submit(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> Future[Generation]:
        """Continues one prompt in the background; temperature 0 is greedy."""
        check_sampling(max_new_tokens, temperature)
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": max_new_tokens,
            "temperature": temperature,
            "stop": list(stop) or None,
        }
        if self._encode is None:
            return self._workers.submit(self._chat, prompt, body, seed)
        return self._workers.submit(self._complete, self._encode, prompt, body, seed)

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> list[Generation]:
        """Continues each prompt."""
        futures = [
            self.submit(
                prompt,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                stop=stop,
                seed=seed,
            )
            for prompt in prompts
        ]
        return [future.result() for future in futures]

    def submit_logprob(self, prompt: Prompt, continuation: str) -> Future[np.ndarray]:
        """Scores one continuation in the background; see `logprob`.

        Raises:
          InputError: the model is asked by messages, which no server scores.
        """
        if self._encode is None:
            raise InputError(
                "A chat endpoint scores no texts: name the model's checkpoint as `tokenizer`, so "
                "that the completions endpoint is asked."
            )
        return self._workers.submit(self._score, self._encode, prompt, continuation)

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t]."""
        pairs = zip(prompts, continuations, strict=True)
        return [future.result() for future in [self.submit_logprob(*pair) for pair in pairs]]

    def close(self) -> None:
        """Drops what is queued and closes all connections."""
        self._workers.close()
        self._http.close()

    def _complete(
        self, encode: PromptEncoder, prompt: Prompt, body: dict[str, Any], seed: int
    ) -> Generation:
        tokens = encode(prompt, room=body["max_tokens"])
        more = {"prompt": tokens, "return_token_ids": True, **_draw(body, seed, tokens)}
        if self.gives_logprobs:
            more["logprobs"] = 0
        answer = self._http.request("POST", "/completions", body=body | more)
        choice = _only_choice(answer)
        made, table = choice.get("token_ids"), choice.get("logprobs") or {}
        logprobs = table.get("token_logprobs") or []
        if made is None:
            text, names = str(choice.get("text", "")), table.get("tokens") or []
            return self._from_text(choice, text, names, logprobs, answer, body["stop"] or ())
        self._check(logprobs, len(made))
        reader = AnswerReader(encode.tokenizer, ends=self._ends, stop=body["stop"] or ())
        found = reader.read(made, logprobs or [0.0] * len(made), prompt_tokens=len(tokens))
        return found if self.gives_logprobs else _without_logprobs(found)

    def _chat(self, prompt: Prompt, body: dict[str, Any], seed: int) -> Generation:
        if isinstance(prompt, str):
            raise InputError(
                "A chat endpoint takes messages, and this prompt is plain text: name the model's "
                "checkpoint as `tokenizer`, so that the completions endpoint is asked."
            )
        messages = [{"role": m.role, "content": m.content} for m in prompt]
        more = {"messages": messages, "logprobs": self.gives_logprobs, **_draw(body, seed, prompt)}
        if self._template_options:
            more["chat_template_kwargs"] = self._template_options
        answer = self._http.request("POST", "/chat/completions", body=body | more)
        choice = _only_choice(answer)
        rows = (choice.get("logprobs") or {}).get("content") or []
        text = (choice.get("message") or {}).get("content") or ""
        names, logprobs = [row.get("token") for row in rows], [row["logprob"] for row in rows]
        return self._from_text(choice, text, names, logprobs, answer, body["stop"] or ())

    def _from_text(
        self,
        choice: Mapping[str, Any],
        text: str,
        names: Sequence[str],
        logprobs: Sequence[float],
        answer: Mapping[str, Any],
        stops: Sequence[str],
    ) -> Generation:
        """A generation of a server that tells no token numbers.

        Some servers list the end token, others do not; it is there if the tokens before the last
        make up the whole text. Uncertainty counts the last token only if it is part of the answer.
        """
        usage = answer.get("usage") or {}
        count = len(logprobs) or int(usage.get("completion_tokens") or 0)
        self._check(logprobs, count)
        reason = "length" if choice.get("finish_reason") == "length" else "stop"
        met = names and any(stop in names[-1] for stop in stops)
        if reason == "stop" and names and not met and "".join(names[:-1]) == text:
            reason = "end"
        return Generation(
            text=text,
            tokens=(_UNKNOWN,) * count,
            logprobs=tuple(map(float, logprobs)),
            finish_reason=reason,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
        )

    def _check(self, logprobs: Sequence[float], count: int) -> None:
        if self.gives_logprobs and len(logprobs) != count:
            raise InputError(
                f"The server gave {len(logprobs)} log-probabilities for {count} tokens. If it "
                "gives none, set logprobs=False; methods that decide by them will refuse."
            )

    def _score(self, encode: PromptEncoder, prompt: Prompt, text: str) -> np.ndarray:
        tokens, added = encode.with_continuation(prompt, text)
        if not added:
            return np.zeros(0, np.float32)
        body = {
            "model": self._model,
            "prompt": tokens + added,
            "max_tokens": 0,
            "temperature": 0.0,
            "echo": True,
            "logprobs": 0,
        }
        choice = _only_choice(self._http.request("POST", "/completions", body=body))
        values = (choice.get("logprobs") or {}).get("token_logprobs") or []
        if len(values) < len(tokens) + len(added):
            raise InputError("The server gives no log-probabilities of prompts (echo).")
        return np.array(values[len(tokens) : len(tokens) + len(added)], np.float32)


def _only_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise InputError(f"The server's answer has no single choice: {str(answer)[:200]}")
    return choices[0]


def _draw(
    body: Mapping[str, Any], seed: int, prompt: Sequence[int] | tuple[Message, ...]
) -> dict[str, int]:
    """The seed of a prompt's draws; greedy answers need none."""
    if not body["temperature"]:
        return {}
    numbers = list(canonical(prompt).encode())
    return {"seed": (seed ^ prompt_number(numbers)) & 0x7FFFFFFF}


def _without_logprobs(found: Generation) -> Generation:
    return Generation(found.text, found.tokens, (), found.finish_reason, found.prompt_tokens)


_NUMERICS = "jaxrag-server-1"  # part of the identity; raise it when results change
_START = 60.0  # seconds that a server may take to answer first; later ``patience`` counts


@dataclasses.dataclass(frozen=True)
class Server:
    """A model behind one or several OpenAI-compatible servers.

    Attributes:
      model: its name on the servers.
      urls: their addresses up to "/v1", separated by commas; all serve the same weights.
      tokenizer: the model's checkpoint (as in `Local`), of which only the tokenizer and the chat
        template are read. Prompts then go as tokens to the completions endpoint; with "" they go as
        messages to the chat endpoint.
      revision: distinguishes these weights from others that a server gave the same name; part of
        the identity.
      logprobs: whether the servers return log-probabilities; without them, methods that need them
        refuse to run.
      max_length: limit of prompt and answer together, in tokens; 0 means what the servers report.
      concurrency: limit of open requests, over all servers.
      timeout: seconds until one attempt of a request is given up.
      patience: seconds without an answer to a request after which the run stops.
      key_variable: the environment variable with the servers' key; without one, no key is sent.
      template_options: as in `Local`; a chat endpoint gets them as "chat_template_kwargs".
    """

    model: str = ""
    urls: str = "http://localhost:8000/v1"
    tokenizer: str = ""
    revision: str = ""
    logprobs: bool = True
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
        """The model, for tables."""
        return f"{short_name(self.model)}, server"

    def load(self, cache: Path) -> ServerModel:
        """Finds the model on the servers; ``cache`` is not used.

        Raises:
          InputError: a setting is wrong, or the servers do not have the model.
          EngineDown: no server can be reached.
        """
        if not self.model:
            raise InputError("no model is named: give --config.model.model=NAME, as served.")
        if self.concurrency < 1:
            raise InputError(f"concurrency is {self.concurrency}: it must be at least 1.")
        options = parse_template_options(self.template_options)
        http = self._client()
        reported = http.request(
            "GET", "/models", read=self._find, patience=min(self.patience, _START)
        )
        identity = {
            "engine": _NUMERICS,
            "model": self.model,
            "revision": self.revision,
            "endpoint": "completions" if self.tokenizer else "chat",
            "logprobs": self.logprobs,
            "template_options": options,
        }
        encode, ends = None, ()
        if self.tokenizer:
            path = locate(self.tokenizer, weights=False)
            own = load_tokenizer(path)
            limit = self.max_length or reported.get("max_model_len") or UNLIMITED
            encode = PromptEncoder(own, template_options=options, max_length=limit)
            ends = end_tokens(path, own)
            identity["chat_template"] = digest(str(own.chat_template))
            identity["vocabulary"] = digest(canonical(own.get_vocab()))
        return ServerModel(
            http,
            model=self.model,
            encode=encode,
            ends=ends,
            logprobs=self.logprobs,
            identity=canonical(identity),
            concurrency=self.concurrency,
            template_options=options,
        )

    def _client(self) -> HttpClient:
        key = os.environ.get(self.key_variable)
        return HttpClient(
            [url.strip() for url in self.urls.split(",") if url.strip()],
            headers={"Authorization": f"Bearer {key}"} if key else {},
            secrets=(key,) if key else (),
            timeout=self.timeout,
            patience=self.patience,
        )

    def _find(self, listed: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's entry in the answer of "/models"."""
        entries = {str(entry.get("id")): entry for entry in listed.get("data") or []}
        if self.model not in entries:
            raise InputError(f"The server has no model {self.model!r}; it has: {sorted(entries)}")
        return entries[self.model]
