"""Settings of a language model behind HTTP, and how the servers are found."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jaxrag.core.hashing import canonical, digest
from jaxrag.core.http import HttpClient
from jaxrag.engines.prompts import PromptEncoder, end_tokens, parse_template_options
from jaxrag.engines.server.client import UNLIMITED, ServerModel
from jaxrag.models.checkpoint.files import locate, short_name
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError

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

    checkpoint: ClassVar[None] = None
    dtype: ClassVar[str] = ""

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
