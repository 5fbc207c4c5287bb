"""Plans a run without loading weights, building an index or using the network.

Only the data set is read (and built on first use), and headers, settings and hashes of checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrag.core.jsonl import encode
from jaxrag.core.progress import size_text
from jaxrag.core.store import Store, store_path
from jaxrag.data.origins import unbuilt
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.local.engine import Local
from jaxrag.engines.memory import Memory, model_memory, number_bytes, on_disk, row_bytes
from jaxrag.engines.vllm import Vllm
from jaxrag.evaluation.records import check_config, read_run
from jaxrag.models.checkpoint.files import read_config
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.device_memory import Devices
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.settings import Footprint, IndexSettings
from jaxrag.runs.calls import expected_costs
from jaxrag.runs.edits import settings
from jaxrag.runs.loading import load_data
from jaxrag.runs.needs import check_needs
from jaxrag.runs.parts import load_questions, with_loadable_index
from jaxrag.runs.run import Run
from jaxrag.runs.run_record import settings_record
from jaxrag.steps.kinds import task_of
from jaxrag.steps.tools import ModelHelper
from jaxrag.types import InputError, Question


class ModelPlan(NamedTuple):
    """A language model: its size, as far as it is known on this machine.

    Attributes:
      role: "model", or the field of the method that holds its settings, as "gate.judge".
      settings: of the model.
      memory: of each of its devices, see `model_memory`; None if not known.
      row: bytes of keys and values for 1,024 tokens of one row.
      note: why something is not known, or "".
    """

    role: str
    settings: ModelSettings
    memory: Memory | None = None
    row: int = 0
    note: str = ""

    @property
    def text(self) -> str:
        """The plan in a line."""
        name = f"{self.settings.name} ({type(self.settings).__name__})"
        if self.memory is None:
            return ", ".join(filter(None, (name, self.note)))
        return (
            f"{name}, on each device about {size_text(round(self.memory.weights))} of weights, "
            f"peak about {size_text(round(self.memory.peak))}; {size_text(self.row)} of keys and "
            "values for 1,024 tokens of a row"
        )


@dataclasses.dataclass(frozen=True)
class IndexPlan:
    """An index: whether it is built, where, and what it takes.

    Attributes:
      name, passages: of the index, and their number.
      state, directory, dimension: see `jaxrag.retrieval.settings.IndexStatus`.
      footprint: bytes on disk and of memory; only a note while its encoder is not downloaded.
    """

    name: str
    passages: int
    state: str
    directory: Path | None = None
    dimension: int | None = None
    footprint: Footprint = Footprint()

    @property
    def text(self) -> str:
        """The plan in a line."""
        parts = [f"{self.name}: {self.passages:,} passages"]
        if self.footprint.text:
            parts.append(self.footprint.text)
        if self.directory is not None:
            parts.append(f"in {self.directory}")
        parts.append(self.state)
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Plan of a run.

    Attributes:
      method, settings: the run's label, and the method's name.
      dataset, questions, passages: name and sizes of the data.
      answered: number of questions that the run directory has answers to.
      models: the language model and the method's helpers that are language models.
      helpers: the other helpers: the method's field, and the name.
      index: None for a method that does not search.
      costs: expected calls, tokens and searches of a question by name; None if not known (see
        `jaxrag.runs.calls`).
      store, entries: the file, and its number of results; None if it does not exist.
    """

    method: str
    settings: str
    dataset: str
    questions: int
    answered: int
    passages: int
    models: tuple[ModelPlan, ...]
    helpers: tuple[tuple[str, str], ...]
    index: IndexPlan | None
    costs: Mapping[str, float] | None
    store: Path | None
    entries: int | None


def plan(run: Run, workdir: str | Path | None = None) -> Plan:
    """Plans what `jaxrag.runs.run.execute` would do with ``run`` in ``workdir``.

    Raises:
      InputError: the run would be refused, as far as known without models and index.
    """
    cache, needs = Path(run.cache), run.needs
    run = with_loadable_index(run)
    check_needs(run)
    dataset, questions = load_questions(run, cache)
    record = json.loads(encode("config", settings_record(run, dataset, questions)))
    corpus = dataset.passages if needs.search else None
    models = [("model", run.model)]
    models += [(f, h.model) for f, h in needs.helpers.items() if isinstance(h, ModelHelper)]
    store = store_path(run.store, run.cache)
    return Plan(
        method=run.name,
        settings=record["method"]["is"],
        dataset=dataset.name,
        questions=len(questions),
        answered=0 if workdir is None else _answered(Path(workdir), record, questions),
        passages=len(dataset.passages),
        models=tuple(_model(role, settings) for role, settings in models),
        helpers=tuple(
            (field, helper.name)
            for field, helper in needs.helpers.items()
            if not isinstance(helper, ModelHelper)
        ),
        index=_index(run.index, corpus, cache) if run.index and corpus else None,
        costs=expected_costs(run, Counter(map(task_of, questions))),
        store=store,
        entries=_entries(store) if store is not None and store.is_file() else None,
    )


def _answered(workdir: Path, record: Mapping[str, Any], questions: Sequence[Question]) -> int:
    if not (workdir / "config.json").is_file():
        return 0
    found = read_run(workdir)
    check_config(workdir, _restricted(found.config, record), record)
    done = {line["question_id"] for line in found.records if "error" not in line}
    return sum(question.id in done for question in questions)


def _restricted(recorded: Any, known: Any) -> Any:
    """The part of a record that is known before models and index are there."""
    if not (isinstance(recorded, dict) and isinstance(known, dict)):
        return recorded
    if not known:
        return {}
    # methods and data are known whole, so what was recorded of them besides is a difference
    whole = "is" in known
    return {
        key: _restricted(value, known.get(key))
        for key, value in recorded.items()
        if whole or key in known
    }


def _entries(store: Path) -> int:
    with contextlib.closing(Store(store)) as opened:
        return sum(producer.entries for producer in opened.producers())


def _model(role: str, settings: ModelSettings) -> ModelPlan:
    if not isinstance(settings, Local | Vllm) or not settings.checkpoint:
        return ModelPlan(role, settings, note="not on this machine")
    spec = settings.checkpoint
    if (path := on_disk(spec)) is None:
        note = f"{spec} is not downloaded yet; the run downloads it"
        return ModelPlan(role, settings, note=note)
    try:
        config = read_decoder_config(read_config(path), source=path)
    except InputError as error:
        return ModelPlan(role, settings, note=str(error))
    devices = Devices.of(jax.local_devices())
    memory = model_memory(config, settings, devices)
    return ModelPlan(role, settings, memory, row_bytes(config, number_bytes(settings, devices)))


def _index(index: IndexSettings, passages: Passages, cache: Path) -> IndexPlan:
    known = IndexPlan(index.name, len(passages), "not built; the run downloads its encoder")
    if any(spec.startswith("hub:") and on_disk(spec) is None for spec in index.checkpoints):
        base, large = (size_text(2 * length * len(passages)) for length in (768, 1024))
        usual = f"by its encoder: vectors of 768 components take {base} on disk, of 1,024 {large}"
        note = Footprint(note=usual if index.gives_vectors else "")
        return dataclasses.replace(known, footprint=note)
    status = index.status(passages, cache)
    return dataclasses.replace(known, **status._asdict(), footprint=index.footprint(passages))


def plan_job(job: Any) -> list[tuple[str, str]]:
    """The data sets and indexes of a job that is no run: field and size, or the build command.

    Data sets are in fields whose names end in "data". An index is planned over each corpus of the
    job's data.
    """
    cache = Path(getattr(job, "cache", "") or getattr(getattr(job, "run", None), "cache", ""))
    lines, indexes, corpora = [], dict[str, IndexSettings](), dict[str, Passages]()
    for name, entry in settings(job, "job").items():
        field = name.removeprefix("job.")
        if isinstance(entry, IndexSettings):
            indexes[field] = entry
        if not dataclasses.is_dataclass(entry) or not re.search(r"data(\.\d+)?$", field):
            continue
        data: Any = entry
        if missing := unbuilt(data, cache):
            text = (f"{one.name}: {one.size}; build it: {one.command}" for one in missing)
            lines += [(field, one) for one in text]
            continue
        dataset = load_data(data, cache)
        sizes = f"{len(dataset.questions):,} questions, {len(dataset.passages):,} passages"
        lines.append((field, f"{dataset.name}: {sizes}"))
        corpora.setdefault(dataset.passages.identity, dataset.passages)
    for name, index in indexes.items():
        lines += [(name, _index(index, passages, cache).text) for passages in corpora.values()]
    return lines
