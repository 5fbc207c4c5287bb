"""Facts of the runs behind a table or figure, for its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxrag.core.hashing import digest_file
from jaxrag.engines.memory import decoder_of
from jaxrag.evaluation.summary import calibration_text, name_of
from jaxrag.reproduction.measures import Results
from jaxrag.runs.job import Job
from jaxrag.types import InputError


def describe_runs(
    results: Iterable[Results], jobs: Mapping[Path, Job], published: Mapping[str, float]
) -> dict[str, Any]:
    """The readers, numbers of questions, data, and thresholds set.

    "parameters" of the readers are in billions; "files" has the SHA-256 of those that are files;
    "data" has number of passages and the identity of questions and passages, by data set.

    Args:
      results: of the rows or data sets.
      jobs: by directory.
      published: parameters of published checkpoints, in billions.
    """
    models, questions, thresholds = dict[str, Any](), set[int](), dict[str, None]()
    data = dict[str, dict[str, Any]]()
    for outputs in (of_seed for one in results for of_seed in one.seeds):
        for path in outputs.directories.values():  # a training's model is its reader
            model = _reader(jobs.get(path))
            models |= {model.name: model} if model else {}
        for job, run in outputs.runs():
            name = name_of(run.config, "language_model")
            models |= {} if name == "unnamed" else {name: _reader(jobs[outputs.directories[job]])}
            questions.add(len(run.records))
            dataset = run.config["dataset"]
            kept = {key: dataset[key] for key in ("passages", "identity") if key in dataset}
            data[name_of(run.config, "dataset")] = kept
            if found := run.config.get("calibration"):
                name = f"{run.config['method']['name']} on {run.config['dataset']['name']}"
                thresholds[f"{name}: {calibration_text(found)}"] = None
    return {
        "models": sorted(models),
        "parameters": {name: _billions(models[name], published) for name in sorted(models)},
        "files": {name: sha for name in sorted(models) if (sha := _sha256(models[name]))},
        "questions": sorted(questions),
        "data": data,
        **({"thresholds": list(thresholds)} if thresholds else {}),
    }


def _reader(job: Any) -> Any:
    """The language model of a job or of its run; None without one."""
    return getattr(getattr(job, "run", job), "model", None)


def _sha256(model: Any) -> str:
    """Hash of a checkpoint that is one local file; "" of others."""
    path = Path(getattr(model, "checkpoint", "") or "").expanduser()
    return digest_file(path) if path.is_file() else ""


def _billions(model: Any, published: Mapping[str, float]) -> float | None:
    """Parameters of a model; None if not known.

    They are those of a published checkpoint, also behind a server that takes its tokens, or follow
    from the shapes of a local one.
    """
    spec = getattr(model, "checkpoint", "") or getattr(model, "tokenizer", "")
    if spec in published:
        return published[spec]
    try:
        config = decoder_of(spec, {}) if spec and getattr(model, "checkpoint", "") else None
    except InputError:  # of another kind, such as T5
        return None
    return None if config is None else round(config.parameters / 1e9, 3)
