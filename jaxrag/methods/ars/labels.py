"""Labels from which ARS-RAG's ranker is trained: how many relevant passages each rewrite finds.

y_i is the sum of s_j over the passages of rewrite i (docs/methods, "ARS-RAG: rewrites and
labels", eq 6). The method `Config` answers nothing: its traces hold the judgements, from which the
job `MakeLabels` writes labels.jsonl.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from jaxrag.core.checks import check_range
from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import in_share
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import ENDS, Interval, interval, resampled_means
from jaxrag.functional.ranking import auc
from jaxrag.methods.ars.helpers import labels_source
from jaxrag.methods.ars.ranker.scorer import SOURCE
from jaxrag.methods.ars.relevance import RelevanceJudge, judge_all
from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.runs.loading import load_data, load_model
from jaxrag.runs.parts import open_index
from jaxrag.runs.table_job import TableJob
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import NO_ANSWER, Reader, Reply
from jaxrag.steps.tools import Needs, needs_of
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      search: of which only ``m``, the passages of each rewrite, matters.
      judge: judge of relevance; None labels by the gold passages alone.
      compared: share of the questions, drawn by their ids, that are judged in both ways (by word
        and by log-probability), so that the two can be compared.
    """

    name = "ars_labels"

    rewriter: Rewriter = Rewriter()
    search: Search = Search()
    judge: RelevanceJudge | None = RelevanceJudge()
    compared: float = 0.0
    reader: Reader = Reader(prompts="ars")

    @property
    def needs(self) -> Needs:
        """An index; scores of the judge, if it judges in both ways."""
        if self.judge is None or not self.compared:
            return Needs(search=True)
        judge = needs_of(dataclasses.replace(self.judge, by="logprob"))
        helpers = {f"judge.{field}": helper for field, helper in judge.helpers.items()}
        return Needs(search=True) | dataclasses.replace(judge, helpers=helpers)

    def __post_init__(self) -> None:
        check_range(1.0, compared=self.compared)

    async def answer(self, episode: Episode) -> Reply:
        """Rewrites, searches, and judges every passage once."""
        written = await rewrite(episode, self.rewriter)
        rankings = await self.search.each(episode, written.texts)
        judges = [] if self.judge is None else [self.judge]
        if judges and in_share(episode.question.id, self.compared):
            judges.append(judges[0].other_way())
        episode.note(judged={j.by: await _verdicts(episode, rankings, j) for j in judges})
        return NO_ANSWER


async def _verdicts(
    episode: Episode, rankings: Sequence[Pool], judge: RelevanceJudge
) -> dict[str, dict[str, float | None]]:
    """The verdict on each passage, by id."""
    verdicts = await judge_all(episode, rankings, judge)
    ids = episode.ids(Pool(tuple(verdicts), (0.0,) * len(verdicts)))
    return {
        name: {"relevant": int(v.relevant), "probability": v.probability, "junk": int(v.junk)}
        for name, v in zip(ids, verdicts.values(), strict=True)
    }


@dataclasses.dataclass(frozen=True)
class MakeLabels(TableJob):
    """Writes labels.jsonl, and source.json with the corpus and the rewriter."""

    file = "labels.jsonl"
    method = Config

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The labels; InputError if gold passages are of another corpus and alone decide them."""
        run, method, cache = self.run, self.run.method, Path(self.run.cache)
        assert isinstance(method, Config)  # __post_init__ refuses any other
        corpus, dataset = open_index(run, cache).passages, load_data(run.data, cache)
        same_corpus = corpus.identity == dataset.passages.identity
        if method.judge is None and not same_corpus:
            raise InputError(
                f"{run.name} labels by gold passages alone. Those of {dataset.name} are of the "
                f"corpus {dataset.passages.identity}, and the index searches {corpus.identity}: "
                "search the data's own corpus, or set run.method.judge."
            )
        source = labels_source(
            method, load_model(method.rewriter.model or run.model, cache), corpus
        )
        write_text(workdir / SOURCE, json.dumps(source, indent=2) + "\n")
        return [label_line(record, gold=same_corpus) for record in records.records]

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """Values of y and agreement of the judgements, with intervals."""
        means = {name: interval(column) for name, column in _columns(lines).items()}
        rows = {name: mean for name, mean in means.items() if mean.n} | agreements(lines)
        table = Table("labels", "questions", "mean", "95 % interval")
        table.title = f"{len(lines)} questions"
        for name, row in rows.items():
            ends = "" if math.isnan(row.low) else f"[{row.low:.3f}, {row.high:.3f}]"
            table.add_row(name, str(row.n), f"{row.mean:.3f}", ends)
        return table


def label_line(record: Mapping[str, Any], *, gold: bool = True) -> dict[str, Any]:
    """The line of labels.jsonl that a question's record gives.

    Labels y_i by the model's word and by its log-probabilities, each null unless judged in this
    way, and by the gold passages, null unless these are of the corpus that was searched (``gold``).
    """
    trace = record["trace"]
    passages = [search["ids"] for search in trace["searches"]]
    judged, gold_ids = trace["judged"], set(record["gold_passages"] if gold else ())

    def table(by: str, field: str) -> list[list[Any]] | None:
        if by not in judged:
            return None
        return [[judged[by][name][field] for name in ids] for ids in passages]

    def counts(verdicts: list[list[int]] | None) -> list[int] | None:
        return None if verdicts is None else [sum(ids) for ids in verdicts]

    relevant = {by: table(by, "relevant") for by in ("word", "logprob")}
    is_gold = [[int(name in gold_ids) for name in ids] for ids in passages] if gold_ids else None
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
        "gold": is_gold,
        "labels_gold": counts(is_gold),
    }


Counts = Float[np.ndarray, "q 4"]
"""Counts of judgements: all, those of value 1 by the first judge, by the second, by both."""

_PAIRS = (
    ("log-probability and gold", "relevant_logprob", "gold"),
    ("word and gold", "relevant", "gold"),
    ("word and log-probability", "relevant", "relevant_logprob"),
)


def _columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Float[np.ndarray, " q"]]:
    """Values of each question; NaN where undefined."""

    def column(value: Callable[[Mapping[str, Any]], float | None]) -> Float[np.ndarray, " q"]:
        values = [value(line) for line in lines]
        return np.array([math.nan if number is None else number for number in values], float)

    def mean(name: str) -> Float[np.ndarray, " q"]:
        return column(lambda line: None if line[name] is None else float(np.mean(line[name])))

    return {
        "rewrites filled in": column(lambda line: line["filled"]),
        "different passages": column(lambda line: len(set(chain.from_iterable(line["passages"])))),
        "y by log-probability": mean("labels_logprob"),
        "y by word": mean("labels"),
        "y by gold passages": mean("labels_gold"),
        "neither word": column(lambda line: line["junk"] if line["relevant"] else None),
    }


def agreements(lines: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Raw agreement, Cohen's kappa, shares judged relevant, and AUC of the probability.

    Each passage of a question counts once. Intervals are bootstrapped over questions.
    """
    measured: dict[str, Interval] = {}
    for name, first, second in _PAIRS:
        judged = [_passages(line, first, second) for line in lines if line[first] and line[second]]
        sums = [(len(p), p[:, 0].sum(), p[:, 1].sum(), p.prod(1).sum()) for p in judged]
        if not sums:
            continue
        counts = np.array(sums, np.float64)
        measures = {"agree": _raw, "kappa": _kappa,
                    "the first says relevant": lambda s: s[:, 1] / s[:, 0],
                    "the second says relevant": lambda s: s[:, 2] / s[:, 0]}  # fmt: skip
        for measure, function in measures.items():
            measured[f"{name}: {measure}"] = _bootstrap(counts, function)
    lines = [line for line in lines if line["probability"] and line["gold"]]
    if lines:
        scores, gold = np.concatenate([_passages(o, "probability", "gold") for o in lines]).T
        if 0 < gold.sum() < len(gold):
            value = auc(scores, gold)
            measured["probability and gold: AUC"] = Interval(value, math.nan, math.nan, len(lines))
    return measured


def _passages(line: Mapping[str, Any], first: str, second: str) -> Float[np.ndarray, "p 2"]:
    """Two judgements of each different passage of a question."""
    columns = (chain.from_iterable(line[name]) for name in ("passages", first, second))
    pairs = {name: pair for name, *pair in zip(*columns, strict=True)}
    return np.array(list(pairs.values())).reshape(-1, 2)


def _raw(sums: Counts) -> Float[np.ndarray, " r"]:
    """Share of judgements that agree."""
    n, first, second, both = sums.T
    return (n - first - second + 2 * both) / n


def _kappa(sums: Counts) -> Float[np.ndarray, " r"]:
    """Cohen's kappa; NaN where both judges give the same constant verdict."""
    n, first, second, _ = sums.T
    chance = (first * second + (n - first) * (n - second)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1, (_raw(sums) - chance) / (1 - chance), np.nan)


def _bootstrap(counts: Counts, measure: Callable[[Counts], Float[np.ndarray, " r"]]) -> Interval:
    """A measure of the sums over questions; measures are the same of means as of sums."""
    value = float(measure(counts.sum(0, keepdims=True))[0])
    draws = measure(resampled_means(counts))
    defined = draws[~np.isnan(draws)]
    low, high = np.quantile(defined, ENDS) if len(defined) else (np.nan, np.nan)
    return Interval(value, float(low), float(high), len(counts))
