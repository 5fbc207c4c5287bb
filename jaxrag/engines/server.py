"""Any OpenAI-compatible server as a language model: `vllm serve`, SGLang, a cloud API.

With the model's tokenizer at hand, prompts are sent as tokens to the completions endpoint: the same
tokens as for the other engines, and texts can be scored. Without it, prompts are sent as messages
to the chat endpoint, and the server applies its template.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrag.core.hashing import canonical, digest
from jaxrag.core.http import HttpClient, read_key
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions
from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    end_tokens,
    parse_template_options,
    prompt_number,
)
from jaxrag.engines.scheduler import Workers
from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

_NUMERICS = "jaxrag-server-1"  # part of the identity; raise it when results change
_START = 60.0  # seconds for a server's first response; later ``patience`` counts
_UNLIMITED = 1 << 30  # max_length where the server reports none
_UNKNOWN = -1  # a token whose id the server does not return


class ServerModel:
    """A `LanguageModel` behind HTTP; `Server.load` makes one.

    Attributes:
      identity: canonical JSON of what determines results, as far as the client can know. It does
        not contain the servers' addresses: a run may be continued with other servers.
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
    ) -> None:
        self._http, self._settings, self._encode = http, settings, encode
        self._ends, self.identity = tuple(ends), identity
        self._workers = Workers(settings.concurrency)
        limit = encode.max_length if encode else _UNLIMITED
        self.tokenizer = encode.tokenizer if encode else None
        self.max_length = limit if limit < _UNLIMITED else None
        self.gives_logprobs = settings.logprobs

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
        """Scores one continuation in the background.

        Raises:
          InputError: the chat endpoint is used, which scores no texts.
        """
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

    def _body(self, decoding: DecodingOptions, prompt: Any) -> dict[str, Any]:
        """The part of a request that both endpoints share."""
        body: dict[str, Any] = {
            "model": self._settings.model,
            "max_tokens": decoding.max_new_tokens,
            "temperature": decoding.temperature,
            "stop": list(decoding.stop) or None,
        }
        if decoding.repetition_penalty != 1:
            body["repetition_penalty"] = decoding.repetition_penalty
        if decoding.temperature:
            number = prompt_number(list(canonical(prompt).encode()))
            body["seed"] = (decoding.seeds(1)[0] ^ number) & 0x7FFFFFFF
        return body

    def _complete(
        self, encode: PromptEncoder, prompt: Prompt, decoding: DecodingOptions
    ) -> Generation:
        tokens = encode(prompt, room=decoding.max_new_tokens)
        body = {**self._body(decoding, tokens), "prompt": tokens, "return_token_ids": True}
        if self.gives_logprobs:
            body["logprobs"] = 0
        response = self._http.request("POST", "/completions", body=body)
        choice = _only_choice(response)
        made, table = choice.get("token_ids"), choice.get("logprobs") or {}
        logprobs = table.get("token_logprobs") or []
        if made is None:
            text, names = str(choice.get("text", "")), table.get("tokens") or []
            return self._from_text(response, text, names, logprobs, decoding.stop)
        self._check(logprobs, len(made))
        reader = AnswerReader(encode.tokenizer, ends=self._ends, stop=decoding.stop)
        found = reader.read(made, logprobs or [0.0] * len(made), prompt_tokens=len(tokens))
        return found if self.gives_logprobs else dataclasses.replace(found, logprobs=())

    def _chat(self, prompt: Prompt, decoding: DecodingOptions) -> Generation:
        if isinstance(prompt, str):
            raise InputError(
                "A chat endpoint takes messages, and this prompt is plain text: name the model's "
                "checkpoint as `tokenizer`, so that the completions endpoint is used."
            )
        messages = [{"role": m.role, "content": m.content} for m in prompt]
        body = {
            **self._body(decoding, prompt),
            "messages": messages,
            "logprobs": self.gives_logprobs,
        }
        if options := parse_template_options(self._settings.template_options):
            body["chat_template_kwargs"] = options
        response = self._http.request("POST", "/chat/completions", body=body)
        choice = _only_choice(response)
        rows = (choice.get("logprobs") or {}).get("content") or []
        text = (choice.get("message") or {}).get("content") or ""
        names, logprobs = [row.get("token") for row in rows], [row["logprob"] for row in rows]
        return self._from_text(response, text, names, logprobs, decoding.stop)

    def _from_text(
        self,
        response: Mapping[str, Any],
        text: str,
        names: Sequence[str],
        logprobs: Sequence[float],
        stops: Sequence[str],
    ) -> Generation:
        """A generation from a response without token ids.

        Some servers list the end token, others do not; it is listed if the tokens before the last
        make up the whole text. Uncertainty counts the last token only if it is part of the answer.
        """
        usage = response.get("usage") or {}
        count = len(logprobs) or int(usage.get("completion_tokens") or 0)
        self._check(logprobs, count)
        reason = "length" if _only_choice(response).get("finish_reason") == "length" else "stop"
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
                f"The server returned {len(logprobs)} log-probabilities for {count} tokens. If it "
                "does not support them, set logprobs=False; methods that need them are refused."
            )

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
            "logprobs": 0,
        }
        choice = _only_choice(self._http.request("POST", "/completions", body=body))
        values = (choice.get("logprobs") or {}).get("token_logprobs") or []
        if len(values) < len(tokens) + len(added):
            raise InputError("The server gives no log-probabilities of prompts (echo).")
        return np.array(values[len(tokens) : len(tokens) + len(added)], np.float32)


def _only_choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise InputError(f"The server's response has no single choice: {str(response)[:200]}")
    return choices[0]


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
      max_length: limit of prompt and answer together, in tokens; 0 takes the servers' limit.
      concurrency: limit of open requests, over all servers.
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
            limit = self.max_length or reported.get("max_model_len") or _UNLIMITED
            encode = PromptEncoder(own, template_options=options, max_length=limit)
            ends = end_tokens(path, own)
            identity["chat_template"] = digest(str(own.chat_template))
            identity["vocabulary"] = digest(canonical(own.get_vocab()))
        return ServerModel(http, self, encode, ends=ends, identity=canonical(identity))

    def _client(self) -> HttpClient:
        key = read_key(self.key_variable)
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
