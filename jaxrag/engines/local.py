"""A language model that runs in this process: our decoder on whatever devices JAX has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh

from jaxrag.engines.decoding import Decoding
from jaxrag.engines.prefill import Batch, Job, Prefill
from jaxrag.engines.prompts import AnswerReader, PromptEncoder, check_sampling, end_tokens
from jaxrag.engines.store import canonical, digest
from jaxrag.models.checkpoint import fingerprint, locate
from jaxrag.models.decoder_checkpoint import load_decoder
from jaxrag.models.decoding import score
from jaxrag.models.precision import compute_dtype
from jaxrag.models.sharding import automatic
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

_NUMERICS = "jaxrag-local-2"  # goes into the identity; raise it when results change
_SLOTS = 256  # caches have a multiple of this many slots
_SCORED = 64  # tokens scored in one call


def use_compile_cache(directory: str | Path) -> None:
    """Keeps compiled programs in ``directory``, so that the next process need not compile them."""
    directory = str(Path(directory).absolute())
    if jax.config.jax_compilation_cache_dir != directory:  # pyright: ignore[reportAttributeAccessIssue]
        compilation_cache.reset_cache()  # JAX would go on with the directory it used first
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _sizes(prefill: int | None, decode: int | None, chunk: int | None) -> tuple[int, int, int]:
    """Rows of prefill and decoding and tokens of a chunk, those not given by the device's kind."""
    if jax.default_backend() == "cpu":
        prefill, decode, chunk = prefill or 8, decode or 16, chunk or 32
    else:
        prefill, decode, chunk = prefill or 16, decode or 64, chunk or 128
    if min(prefill, decode, chunk) < 1 or decode % prefill:
        raise InputError(
            f"prefill_rows is {prefill}, decode_rows {decode} and chunk {chunk}: all are to be at "
            "least 1, and decode_rows a multiple of prefill_rows."
        )
    return prefill, decode, chunk


class LocalModel:
    """A `LanguageModel` over a Llama, Qwen2, Qwen2.5 or Qwen3 checkpoint.

    On one device a prompt's result is the same to the bit whatever else is in the call. Make one
    with `load`.
    """

    def __init__(
        self,
        prefill: Prefill,
        decoding: Decoding,
        encode: PromptEncoder,
        *,
        ends: Sequence[int],
        identity: str,
        chunk: int,
    ) -> None:
        self._prefill, self._decoding, self._encode = prefill, decoding, encode
        self._ends, self._identity, self._chunk = tuple(ends), identity, chunk
        self.tokenizer, self.max_length = encode.tokenizer, encode.max_length

    @classmethod
    def load(
        cls,
        spec: str | Path,
        *,
        dtype: str | None = None,
        mesh: Mesh | None = None,
        prefill_rows: int | None = None,
        decode_rows: int | None = None,
        chunk: int | None = None,
        max_length: int | None = None,
        shared_bytes: int = 1 << 28,
        template_options: Mapping[str, Any] | None = None,
    ) -> LocalModel:
        """Loads a checkpoint.

        Args:
          spec: what `jaxrag.models.checkpoint.locate` takes: a path, ``package:NAME`` or
            ``hub:ORG/NAME``.
          dtype: "float32" or "bfloat16"; by default the first on CPUs, the second elsewhere.
          mesh: devices to spread over, with axes "data" (rows) and/or "model" (parameters).
          prefill_rows: prompts that are read at once; by default 8 on CPUs, 16 elsewhere.
          decode_rows: answers that are written at once, a multiple of that (a step of decoding
            costs little more for more rows); by default 16 on CPUs, 64 elsewhere.
          chunk: tokens of each prompt in one step of prefill; prompts are padded to a multiple. By
            default 32 on CPUs, 128 elsewhere.
          max_length: most tokens of prompt and answer together; by default what the model allows.
          shared_bytes: memory for the beginnings that prompts share; 0 computes every prompt whole.
          template_options: handed to the chat template, such as ``{"enable_thinking": False}`` for
            Qwen3.

        Raises:
          InputError: if there is no checkpoint, or it is not one of a decoder that we have.
        """
        path, precision = locate(str(spec)), compute_dtype(dtype)
        mesh = automatic(mesh) if mesh else None
        tokenizer = load_tokenizer(path)
        decoder, params = load_decoder(path, dtype=precision, mesh=mesh)
        prefill_rows, decode_rows, chunk = _sizes(prefill_rows, decode_rows, chunk)
        limit = decoder.config.max_position_embeddings
        options = dict(template_options or {})
        identity = {
            "engine": _NUMERICS,
            "weights": fingerprint(path),
            "dtype": precision.name,
            "backend": jax.default_backend(),
            "chat_template": digest(str(tokenizer.chat_template)),
            "template_options": options,
            # these change no more than the last bits, but a store's results are to be exact
            "sizes": [prefill_rows, decode_rows, chunk],
            "mesh": dict(mesh.shape) if mesh else None,
        }
        prefill = Prefill(
            decoder, params, rows=prefill_rows, chunk=chunk, shared_bytes=shared_bytes, mesh=mesh
        )
        ends = end_tokens(path, tokenizer)
        return cls(
            prefill,
            Decoding(prefill, batches=decode_rows // prefill_rows, ends=ends),
            PromptEncoder(
                tokenizer, template_options=options, max_length=min(max_length or limit, limit)
            ),
            ends=ends,
            identity=canonical(identity),
            chunk=chunk,
        )

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results."""
        return self._identity

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> list[Generation]:
        """Continues each prompt; ``temperature`` 0 is greedy.

        Raises:
          InputError: for a prompt that is empty or leaves no room for ``max_new_tokens``; before
            anything is computed.
        """
        check_sampling(max_new_tokens, temperature)
        jobs = []
        for prompt in prompts:
            tokens = self._encode(prompt, room=max_new_tokens)
            slots = self._slots(len(tokens), max_new_tokens)
            jobs.append(Job(tuple(tokens), len(tokens) - 1, slots))
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=stop)
        results: dict[int, Generation] = {}
        for group in self._decoding.groups(jobs):
            rows = self._decoding.run(
                group, max_new_tokens, temperature=temperature, seed=seed, stopped=reader.stopped
            )
            for i, tokens, logprobs in rows:
                length = len(jobs[i].tokens)
                results[i] = reader.read(tokens, logprobs, prompt_tokens=length)
        return [results[i] for i in range(len(jobs))]

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t].

        How they are tokenised: see `PromptEncoder.with_continuation`.
        """
        jobs = []
        for prompt, text in zip(prompts, continuations, strict=True):
            tokens, added = self._encode.with_continuation(prompt, text)
            # the last token's own hidden state predicts what is not asked for
            whole = (tokens + added)[: len(tokens) + max(len(added) - 1, 0)]
            slots = self._slots(len(whole), 0)
            jobs.append((Job(tuple(whole), len(tokens) - 1, slots), np.array(added, np.int32)))
        results = {i: np.zeros(0, np.float32) for i in range(len(jobs))}
        asked = [i for i, (_, added) in enumerate(jobs) if len(added)]
        for batch in self._prefill.batches([jobs[i][0] for i in asked]):
            numbers = [asked[i] for i in batch.numbers]
            scores = self._score(batch, [jobs[i][1] for i in numbers])
            results.update(zip(numbers, scores, strict=True))
        return [results[i] for i in range(len(jobs))]

    def _slots(self, length: int, new: int) -> int:
        """A cache that holds so many tokens, by a rule that looks at this row only."""
        chunks = -(-length // self._chunk)
        return -(-(chunks * self._chunk + new) // _SLOTS) * _SLOTS

    def _score(self, batch: Batch, added: list[np.ndarray]) -> list[np.ndarray]:
        """Log-probabilities of the tokens added to each prompt; only their logits are made."""
        rows = np.concatenate([np.full(len(tokens), r) for r, tokens in enumerate(added)])
        places = np.concatenate(
            [
                np.arange(len(tokens)) + job.wanted - batch.offset
                for job, tokens in zip(batch.jobs, added, strict=True)
            ]
        )
        targets, parts = np.concatenate(added), []
        for start in range(0, len(rows), _SCORED):
            part = slice(start, start + _SCORED)
            pad = (0, _SCORED - len(rows[part]))
            hidden = batch.hidden[np.pad(rows[part], pad), np.pad(places[part], pad)]
            wanted = jnp.asarray(np.pad(targets[part], pad))
            parts.append(score(self._prefill.decoder, self._prefill.params, hidden, wanted))
        values = np.concatenate([np.asarray(part) for part in parts])[: len(rows)]
        return np.split(values, np.cumsum([len(tokens) for tokens in added])[:-1])
