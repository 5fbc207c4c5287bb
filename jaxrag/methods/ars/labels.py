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

from jaxrag.core.durable_files import write_text
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import interval
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
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      rewriter: generates the rewrites.
      search: of which only ``m``, the passages of each rewrite, matters.
      judge: judge of relevance; None labels by the gold passages alone.
      reader: prompts of the rewriter.
    """

    name = "ars_labels"
    needs = Needs(search=True)

    rewriter: Rewriter = Rewriter()
    search: Search = Search()
    judge: RelevanceJudge | None = RelevanceJudge()
    reader: Reader = Reader(prompts="ars")

    async def answer(self, episode: Episode) -> Reply:
        """Rewrites, searches, and judges every passage once."""
        written = await rewrite(episode, self.rewriter)
        rankings = await self.search.each(episode, written.texts)
        judges = [] if self.judge is None else [self.judge]
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
        """The labels of each question.

        Raises:
          InputError: the gold passages, by which alone labels are made, are of another corpus.
        """
        run, method, cache = self.run, self.run.method, Path(self.run.cache)
        assert isinstance(method, Config)  # __post_init__ refuses any other
        corpus, dataset = open_index(run, cache).passages, load_data(run.data, cache)
        own = corpus.identity == dataset.passages.identity
        if method.judge is None and not own:
            raise InputError(
                f"{run.name} labels by gold passages alone. Those of {dataset.name} are of the "
                f"corpus {dataset.passages.identity}, and the index searches {corpus.identity}: "
                "search the data's own corpus, or set run.method.judge."
            )
        source = labels_source(
            method, load_model(method.rewriter.model or run.model, cache), corpus
        )
        write_text(workdir / SOURCE, json.dumps(source, indent=2) + "\n")
        return [label_line(record, gold=own) for record in records.records]

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """Means over the questions, with intervals: y by each judge, and what tells of the data."""
        table = Table("labels", "questions", "mean", "95 % interval")
        table.title = f"{len(lines)} questions"
        for name, column in _columns(lines).items():
            if (mean := interval(column)).n:
                ends = f"[{mean.low:.3f}, {mean.high:.3f}]"
                table.add_row(name, str(mean.n), f"{mean.mean:.3f}", ends)
        return table


def label_line(record: Mapping[str, Any], *, gold: bool = True) -> dict[str, Any]:
    """The line of labels.jsonl that a question's record gives.

    Labels y_i by the model's word and by its log-probabilities, each null unless judged in this
    way, and by the gold passages, null where these are unknown.

    Args:
      record: of a run with `Config`.
      gold: whether the gold passages are of the corpus that was searched.
    """
    trace = record["trace"]
    passages = [search["ids"] for search in trace["searches"]]
    judged, known = trace["judged"], set(record["gold_passages"] if gold else ())

    def table(by: str, field: str) -> list[list[Any]] | None:
        if by not in judged:
            return None
        return [[judged[by][name][field] for name in ids] for ids in passages]

    def counts(verdicts: list[list[int]] | None) -> list[int] | None:
        return None if verdicts is None else [sum(ids) for ids in verdicts]

    relevant = {by: table(by, "relevant") for by in ("word", "logprob")}
    held = [[int(name in known) for name in ids] for ids in passages] if known else None
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


def _columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Float[np.ndarray, " q"]]:
    """Values of each question; NaN where undefined."""

    def column(value: Callable[[Mapping[str, Any]], float | None]) -> Float[np.ndarray, " q"]:
        found = [value(line) for line in lines]
        return np.array([math.nan if one is None else one for one in found], float)

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
