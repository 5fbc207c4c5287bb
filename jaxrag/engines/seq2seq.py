"""An encoder-decoder that runs in this process: our T5 on whatever devices JAX has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float, Int, UInt
from transformers import PreTrainedTokenizerFast

from jaxrag.core.hashing import canonical, digest
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.engines.prompts import (
    AnswerReader,
    check_sampling,
    encode_prompt,
    end_tokens,
    prompt_number,
)
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.models.sampling import TokenSampling
from jaxrag.models.sharding import automatic_mesh, device_mesh, divisible_sharding
from jaxrag.models.t5.beams import LengthPenalty, beam_search
from jaxrag.models.t5.checkpoint import load_t5
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

_NUMERICS = "jaxrag-seq2seq-1"  # goes into the identity; raise it when results change
_JOINED = (
    "{% for m in messages %}{{ m['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% endfor %}{{ eos_token }}"
)
"""Messages as one text, for tokenizers without a chat template of their own; T5's have none."""


class Seq2SeqModel:
    """A `LanguageModel` over a T5 1.0, T5 1.1 or Flan-T5 checkpoint.

    A string is the source as it stands, with the end token that the model's tokenizer puts after
    it. Messages are joined to one text, all contents in their order with line ends between them
    (which T5's tokenizers take for blanks), unless the tokenizer has a chat template.

    On one device a prompt's result is the same to the bit whatever else is in the call. Make one
    with `load`.

    Attributes:
      tokenizer: the checkpoint's.
      max_length: most tokens of a source, its end token included. Answers do not count towards it.
    """

    gives_logprobs = True

    def __init__(
        self,
        network: Seq2SeqNetwork,
        tokenizer: PreTrainedTokenizerFast,
        *,
        ends: Sequence[int],
        identity: str,
        beams: Beams,
        rows: int,
        max_length: int,
    ) -> None:
        self._writer, self._ends = Seq2SeqWriter(network, ends=ends, beams=beams), tuple(ends)
        self._beams, self._rows, self._identity = beams, rows, identity
        self.tokenizer, self.max_length = tokenizer, max_length

    @classmethod
    def load(
        cls,
        spec: str | Path,
        *,
        dtype: str | None = None,
        mesh: Mesh | None = None,
        rows: int | None = None,
        max_length: int = 512,
        beams: Beams | None = None,
    ) -> Seq2SeqModel:
        """Loads a checkpoint.

        Args:
          spec: what `jaxrag.models.checkpoint.files.locate` takes: a path, ``package:NAME`` or
            ``hub:ORG/NAME``.
          dtype: "float32" or "bfloat16"; by default the first on CPUs, the second elsewhere.
          mesh: devices to spread over, with axes "data" (rows) and/or "model" (parameters).
          rows: prompts that are answered at once; by default 8 on CPUs, 64 elsewhere.
          max_length: most tokens of a prompt. T5's relative positions set no limit.
          beams: how answers are searched for; by default greedily.

        Raises:
          InputError: if there is no checkpoint, it is not one of a T5, or a number is out of range.
        """
        beams = beams or Beams()
        rows = (
            8 if rows is None and jax.default_backend() == "cpu" else 64 if rows is None else rows
        )
        if rows < 1 or max_length < 1:
            raise InputError(f"rows is {rows} and max_length {max_length}: at least 1 each.")
        path, precision = locate(str(spec)), compute_dtype(dtype)
        mesh = automatic_mesh(mesh) if mesh else None
        tokenizer = load_tokenizer(path)
        tokenizer.chat_template = tokenizer.chat_template or _JOINED
        model, params = load_t5(path, dtype=precision, mesh=mesh)
        identity = {
            "engine": _NUMERICS,
            "weights": fingerprint(path),
            "dtype": precision.name,
            "backend": jax.default_backend(),
            "chat_template": digest(str(tokenizer.chat_template)),
            "beams": dataclasses.asdict(beams),
            # these change no more than the last bits, but a store's results are to be exact
            "rows": rows,
            "mesh": dict(mesh.shape) if mesh else None,
        }
        return cls(
            Seq2SeqNetwork(model, params, mesh),
            tokenizer,
            ends=end_tokens(path, tokenizer) or (model.config.eos_token_id,),
            identity=canonical(identity),
            beams=beams,
            rows=rows,
            max_length=max_length,
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
        """Answers each prompt; ``temperature`` 0 is greedy, or a beam search.

        Of a beam search the best answer is cut at a stop string; the search knows nothing of it.

        Raises:
          InputError: for a prompt that is too long, or a temperature besides a beam search; before
            anything is computed.
        """
        check_sampling(max_new_tokens, temperature)
        if temperature and self._beams.count > 1:
            raise InputError(
                f"temperature is {temperature} and beams {self._beams.count}: a beam search does "
                "not draw. Set temperature to 0, or beams to 1."
            )
        sources = [self._encode(prompt) for prompt in prompts]
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=stop)
        stopped = reader.stopped if stop else None
        found: dict[int, Generation] = {}
        for batch in source_batches(sources, self._rows):
            if self._beams.count > 1:
                rows = self._writer.beam_search(batch, max_new_tokens)
            else:
                drawn = (temperature, seed)
                rows = self._writer.write(batch, max_new_tokens, drawn, stopped)
            for job, (tokens, logprobs) in zip(batch.jobs, rows, strict=False):
                found[job] = reader.read(tokens, logprobs, prompt_tokens=len(sources[job]))
        return [found[job] for job in range(len(prompts))]

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation as an answer, float32 [t].

        Its tokens are those of the text alone, without an end token.
        """
        texts = [self.tokenizer.encode(text, add_special_tokens=False) for text in continuations]
        sources = [self._encode(prompt) for prompt in prompts]
        found = [np.zeros(len(text), np.float32) for text in texts]
        for batch in source_batches(sources, self._rows, targets=texts):
            if batch.targets.size:
                for job, row in zip(batch.jobs, self._writer.score(batch), strict=False):
                    found[job] = row[: len(texts[job])]
        return found

    def _encode(self, prompt: Prompt) -> list[int]:
        tokens = encode_prompt(self.tokenizer, prompt, {})
        if len(tokens) > self.max_length:
            raise InputError(
                f"A prompt has {len(tokens)} tokens, and this encoder-decoder reads at most "
                f"{self.max_length}: shorten the prompt (reader.truncate=True cuts the passages in "
                "it, and nothing else), or load the model with a larger max_length, to which T5's "
                "relative positions set no limit."
            )
        return tokens


SOURCE, ANSWER = 32, 16
"""The least tokens that sources and answers are padded to; each number is a program."""


def padded_length(length: int, least: int) -> int:
    """How many tokens one of ``length`` is padded to, by a rule that looks at it alone.

    Longer ones come in coarser sizes: multiples of a quarter of the power of two above.
    """
    unit = max(least, (1 << (length - 1).bit_length()) // 4)
    return -(-length // unit) * unit


class SourceBatch(NamedTuple):
    """Rows for one program; those beyond ``jobs`` hold nothing.

    Attributes:
      jobs: which jobs the first rows are.
      tokens, where: sources padded on the right, and which of their tokens are there.
      numbers: what each row's draws depend on besides the seed.
      targets: answers padded on the right, where they are given; otherwise empty.
    """

    jobs: tuple[int, ...]
    tokens: Int[np.ndarray, "b s"]
    where: Bool[np.ndarray, "b s"]
    numbers: UInt[np.ndarray, " b"]
    targets: Int[np.ndarray, "b t"]


def source_batches(
    sources: Sequence[Sequence[int]], rows: int, *, targets: Sequence[Sequence[int]] | None = None
) -> Iterator[SourceBatch]:
    """All sources, each among others of its width (and its answer's); the longest first.

    What a row holds depends on its own source and answer only.

    Args:
      sources: tokens of each.
      rows: of a batch.
      targets: an answer to each, where they are given.
    """
    answers = targets if targets is not None else [()] * len(sources)
    shapes = [
        (padded_length(len(source), SOURCE), padded_length(len(answer), ANSWER) if answer else 0)
        for source, answer in zip(sources, answers, strict=True)
    ]
    for shape in sorted(set(shapes), reverse=True):
        of_shape = [i for i, other in enumerate(shapes) if other == shape]
        for first in range(0, len(of_shape), rows):
            yield _batch(of_shape[first : first + rows], sources, answers, shape, rows)


def _batch(
    jobs: Sequence[int],
    sources: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    shape: tuple[int, int],
    rows: int,
) -> SourceBatch:
    (wide, long), numbers = shape, np.zeros(rows, np.uint32)
    tokens, where = np.zeros((rows, wide), np.int32), np.zeros((rows, wide), np.bool_)
    targets = np.zeros((rows, long), np.int32)
    for row, job in enumerate(jobs):
        source, answer = sources[job], answers[job]
        tokens[row, : len(source)], where[row, : len(source)] = source, True
        targets[row, : len(answer)], numbers[row] = answer, prompt_number(source)
    return SourceBatch(tuple(jobs), tokens, where, numbers, targets)


_STEPS = 8  # tokens between two looks for stop strings

Written = tuple[list[int], list[float]]
"""An answer's tokens and their log-probabilities."""


class Seq2SeqNetwork(NamedTuple):
    """A T5, its parameters, and the devices they are spread over; None is one device."""

    model: T5
    params: Any
    mesh: Mesh | None


@dataclasses.dataclass(frozen=True)
class Beams:
    """How answers are searched for.

    Attributes:
      count: answers followed at once; 1 takes the most probable token each time, or draws it.
      length_penalty: exponent of the length by which log-probabilities are divided.
      early_stopping: whether the search ends once ``count`` answers have.
      min_new_tokens: before so many no answer ends.
    """

    count: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.min_new_tokens < 0:
            raise InputError(
                f"beams is {self.count} and min_new_tokens {self.min_new_tokens}: at least 1 and "
                "at least 0 are wanted."
            )


class Seq2SeqWriter:
    """Runs batches through the programs of `jaxrag.models.t5` (decoding and beams).

    Args:
      network: what answers.
      ends: tokens that end an answer.
      beams: how answers are searched for.
    """

    def __init__(self, network: Seq2SeqNetwork, *, ends: Sequence[int], beams: Beams) -> None:
        self._network, self._beams, self._kinds = network, beams, len(ends)
        self._ends = np.zeros(network.model.config.vocab_size, np.bool_)
        self._ends[list(ends)] = True

    def write(
        self,
        batch: SourceBatch,
        count: int,
        drawn: tuple[float, int],
        stopped: Callable[[Sequence[int]], bool] | None,
    ) -> Iterator[Written]:
        """Answers a batch token by token, up to ``count`` of them.

        Args:
          batch: sources.
          count: most new tokens.
          drawn: temperature and seed.
          stopped: whether an answer has ended, from its tokens so far, end tokens aside; None
            where none does.
        """
        (model, params, _), limits = self._network, self._limits(count)
        seeds = np.full_like(batch.numbers, drawn[1] & 0xFFFFFFFF)
        sampling = TokenSampling(jnp.float32(drawn[0]), self._put(seeds), self._put(batch.numbers))
        tokens, where = self._put(batch.tokens), self._put(batch.where)
        now = start_answers(model, params, tokens, where, slots=padded_length(count, ANSWER))
        steps, over = jnp.int32(_STEPS if stopped else count), False
        while not over:
            now = extend_answers(model, params, now, steps, limits, sampling)
            if stopped:
                ended = [stopped(row) for row in _cut(now.tokens, now.made)]
                now = now._replace(finished=self._put(np.asarray(now.finished) | ended))
            over = int(now.step) >= count or bool(now.finished.all())
        return zip(_cut(now.tokens, now.made), _cut(now.logprobs, now.made), strict=True)

    def beam_search(self, batch: SourceBatch, count: int) -> Iterator[Written]:
        """Answers a batch by beam search, with up to ``count`` tokens."""
        model, params, _ = self._network
        how = self._beams
        tokens, logprobs, made = beam_search(
            model,
            params,
            self._put(batch.tokens),
            self._put(batch.where),
            self._limits(count),
            LengthPenalty(jnp.float32(how.length_penalty), jnp.bool_(how.early_stopping)),
            beams=how.count,
            slots=padded_length(count, ANSWER),
            kinds=self._kinds,
        )
        return zip(_cut(tokens, made), _cut(logprobs, made), strict=True)

    def score(self, batch: SourceBatch) -> Float[np.ndarray, "b t"]:
        """Log-probabilities of a batch's targets."""
        model, params, _ = self._network
        arrays = map(self._put, (batch.tokens, batch.where, batch.targets))
        return np.asarray(score(model, params, *arrays))

    def _limits(self, count: int) -> T5Limits:
        least = jnp.int32(self._beams.min_new_tokens)
        return T5Limits(least, jnp.int32(count), jnp.asarray(self._ends))

    def _put(self, array: np.ndarray) -> jax.Array:
        """An array with an entry for each row, on the devices."""
        mesh = self._network.mesh
        return jax.device_put(
            array, divisible_sharding(P("data"), array.shape, mesh) if mesh else None
        )


def _cut(rows: Any, made: Any) -> list[list[Any]]:
    """The first entries of each row, as many as it has made."""
    return [
        row[:count]
        for row, count in zip(np.asarray(rows).tolist(), np.asarray(made).tolist(), strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Seq2Seq:
    """A T5 or Flan-T5 checkpoint run by jaxrag's own encoder-decoder.

    Attributes:
      checkpoint: a directory, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "" is float32 on CPUs and bfloat16 on accelerators.
      max_length: most tokens of a prompt; answers do not count towards it.
      beams: answers that a search follows at once; 1 is greedy, or draws.
      length_penalty: exponent of the length by which the search divides log-probabilities.
      early_stopping: whether the search ends once so many answers have.
      min_new_tokens: before so many no answer ends.
      rows: prompts that are answered at once; 0 chooses for the device.
      data_parallel: devices that share the rows.
      tensor_parallel: devices that share the parameters, for each of those.
    """

    checkpoint: str = ""
    dtype: DType = ""
    max_length: int = 512
    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    min_new_tokens: int = 0
    rows: int = 0
    data_parallel: int = 1
    tensor_parallel: int = 1

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return short_name(self.checkpoint)

    def load(self, cache: Path) -> LanguageModel:
        """Reads the checkpoint onto the devices.

        Raises:
          InputError: none is named, or see `Seq2SeqModel.load`.
        """
        if not self.checkpoint:
            raise InputError(
                "No checkpoint of an encoder-decoder is named: give the directory of a T5, or "
                "'hub:google/flan-t5-large'."
            )
        use_compile_cache(cache / "compiled")
        return Seq2SeqModel.load(
            self.checkpoint,
            dtype=self.dtype or None,
            mesh=device_mesh(data=self.data_parallel, model=self.tensor_parallel),
            rows=self.rows or None,
            max_length=self.max_length,
            beams=Beams(self.beams, self.length_penalty, self.early_stopping, self.min_new_tokens),
        )
