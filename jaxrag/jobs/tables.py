"""What is learned from, made by runs that ask a language model.

Labels and reward tables of ARS-RAG (METHODS section 5), pairs for ERRR's query optimizer (section
4.4, `jaxrag.jobs.query_pairs`) and for Adaptive-RAG's classifier (`jaxrag.jobs.complexity_pairs`).
A run of `jaxrag.methods.ars_labels`, `ars_rewards`, `errr_pairs` or `adaptive_labels` does the
asking: it goes on where it was stopped, and its answers.jsonl has all that was found. What is
learned from is written here once the run is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.engines.store import canonical, digest
from jaxrag.evaluation.metrics import accuracy
from jaxrag.evaluation.records import Run as Records
from jaxrag.evaluation.records import read_run
from jaxrag.jobs import complexity_pairs, query_pairs
from jaxrag.methods import adaptive_labels, ars_labels, ars_rewards, errr_pairs
from jaxrag.retrieval.manifest import replacing
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.run import Run, execute, open_index
from jaxrag.types import InputError

RUN, LABELS, REWARDS, CONTEXTS, CONFIG = (
    "run", "labels.jsonl", "rewards.jsonl", "contexts.npy", "config.json",
)  # fmt: skip

_MAKERS = (ars_labels.Config, ars_rewards.Config, errr_pairs.Config, adaptive_labels.Config)


def tabulate(run: Run, workdir: str | Path) -> Path:
    """Asks what has not been asked, then writes the table; returns the file.

    Args:
      run: whose method is that of labels, of rewards or of pairs.
      workdir: gets the run's own directory ``run``, and the table beside it: labels.jsonl,
        pairs.jsonl, or rewards.jsonl with contexts.npy and config.json (see
        `jaxrag.training.selector_table`).

    Raises:
      InputError: another method, a data set that does not say which questions are to train on, a
        question that failed (the same call asks it again), or what `execute` raises.
    """
    workdir = Path(workdir)
    if not isinstance(run.method, _MAKERS):
        raise InputError(
            f"{run.name} makes no table; the methods ars_labels, ars_rewards, errr_pairs and "
            "adaptive_labels do, as in configs/ars_tables.py, configs/errr_pairs.py and "
            "configs/adaptive_labels.py."
        )
    if isinstance(run.method, ars_rewards.Config):
        _part_of(run, 0)
    found = execute(run, workdir / RUN)
    if found["errors"]:
        raise InputError(
            f"{found['errors']} of {found['questions']} questions failed (see "
            f"{workdir / RUN / 'answers.jsonl'}), so there is no table yet. The others are kept; "
            "the same command asks these again."
        )
    records = read_run(workdir / RUN)
    if isinstance(run.method, adaptive_labels.Config):
        drawn = complexity_pairs.ComplexityPairs(run.method.reader.prompts, run.method.held_out)
        return complexity_pairs.write_pairs([workdir / RUN], workdir, drawn)
    if isinstance(run.method, errr_pairs.Config):
        return query_pairs.write_pairs(run, workdir, records)
    if isinstance(run.method, ars_labels.Config):
        return _write_labels(workdir, records)
    return _write_rewards(run, workdir, records)


def _write_labels(workdir: Path, run: Records) -> Path:
    return _write(workdir / LABELS, map(label_line, run.records))


def label_line(record: Mapping[str, Any]) -> dict[str, Any]:
    """The line of labels.jsonl that a question's record gives.

    Labels y_i (METHODS eq 6) by the model's word and by its probabilities, each null where that was
    not asked for, and by the gold passages where they are known.
    """
    trace = record["trace"]
    passages = [search["ids"] for search in trace["searches"]]
    judged, gold = trace["judged"], set(record["gold_passages"])

    def table(by: str, field: str) -> list[list[Any]] | None:
        if by not in judged:
            return None
        return [[judged[by][name][field] for name in ids] for ids in passages]

    def counts(verdicts: list[list[int]] | None) -> list[int] | None:
        return None if verdicts is None else [sum(ids) for ids in verdicts]

    relevant = {by: table(by, "relevant") for by in ("word", "logprob")}
    held = [[int(name in gold) for name in ids] for ids in passages] if gold else None
    return {
        "question_id": record["question_id"],
        "question": record["question"],
        "rewrites": trace["rewrites"]["texts"],
        "filled": trace["rewrites"]["filled"],
        "passages": passages,
        "relevant": relevant["word"],
        "labels": counts(relevant["word"]),
        "relevant_logprob": relevant["logprob"],
        "probability": table("logprob", "probability"),
        "labels_logprob": counts(relevant["logprob"]),
        "junk": sum(map(sum, table("word", "junk") or [])),
        "gold": held,
        "labels_gold": counts(held),
    }


def _write_rewards(run: Run, workdir: Path, records: Records) -> Path:
    retriever = open_index(run, Path(run.cache))
    if isinstance(retriever, TextRetriever):
        raise InputError(
            "A selector chooses by the question's vector, and the run's index has no encoder: "
            "choose an index with one, such as Exact."
        )
    texts = [record["question"] for record in records.records]
    with replacing(workdir / CONTEXTS) as stream:
        np.save(stream, np.asarray(retriever.embed(texts), np.float32), allow_pickle=False)
    lines = [reward_line(line, _part_of(run, i)) for i, line in enumerate(records.records)]
    config = {
        "table": {
            "kind": "rewards",
            "arms": len(lines[0]["base"]),
            "questions": len(lines),
            "run": digest(canonical(records.config)),
        },
        "encoder": json.loads(retriever.encoder.identity),
        "dataset": records.config["dataset"],
        "method": records.config["method"],
    }
    with replacing(workdir / CONFIG) as stream:
        stream.write(json.dumps({"config": config}, indent=2).encode() + b"\n")
    return _write(workdir / REWARDS, lines)


def reward_line(record: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The line of rewards.jsonl that a question's record gives; entry k - 1 is of k rewrites.

    The base reward is 1 for a correct answer and 0 for another; of an open question 1 for an exact
    match, otherwise token F1 (METHODS section 5.4).
    """
    scored = [accuracy(text, record["gold_answers"]) for text in record["trace"]["answers"]]
    if not scored[0]:
        raise InputError(
            f"Question {record['question_id']} has no gold answer, so nothing can be earned."
        )
    columns = {name: [row[name] for row in scored] for name in ("exact_match", "f1", "contains")}
    task = record["trace"].get("task", "open")
    correct = columns["contains" if task == "fact_checking" else "exact_match"]
    graded = [max(row["exact_match"], row["f1"]) for row in scored]
    return {
        "question_id": record["question_id"],
        "question": record["question"],
        "part": part,
        "task": task,
        "predictions": record["trace"]["answers"],
        "exact_match": columns["exact_match"],
        "f1": columns["f1"],
        "correct": correct,
        "base": graded if task == "open" else correct,
    }


def _part_of(run: Run, number: int) -> str:
    part_of = getattr(run.data, "part_of", None)
    if part_of is None:
        raise InputError(
            "A reward table tells questions to train on from questions to test: give the data as "
            "a jaxrag.settings.Draw."
        )
    return part_of(number)


def _write(path: Path, lines: Sequence[Any] | Any) -> Path:
    with replacing(path) as stream:
        for line in lines:
            stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return path
