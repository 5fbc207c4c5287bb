"""Plans a run: reads its data and headers of checkpoints, but no weights, index or network."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrag.core.jsonl import encode
from jaxrag.core.progress import size_text
from jaxrag.core.store import Store, store_path
from jaxrag.data.origins import unbuilt
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.local.engine import Local
from jaxrag.engines.memory import model_memory, number_bytes, on_disk, row_bytes
from jaxrag.engines.vllm import Vllm
from jaxrag.evaluation.records import check_config, read_run
from jaxrag.evaluation.summary import shown_name
from jaxrag.models.checkpoint.files import read_config
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.device_memory import Devices
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.runs.calls import RECORD_CALLS, expected_costs
from jaxrag.runs.edits import settings
from jaxrag.runs.loading import load_data
from jaxrag.runs.needs import check_needs
from jaxrag.runs.parts import load_questions, with_loadable_index
from jaxrag.runs.run import Run
from jaxrag.runs.run_record import settings_record
from jaxrag.steps.kinds import task_of
from jaxrag.steps.tools import ModelHelper
from jaxrag.types import InputError, Question


def plan(run: Run, workdir: str | Path = "") -> list[tuple[str, str]]:
    """Plans what `jaxrag.runs.run.execute` would do with ``run`` in ``workdir``: lines of a table.

    They have names: "method", "data", "run"; the language model ("model") and the method's helpers,
    by the fields of their settings, such as "gate.judge"; "index" for a method that searches,
    "store", and the expected costs (see `jaxrag.runs.calls`). InputError if the run would be
    refused, as far as known without models and index.
    """
    cache, helpers = Path(run.cache), run.needs.helpers.items()
    run = with_loadable_index(run)
    check_needs(run)
    dataset, questions = load_questions(run, cache)
    record = json.loads(encode("config", settings_record(run, dataset, questions)))
    answered = _answered(Path(workdir), record, questions) if workdir else 0
    left = len(questions) - answered
    models = {f: helper.model for f, helper in helpers if isinstance(helper, ModelHelper)}
    lines = [
        ("method", f"{run.name} ({record['method']['is']})"),
        ("data", f"{dataset.name}: {_sizes(len(questions), len(dataset.passages))}"),
        ("run", f"{workdir or 'no --workdir'}: {answered:,} answered, {left:,} left"),
        *((role, model_text(model)) for role, model in {"model": run.model, **models}.items()),
        *((field, helper.name) for field, helper in helpers if field not in models),
    ]
    if run.index and run.needs.search:
        lines.append(("index", _index(run.index, dataset.passages, cache)))
    lines.append(("store", _store(store_path(run.store, run.cache))))
    costs = expected_costs(run, Counter(map(task_of, questions)))
    if costs is None:
        lines.append(("calls", f"unknown; {RECORD_CALLS}"))
    for name, cost in (costs or {}).items():
        text = f"about {cost:.3g} a question, {round(left * cost):,} in all"
        lines.append((name.replace("_", " "), text))
    return lines


def _sizes(questions: int, passages: int) -> str:
    return f"{questions:,} questions, {passages:,} passages"


def _answered(workdir: Path, record: Mapping[str, Any], questions: Sequence[Question]) -> int:
    if not (workdir / "config.json").is_file():
        return 0
    recorded = read_run(workdir)
    check_config(workdir, _restricted(recorded.config, record), record)
    answered = {line["question_id"] for line in recorded.records if "error" not in line}
    return sum(question.id in answered for question in questions)


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


def _store(file: Path | None) -> str:
    if file is None:
        return "in memory"
    if not file.is_file():
        return f"{file}: not there yet"
    with contextlib.closing(Store(file)) as opened:
        return f"{file}: {sum(producer.entries for producer in opened.producers()):,} results"


def model_text(settings: ModelSettings) -> str:
    """A language model, and its memory on each device as far as its shapes are known here."""
    name = f"{shown_name(settings.name)} ({type(settings).__name__})"
    if not isinstance(settings, Local | Vllm) or not settings.checkpoint:
        return f"{name}, not on this machine"
    spec = settings.checkpoint
    if (path := on_disk(spec)) is None:
        return f"{name}, {spec} is not downloaded yet; the run downloads it"
    try:
        config = read_decoder_config(read_config(path), source=path)
    except InputError as error:
        return f"{name}, {error}"
    devices = Devices.of(jax.local_devices())
    memory = model_memory(config, settings, devices)
    row = row_bytes(config, number_bytes(settings, devices))
    return (
        f"{name}, on each device about {size_text(round(memory.weights))} of weights, peak about "
        f"{size_text(round(memory.peak))}; {size_text(row)} of keys and values for 1,024 tokens of "
        "a row"
    )


def _index(index: IndexSettings, passages: Passages, cache: Path) -> str:
    """An index over some passages: what it takes, where it lies, and whether it is built."""
    name = f"{shown_name(index.name)}: {len(passages):,} passages"
    if any(spec.startswith("hub:") and on_disk(spec) is None for spec in index.checkpoints):
        return f"{name}, not built; the run downloads its encoder"
    directory, state, *_ = index.status(passages, cache)
    return ", ".join(filter(None, (name, index.footprint(passages).text, f"in {directory}", state)))


def plan_job(job: Any) -> list[tuple[str, str]]:
    """The data sets and indexes of a job that is no run: field and size, or the build command."""
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
            lines += [(field, f"{m.name}: {m.size}; build it: {m.command}") for m in missing]
            continue
        dataset = load_data(data, cache)
        sizes = _sizes(len(dataset.questions), len(dataset.passages))
        lines.append((field, f"{dataset.name}: {sizes}"))
        corpora.setdefault(dataset.passages.identity, dataset.passages)
    for name, index in indexes.items():
        lines += [(name, _index(index, passages, cache)) for passages in corpora.values()]
    return lines
