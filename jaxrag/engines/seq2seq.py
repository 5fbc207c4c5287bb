"""An encoder-decoder that runs in this process: T5 on whatever devices JAX has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Int, UInt

from jaxrag.core.checks import check_limits
from jaxrag.core.hashing import canonical, digest
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.engines.local.prefill import padded_length
from jaxrag.engines.prompts import AnswerReader, PromptEncoder, end_tokens, prompt_number
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.models.sampling import TokenSampling
from jaxrag.models.sharding import device_mesh, divisible_sharding
from jaxrag.models.t5.beams import beam_search
from jaxrag.models.t5.checkpoint import load_t5
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_NUMERICS = "jaxrag-seq2seq-1"  # part of the identity; raise it when results change
_JOINED = (
    "{% for m in messages %}{{ m['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% endfor %}{{ eos_token }}"
)
"""Joins messages to one text, for tokenizers without a chat template, such as T5's."""
SOURCE, ANSWER = 32, 16
"""Least padded lengths of sources and answers; each padded length is a compiled program."""
_STEPS = 8  # tokens between two checks for stop strings
_SEARCH = {"length_penalty": 1.0, "early_stopping": False, "min_new_tokens": 0}
"""Of `jaxrag.models.t5.beams` in transformers' terms; part of the identity."""


class Seq2SeqNetwork(NamedTuple):
    """A T5, its parameters, and the mesh they are sharded over; None for a single device."""

    model: T5
    params: Any
    mesh: Mesh | None


class Seq2SeqModel:
    """A `LanguageModel` over a T5 1.0, T5 1.1 or Flan-T5 checkpoint; `Seq2Seq.load` makes one.

    A string is the source itself, followed by the end token that the tokenizer adds. Messages are
    joined by line breaks (blanks to T5's tokenizers) unless the tokenizer has a chat template. On
    one device a prompt's result is bit-identical whatever else is in the call.

    Attributes:
      identity: canonical JSON of all that determines results.
      max_length: limit of a source in tokens, with its end token; answers do not count towards it.
    """

    gives_logprobs, reads_end = True, True

    def __init__(
        self,
        network: Seq2SeqNetwork,
        tokenizer: PreTrainedTokenizerFast,
        *,
        ends: Sequence[int],
        identity: str,
        beams: int,
        rows: int,
        max_length: int,
    ) -> None:
        self._network, self._ends, self._beams, self._rows = network, tuple(ends), beams, rows
        vocabulary = network.model.config.vocab_size
        valid = np.array([end for end in ends if end < vocabulary], np.int32)
        self._end_mask = jnp.zeros(vocabulary, bool).at[valid].set(True)
        self.identity, self.tokenizer, self.max_length = identity, tokenizer, max_length
        self._sources = PromptEncoder(
            tokenizer,
            template_options={},
            max_length=max_length,
            vocabulary=vocabulary,
            reads_end=True,
        )

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """See `LanguageModel.generate`; temperature 0 is greedy decoding or beam search.

        The best answer of a beam search is cut at a stop string afterwards. InputError also for
        beam search with a temperature, or a penalty of repetition.
        """
        decoding = DecodingOptions(**options)
        if decoding.repetition_penalty != 1:
            raise InputError(
                f"repetition_penalty is {decoding.repetition_penalty}, and encoder-decoders have "
                "none: set it to 1."
            )
        if decoding.temperature and self._beams > 1:
            raise InputError(
                f"temperature is {decoding.temperature} and beams {self._beams}: beam "
                "search does not sample. Set temperature to 0, or beams to 1."
            )
        sources = [self._sources(prompt, room=0) for prompt in prompts]
        seeds = decoding.seeds(len(prompts))
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=decoding.stop)
        generations: dict[int, Generation] = {}
        for batch in source_batches(sources, self._rows):
            if self._beams > 1:
                rows = self._beam_search(batch, decoding.max_new_tokens)
            else:
                rows = self._decode(batch, decoding, [seeds[job] for job in batch.jobs], reader)
            for job, (tokens, logprobs) in zip(batch.jobs, rows, strict=False):
                generations[job] = reader.read(tokens, logprobs, prompt=sources[job])
        return [generations[job] for job in range(len(prompts))]

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """See `LanguageModel.logprob`; the continuation is an answer without its end token."""
        texts = [self.tokenizer.encode(text, add_special_tokens=False) for text in continuations]
        sources = [self._sources(prompt, room=0) for prompt in prompts]
        scores = [np.zeros(len(text), np.float32) for text in texts]
        for batch in source_batches(sources, self._rows, targets=texts):
            if batch.targets.size:
                arrays = map(self._put, (batch.tokens, batch.where, batch.targets))
                rows = np.asarray(score(self._network.model, self._network.params, *arrays))
                for job, row in zip(batch.jobs, rows, strict=False):
                    scores[job] = row[: len(texts[job])]
        return scores

    def _decode(
        self,
        batch: SourceBatch,
        decoding: DecodingOptions,
        seeds: Sequence[int],
        reader: AnswerReader,
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Tokens and log-probabilities of a batch's answers, decoded token by token."""
        (model, params, _), count = self._network, decoding.max_new_tokens
        row_seeds = np.zeros_like(batch.numbers)
        row_seeds[: len(seeds)] = [seed & 0xFFFFFFFF for seed in seeds]
        sampling = TokenSampling(
            jnp.float32(decoding.temperature), self._put(row_seeds), self._put(batch.numbers)
        )
        tokens, where = self._put(batch.tokens), self._put(batch.where)
        now = start_answers(model, params, tokens, where, slots=padded_length(count, ANSWER))
        limits = T5Limits(jnp.int32(count), self._end_mask)
        steps, over = jnp.int32(_STEPS if decoding.stop else count), False
        while not over:
            now = extend_answers(model, params, now, steps, limits, sampling)
            if decoding.stop:
                ended = [reader.stopped((), row) for row in _unpadded(now.tokens, now.made)]
                now = now._replace(finished=self._put(np.asarray(now.finished) | ended))
            over = int(now.step) >= count or bool(now.finished.all())
        return zip(_unpadded(now.tokens, now.made), _unpadded(now.logprobs, now.made), strict=True)

    def _beam_search(
        self, batch: SourceBatch, count: int
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Tokens and log-probabilities of the best answers, of up to ``count`` tokens."""
        tokens, logprobs, counts = beam_search(
            self._network.model,
            self._network.params,
            self._put(batch.tokens),
            self._put(batch.where),
            T5Limits(jnp.int32(count), self._end_mask),
            beams=self._beams,
            slots=padded_length(count, ANSWER),
            kinds=len(self._ends),
        )
        return zip(_unpadded(tokens, counts), _unpadded(logprobs, counts), strict=True)

    def _put(self, array: np.ndarray) -> jax.Array:
        """Moves an array with one entry per row to the devices."""
        mesh = self._network.mesh
        return jax.device_put(
            array, divisible_sharding(P("data"), array.shape, mesh) if mesh else None
        )


def _unpadded(rows: Any, counts: Any) -> list[list[Any]]:
    """The first entries of each row, as many as it has."""
    pairs = zip(np.asarray(rows).tolist(), np.asarray(counts).tolist(), strict=True)
    return [row[:count] for row, count in pairs]


class SourceBatch(NamedTuple):
    """A batch of fixed shape; rows beyond ``jobs`` are empty.

    Attributes:
      jobs: indices of the sources in the first rows.
      tokens, where: sources padded on the right, and their mask.
      numbers: number per row that seeds its samples besides the seed, see `prompt_number`.
      targets: answers padded on the right; of width 0 where none are given.
    """

    jobs: tuple[int, ...]
    tokens: Int[np.ndarray, "b s"]
    where: Bool[np.ndarray, "b s"]
    numbers: UInt[np.ndarray, " b"]
    targets: Int[np.ndarray, "b t"]


def source_batches(
    sources: Sequence[Sequence[int]], rows: int, *, targets: Sequence[Sequence[int]] | None = None
) -> Iterator[SourceBatch]:
    """Batches of sources with equal padded lengths (also of their targets), the longest first."""
    answers = targets if targets is not None else [()] * len(sources)
    shapes = [
        (padded_length(len(source), SOURCE), padded_length(len(answer), ANSWER) if answer else 0)
        for source, answer in zip(sources, answers, strict=True)
    ]
    for wide, long in sorted(set(shapes), reverse=True):
        equal = [i for i, shape in enumerate(shapes) if shape == (wide, long)]
        for first in range(0, len(equal), rows):
            jobs, numbers = tuple(equal[first : first + rows]), np.zeros(rows, np.uint32)
            tokens, where = np.zeros((rows, wide), np.int32), np.zeros((rows, wide), np.bool_)
            padded = np.zeros((rows, long), np.int32)
            for row, job in enumerate(jobs):
                source, answer = sources[job], answers[job]
                tokens[row, : len(source)], where[row, : len(source)] = source, True
                padded[row, : len(answer)], numbers[row] = answer, prompt_number(source)
            yield SourceBatch(jobs, tokens, where, numbers, padded)


@dataclasses.dataclass(frozen=True)
class Seq2Seq:
    """A T5 or Flan-T5 checkpoint run by jaxrag's own encoder-decoder.

    Attributes:
      checkpoint: a directory, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "float32" or "bfloat16"; "" means the first on CPUs, the second on accelerators.
      max_length: limit of a prompt in tokens, to which T5 sets none; answers do not count.
      beams: number of beams of a beam search; 1 is greedy decoding, or sampling.
      rows: prompts answered at once; 0 means 8 on CPUs, 64 on accelerators.
      data_parallel: devices over which the rows are split.
      tensor_parallel: devices over which each copy of the parameters is split.
    """

    checkpoint: str = ""
    dtype: DType = ""
    max_length: int = 512
    beams: int = 1
    rows: int = 0
    data_parallel: int = 1
    tensor_parallel: int = 1

    @property
    def name(self) -> str:
        """Name in tables."""
        return short_name(self.checkpoint)

    def require(self) -> None:
        """Raises InputError if there are fewer devices."""
        device_mesh(data=self.data_parallel, model=self.tensor_parallel)

    def load(self, cache: Path) -> Seq2SeqModel:
        """Loads the checkpoint; InputError if it is not a T5's, or a number is out of range."""
        if not self.checkpoint:
            raise InputError(
                "No checkpoint of an encoder-decoder is named: give the directory of a T5, or "
                "'hub:google/flan-t5-large'."
            )
        cpu = jax.default_backend() == "cpu"
        rows = self.rows or (8 if cpu else 64)
        check_limits(rows=rows, max_length=self.max_length, beams=self.beams)
        use_compile_cache(cache / "compiled")
        path, precision = locate(self.checkpoint), compute_dtype(self.dtype or None)
        mesh = device_mesh(data=self.data_parallel, model=self.tensor_parallel)
        tokenizer = load_tokenizer(path)
        tokenizer.chat_template = tokenizer.chat_template or _JOINED
        model, params = load_t5(path, dtype=precision, mesh=mesh)
        identity = {
            "engine": _NUMERICS,
            "weights": fingerprint(path),
            "dtype": precision.name,
            "backend": jax.default_backend(),
            "chat_template": digest(str(tokenizer.chat_template)),
            "beams": {**_SEARCH, "count": self.beams},
            "mesh": dict(mesh.shape) if mesh else None,
        }
        if cpu:  # there results are exact, and it changes the last bits
            identity["rows"] = rows
        return Seq2SeqModel(
            Seq2SeqNetwork(model, params, mesh),
            tokenizer,
            ends=end_tokens(path, tokenizer) or (model.config.eos_token_id,),
            identity=canonical(identity),
            beams=self.beams,
            rows=rows,
            max_length=self.max_length,
        )
