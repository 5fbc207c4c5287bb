"""Shared parts of the configs: the grammar METHOD@DATA[+ENGINE], models, settings of small models.

- METHOD: a method that answers questions, or a job such as a training. The docstring of each config
  lists its METHODs. Alone, METHOD is on the quickstart's data, or the factbook's.
- DATA: a name of `configs.data`, alone or as ``paper-NAME``. For a training that reads files: a
  size (tiny, small or paper), or the directories of the files.
- ENGINE: ``+vllm`` runs the language model by vLLM in this process instead of by our decoder,
  ``+server`` uses a server (``--config.model.model=NAME
  --config.model.urls=http://HOST:PORT/v1``); see docs/engines.md. Methods that look inside the
  model run on our decoder only, and a closed model on servers only.

Without ``paper-`` a run uses SmolLM2-135M-Instruct and all-MiniLM-L6-v2 from pip packages, with
settings for a small model: prompts with demonstrations, short outputs, one short passage.
``paper-NAME`` uses the paper's settings and models from the hub, for a GPU or TPU; these have not
been run by us.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from jaxrag.configs import data
from jaxrag.configs.data import Questions
from jaxrag.data.dataset import DataSettings
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import bge, nomic
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.runs.job import Job
from jaxrag.runs.placement import as_vllm
from jaxrag.runs.run import Run
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError

SMALL = Reader(prompts="small", answer_tokens=16, passage_tokens=48)
"""For language models of a few hundred million parameters: demonstrations, short outputs."""

K = 1
"""Passages that a small model reads."""

PASSAGE_TOKENS = 1024
"""Most new tokens of a pseudo-context or rationale of the paper's models, as in DTR's released
code: the papers give no limit, and a rationale states its answer last."""

CLOSED = dataclasses.replace(SMALL, closed_tokens=4, by="calibrated")
"""Likewise, for methods of closed questions; when a small model writes its answer, nearly all are
"no"."""

SIZES = ("tiny", "small", "paper")
"""Values of DATA for a training that reads files."""

ENGINES = ("vllm", "server")

QWEN_7B = "hub:Qwen/Qwen2.5-7B-Instruct"
BGE = bge(instruction=False)
_NOMIC = dataclasses.replace(nomic(), max_length=512)


class Variant(NamedTuple):
    """A parsed METHOD@DATA; ``name`` is DATA, including a prefix "paper-"."""

    method: str
    name: str

    @property
    def paper(self) -> bool:
        """Whether settings and models are the paper's."""
        return self.name.startswith("paper-")

    @property
    def data(self) -> str:
        """The data set's name in `configs.data`."""
        return self.name.removeprefix("paper-")


class Entry(NamedTuple):
    """A METHOD of a config: makes a variant's job; its values of DATA, none if that is a path."""

    make: Callable[[Variant], Job]
    names: Collection[str] = ()


class Setup(NamedTuple):
    """Questions by DATA, and small models and the paper's to answer them, as fields of `Run`."""

    questions: Mapping[str, Questions]
    small: Mapping[str, Any]
    paper: Mapping[str, Any]

    def models(self, variant: Variant) -> dict[str, Any]:
        """The models of a variant."""
        return dict(self.paper if variant.paper else self.small)

    def data(self, variant: Variant, *, part: str = "test") -> DataSettings:
        """The questions of a variant; of a random draw, the part to evaluate or to train on."""
        questions: Any = self.questions[variant.name].data
        return questions if part == "test" else dataclasses.replace(questions, part=part)

    def run(self, method: Any, variant: Variant, *, part: str = "test", **changes: Any) -> Run:
        """A run of a method on the questions of a variant."""
        fields = {
            "data": self.data(variant, part=part),
            "limit": self.questions[variant.name].limit,
            # without a label, a run is named by its method, which may be changed
            "label": "" if variant.method == method.name else variant.method,
        }
        return Run(method=method, **fields | self.models(variant) | changes)

    def entry(
        self,
        small: Any,
        paper: Any,
        small_run: Mapping[str, Any] = MappingProxyType({}),
        paper_run: Mapping[str, Any] = MappingProxyType({}),
    ) -> Entry:
        """A method with settings for a small model and the paper's; each may change its run."""

        def make(variant: Variant) -> Run:
            method, changes = (paper, paper_run) if variant.paper else (small, small_run)
            return self.run(method, variant, **changes)

        return Entry(make, self.questions)


PAIRS = Setup(
    data.PAIRS,
    {"model": Local(), "index": Scann(), "reranker": QueryLikelihood()},
    {
        "model": Local(QWEN_7B),
        "index": Exact(BGE),  # flat, as in the released code
        "reranker": CrossEncoder("hub:BAAI/bge-reranker-base"),
    },
)
"""PAIRS and DTR."""

R3 = PAIRS._replace(questions=data.R3)
"""R3: the same models, on R3's sets."""

ARS = Setup(
    data.ARS,
    {"model": Local(), "index": Exact()},
    {"model": Local("hub:Qwen/Qwen2.5-32B-Instruct"), "index": Scann(_NOMIC)},
)


def job_of(variant: str, entries: Mapping[str, Entry], *, example: str) -> Job:
    """The job of METHOD@DATA[+ENGINE]; of METHOD alone, on the data of the example.

    InputError if there is no such method, data or engine, or a name without a method.
    """
    method, at, rest = variant.partition("@")
    if not at:
        method, plus, engine = variant.partition("+")
        usual = example.partition("@")[2]
        if method not in entries or usual not in entries[method].names:
            _without_method(variant, entries, example)
        rest = f"{usual}{plus}{engine}"
    if method not in entries:
        _unknown("method", method, entries, variant)
    entry = entries[method]
    if not entry.names:
        if not rest:
            raise InputError(f"{variant!r} names no directory: give {method}@DIRECTORY.")
        return entry.make(Variant(method, rest))
    name, plus, engine = rest.partition("+")
    if name not in entry.names:
        _unknown("data", name, entry.names, variant)
    if plus and engine not in ENGINES:
        _unknown("engine", engine, ENGINES, variant)
    job = entry.make(Variant(method, name))
    return _switch_engine(job, engine, variant) if plus else job


def _without_method(variant: str, entries: Mapping[str, Entry], example: str) -> NoReturn:
    """Refuses a variant without "@", such as DATA alone, and names the likeliest whole one."""
    usual = example.partition("@")[0]
    name, plus, engine = variant.partition("+")
    names = [*entries, *entries[usual].names]
    ending = [choice for choice in names if choice.endswith(name)]
    near, *_ = ending or difflib.get_close_matches(name, names, 1, 0)
    if near in entries:
        likeliest = f"{near}@{next(iter(entries[near].names), 'DIRECTORY')}"
    else:
        likeliest = f"{usual}@{near}"
    raise InputError(
        f"variant {variant!r} has no method: variants are METHOD@DATA[+ENGINE], such as "
        f"{likeliest}{plus}{engine}."
    )


def _unknown(kind: str, name: str, names: Collection[str], variant: str) -> NoReturn:
    near = difflib.get_close_matches(name, names, 1, 0)
    raise InputError(
        f"no {kind} {name!r} in {variant!r}, which is METHOD@DATA[+ENGINE]; there are "
        f"{', '.join(names)}. Nearest: {near[0]}."
    )


def _switch_engine(job: Any, engine: str, variant: str) -> Any:
    """The job, or a part of one, with its language model on another engine."""
    for part in ("run", "downstream"):
        inner = getattr(job, part, None)
        if inner is not None and not isinstance(job, Run):
            return dataclasses.replace(job, **{part: _switch_engine(inner, engine, variant)})
    if not hasattr(job, "model"):
        raise InputError(f"{variant!r}: no language model is used, so leave +{engine} out.")
    if isinstance(job, Run) and job.needs.inspection:
        raise InputError(
            f"{variant!r}: {job.name} inspects the model, and only the local engine returns "
            f"attentions and hidden states: leave +{engine} out."
        )
    if isinstance(job.model, Server) and engine == "server":
        return job
    if not isinstance(job.model, Local):
        raise InputError(
            f"{variant!r}: its model is {job.model.name}, not a checkpoint: leave +{engine} out, "
            "or choose the model with --config.model=Vllm or another class."
        )
    model = as_vllm(job.model) if engine == "vllm" else Server()
    return dataclasses.replace(job, model=model)
