"""An encoder-decoder that runs in this process: our T5 on whatever devices JAX has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from transformers import PreTrainedTokenizerFast

from jaxrag.core.hashing import canonical, digest
from jaxrag.engines.prompts import AnswerReader, check_sampling, encode_prompt, end_tokens
from jaxrag.engines.seq2seq.batches import source_batches
from jaxrag.engines.seq2seq.writer import Beams, Seq2SeqNetwork, Seq2SeqWriter
from jaxrag.models.checkpoint.files import fingerprint, locate
from jaxrag.models.precision import compute_dtype
from jaxrag.models.sharding import automatic_mesh
from jaxrag.models.t5.checkpoint import load_t5
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
