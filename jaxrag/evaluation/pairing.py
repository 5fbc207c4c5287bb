"""Which questions of two runs are compared with each other, and what differs in their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.metrics import Record
from jaxrag.evaluation.records import RunRecords
from jaxrag.types import InputError


def paired_rows(
    ours: RunRecords, theirs: RunRecords
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Positions of the questions that both runs hold with the same gold answers, in our order.

    There are none if both runs searched and their corpora differ. InputError if the runs ask
    different questions under one id.
    """
    searched = {_searched(run.config) for run in (ours, theirs)} - {""}
    pairs = [] if len(searched) > 1 else _shared(ours, theirs)
    pairs = [
        (row, other)
        for row, other in pairs
        if _gold(ours.records[row]) == _gold(theirs.records[other])
    ]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def data_differences(ours: RunRecords, theirs: RunRecords) -> list[str]:
    """What differs in the data of two runs, in sentences, by the fields that both recorded."""
    shared, sentences = _shared(ours, theirs), []

    def count(part: Callable[[Record], object]) -> int:
        return sum(part(ours.records[a]) != part(theirs.records[b]) for a, b in shared)

    if not shared:
        return ["they share no question, so none is paired"]
    if len({run.config.get("normalization") for run in (ours, theirs)}) > 1:
        sentences.append("normalisations of answers differ: compare no accuracy")
    of = f"of {len(shared):,} shared questions"
    if number := count(_gold):
        sentences.append(f"gold answers differ for {number:,} {of}, which are not paired")
    if number := count(lambda record: set(record.get("gold_passages", ()))):
        sentences.append(f"relevant passages differ for {number:,} {of}: compare no recall")
    if len({_searched(run.config) for run in (ours, theirs)} - {""}) > 1:
        sentences.append("corpora differ, so no question is paired")
    elif len(_known("passages", ours, theirs)) > 1:
        sentences.append("corpora differ in their numbers of passages")
    same = len(shared) == len(ours.records) == len(theirs.records)
    if not sentences and same and len(_known("identity", ours, theirs)) > 1:
        sentences.append(
            "data sets differ in what the runs do not record: choices, grades, questions that were "
            "not asked, or a corpus that one of them did not search"
        )
    return sentences


def _shared(ours: RunRecords, theirs: RunRecords) -> list[tuple[int, int]]:
    """Positions in both runs of the questions that both hold, in our order."""
    where = {record["question_id"]: row for row, record in enumerate(theirs.records)}
    pairs = [
        (row, where[record["question_id"]])
        for row, record in enumerate(ours.records)
        if record["question_id"] in where
    ]
    for row, other in pairs:
        if ours.records[row]["question"] != theirs.records[other]["question"]:
            name = ours.records[row]["question_id"]
            raise InputError(
                f"{ours.path} and {theirs.path} ask different questions under the id {name!r}; "
                "runs of different data must have different data set names"
            )
    return pairs


def _gold(record: Record) -> frozenset[str]:
    return frozenset(map(str, record["gold_answers"]))


def _searched(config: Mapping[str, Any]) -> str:
    """The identity of the corpus that a run's index was built of; "" where it is not recorded."""
    return next(_corpora(config.get("retriever")), "")


def _corpora(index: Any) -> Iterator[str]:
    """The identities of "passages" in an index's record or in parts of it."""
    for name, part in index.items() if isinstance(index, Mapping) else ():
        identity = part.get("identity") if isinstance(part, Mapping) else part
        if name == "passages" and isinstance(identity, str):
            yield identity
        yield from _corpora(part)


def _known(name: str, *runs: RunRecords) -> set[str | int]:
    """The values of a field of the runs' data sets, where it is recorded."""
    datasets = [run.config.get("dataset") for run in runs]
    values = [dataset.get(name) for dataset in datasets if isinstance(dataset, Mapping)]
    return {value for value in values if isinstance(value, str | int)}
