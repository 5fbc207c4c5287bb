"""An encoder-decoder as a language model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.engines.seq2seq.engine import Seq2SeqModel
from jaxrag.engines.seq2seq.writer import Beams
from jaxrag.models.checkpoint.files import short_name
from jaxrag.models.precision import DType
from jaxrag.models.sharding import device_mesh
from jaxrag.types import InputError


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
