"""Requirements of a reproduction, computed from settings alone: no data, model or index is read.

Calls and tokens come from running each method on simulated models (see `jaxrag.runs.calls`), sizes
of data from the papers' published sets and corpora, sizes of indexes from the number of passages
and the dimension of the vectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from jaxrag.core.progress import size_text
from jaxrag.data.benchmark import Benchmark, named_set
from jaxrag.data.corpora import CORPORA
from jaxrag.data.draw import Draw
from jaxrag.data.set_row import OWN
from jaxrag.engines.server import Server
from jaxrag.evaluation.report.tables import Grid
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact, exact_footprint
from jaxrag.retrieval.dense.scann.index import Scann, ScannSettings, scann_footprint
from jaxrag.retrieval.settings import Footprint
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.retrieval.web.index import Web
from jaxrag.runs.calls import Calls, bounds
from jaxrag.runs.job import Job
from jaxrag.runs.needs import check_needs
from jaxrag.runs.run import Repeated, Run
from jaxrag.types import Passage, Question

TOKENS_A_WORD = 1.3
"""Tokens per word of English text, about."""

TOTALS = ("llm_calls", "llm_scores", "prompt_tokens", "new_tokens")

_WORDS = 100  # of a passage
_POSTING = 8  # bytes of a word of a passage in the index of BM25
_BERT_BASE = 768  # numbers of a vector
_SIDR_TOKENS = 128  # of a passage, at most


class Need(NamedTuple):
    """Requirements of one job.

    Attributes:
      name: of the job's directory.
      kind: "run", or the kind of another job.
      model: the language model that answers; "" for a job without one.
      questions, passages: their numbers, of questions at most the run's limit; None where they are
        not known from settings alone.
      corpus: name of what is searched; "" for a job that does not search.
      workloads: calls of a question and numbers of questions; a training has several, such as for
        training and for evaluation.
      index: the index with its bytes on disk and in memory; "" without one.
      models: checkpoints and names of served models.
      keys: environment variables that must hold keys of services.
    """

    name: str
    kind: str
    model: str
    questions: int | None
    passages: int | None
    corpus: str
    workloads: tuple[Workload, ...]
    index: str
    models: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def calls(self) -> Mapping[str, Calls]:
        """Calls of a question of the first workload, a training's most numerous; empty if none."""
        return self.workloads[0].calls if self.workloads else {}

    def total(self, kind: str) -> int | None:
        """Upper bound on the calls, or tokens, of all questions; None if not known."""
        counted = [w for w in self.workloads if kind in w.calls and w.questions is not None]
        if not counted:
            return None
        factor = TOKENS_A_WORD if kind == "prompt_tokens" else 1
        return round(sum(factor * (w.questions or 0) * w.calls[kind].most for w in counted))


class Workload(NamedTuple):
    """Calls of one question by kind, and the number of such questions."""

    calls: Mapping[str, Calls]
    questions: float | None


class Checker:
    """Checks jobs; methods with the same settings are simulated once.

    Args:
      dimensions: lengths of the vectors of published encoders, by checkpoint.
      root: the parent of the jobs' directories; checkpoints below it are yet to be trained.
    """

    def __init__(self, dimensions: Mapping[str, int], root: Path | None = None):
        self._dimensions, self._root = dimensions, root
        self._known: dict[Any, dict[str, Calls]] = {}

    def need(self, name: str, job: Job, sources: Sequence[Need] = ()) -> Need:
        """The requirements of a job.

        Args:
          name: of its directory.
          job: its settings.
          sources: requirements of the jobs whose output it reads. A training on another job's
            pairs or rewards has no data of its own; its number of questions is that of the first.

        Raises:
          InputError: its settings do not fit; the message names the setting.
        """
        runs = _runs(job)
        models, keys = (tuple(dict.fromkeys(walk(job))) for walk in (checkpoints, key_variables))
        kind = "run" if isinstance(job, Run) else type(job).__name__
        count = _count_of(job) or next((need.questions for need in sources), None)
        if not runs:
            return Need(name, kind, "", count, None, "", (), "", models, keys)
        for run, _ in runs:
            check_needs(run, given=self._made_later(run, training=run is not job))
        first = runs[0].run
        _, passages, corpus, _ = sizes(first.data)
        searches = first.needs.search
        index = self._index(first, passages) if searches else ""
        workloads = tuple(self._workload(run, times) for run, times in runs)
        model, where = first.model.name, corpus * searches
        return Need(name, kind, model, count, passages, where, workloads, index, models, keys)

    def _workload(self, run: Run, times: float) -> Workload:
        count = _count_of(run)
        task = sizes(run.data)[3]
        return Workload(self._calls(run, task), None if count is None else times * count)

    def _made_later(self, run: Run, *, training: bool) -> dict[str, Any]:
        """Helpers whose checkpoints other jobs will have trained, or the job itself trains."""
        later = {}
        for field, helper in run.needs.helpers.items():
            path = Path(helper.checkpoint or "")
            below = self._root is not None and self._root in path.parents
            if below or (training and not helper.checkpoint):
                later[field] = None
        return later

    def _calls(self, run: Run, task: str) -> dict[str, Calls]:
        vectors = run.index is not None and run.index.gives_vectors
        key = run.method, task, vectors
        if key not in self._known:
            corpus = cast(Any, _MadeUp()) if run.needs.search else None
            calls = bounds(run.method, _questions(task), corpus, vectors=vectors, tokens=True)
            self._known[key] = {call.kind: call for call in calls}
        return self._known[key]

    def _index(self, run: Run, passages: int | None) -> str:
        index: Any = run.index
        if passages is None:
            return f"{type(index).__name__} of a corpus whose size is not known"
        text = self._footprint(index, passages).text
        return f"{type(index).__name__}: {text}" if text else type(index).__name__

    def _footprint(self, index: Any, passages: int) -> Footprint:
        if isinstance(index, Sidr):
            size = 2 * (1 + _SIDR_TOKENS) * passages
            return Footprint(size, size, "at most, of 128 tokens a passage")
        if isinstance(index, Bm25):
            size = _POSTING * _WORDS * passages
            return Footprint(size, 4 * passages, "at most, of 100 different words a passage")
        if isinstance(index, Dpr):
            return exact_footprint(passages * _BERT_BASE, 0.0)
        checkpoint = getattr(getattr(index, "encoder", None), "checkpoint", "")
        dimension = self._dimensions.get(checkpoint)
        if dimension is None:
            return Footprint()
        if isinstance(index, Scann):
            return scann_footprint(passages, dimension, ScannSettings())
        if isinstance(index, Exact):
            return exact_footprint(passages * dimension, index.memory_gb)
        return Footprint()


def _runs(job: Job) -> tuple[Repeated, ...]:
    """The runs whose calls a job makes; none of a job without language model."""
    costs: Any = getattr(job, "costs", None)
    run = job if isinstance(job, Run) else getattr(job, "run", None)
    if costs is not None:
        data: Any = getattr(job, "data", None) or getattr(run, "data", None)
        return costs(sizes(data)[0] or 0)
    return (Repeated(run, 1),) if isinstance(run, Run) else ()


def _count_of(job: Job) -> int | None:
    """The number of a job's questions, at most its limit; None if neither is known.

    They are of the job's own data, or of its run's.
    """
    owner: Any = job if hasattr(job, "data") else getattr(job, "run", None)
    data: Any = getattr(owner, "data", ())
    count = sum(sizes(part)[0] or 0 for part in (data if isinstance(data, tuple) else (data,)))
    return min((number for number in (count, getattr(owner, "limit", 0)) if number), default=None)


def key_variables(value: Any) -> Iterator[str]:
    """Environment variables that must hold keys of closed services, in a tree of settings."""
    if isinstance(value, tuple):
        for part in value:
            yield from key_variables(part)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    if isinstance(value, Server) and "api.openai.com" in value.urls:
        yield value.key_variable
    if isinstance(value, Web) and not value.offline and value.variable:
        yield value.variable
    for field in dataclasses.fields(value):
        yield from key_variables(getattr(value, field.name))


def _unused(run: Run) -> set[str]:
    """Fields of a run that its method does not use."""
    needs = run.needs
    used = {"reranker": needs.reranker, "index": needs.search}
    return {field for field, needed in used.items() if not needed}


def checkpoints(value: Any) -> Iterator[str]:
    """Checkpoints of the hub, and names of served models, in a tree of settings.

    Those of a reranker or an index that a run's method does not need are left out.
    """
    if isinstance(value, tuple):
        for part in value:
            yield from checkpoints(part)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    for field in dataclasses.fields(value):
        if isinstance(value, Run) and field.name in _unused(value):
            continue
        entry = getattr(value, field.name)
        if isinstance(entry, str) and entry.startswith("hub:"):
            yield entry
        elif field.name == "urls" and getattr(value, "model", ""):
            yield f"{getattr(value, 'model', '')} behind {entry}"
        else:
            yield from checkpoints(entry)


def sizes(data: Any) -> tuple[int | None, int | None, str, str]:
    """Numbers of questions and passages, name of the corpus, and task, of settings of data."""
    if isinstance(data, Draw):
        source: Any = data.test_source or data.source
        _, passages, corpus, task = sizes(source)
        return (
            {"train": data.train, "both": data.train + data.test}.get(data.part, data.test),
            passages,
            corpus,
            task,
        )
    if not isinstance(data, Benchmark):
        return None, None, type(data).__name__, "open"
    published = named_set(data.name)
    count = data.first or published.SPLITS[data.split or published.EVALUATED]
    corpus = data.corpus or published.CORPUS
    if corpus == OWN or corpus not in CORPORA:
        return count, published.CONTEXTS_SIZE or None, published.contexts_name(), published.TASK
    return count, CORPORA[corpus].passages, corpus, published.TASK


def _questions(task: str) -> list[Question]:
    """Four questions of a task."""
    answers = {"yes_no": "yes", "fact_checking": "true"}.get(task, "Lima")
    choices = ("Lima", "Quito", "Oslo", "Suva") if task == "multiple_choice" else ()
    text = "Which of the two cities on the river was the first capital of the country?"
    return [Question(f"q{i}", f"{text} {i}", (answers,), choices, task) for i in range(4)]


class _MadeUp:
    """A corpus of passages of 100 words."""

    identity = "made up"

    def __len__(self) -> int:
        return 1000

    def get(self, rows: Iterable[int]) -> list[Passage]:
        return [Passage(str(row), f"Title {row}", f"word{row} " * _WORDS) for row in rows]

    def find(self, ids: Sequence[str]) -> list[Passage]:
        return self.get(map(int, ids))


def needs_grid(needs: Sequence[Need]) -> Grid:
    """The jobs of a table, with questions, calls, tokens and the index."""
    lines = []
    for need in needs:
        calls = need.calls.get("llm_calls")
        each = "" if calls is None else _range(calls)
        lines.append(
            (
                need.name.rpartition("-")[0],
                need.model or need.kind,
                "" if need.questions is None else f"{need.questions:,}",
                each,
                _count(need.total("prompt_tokens")),
                _count(need.total("new_tokens")),
                need.corpus,
            )
        )
    headings = (
        "job",
        "model",
        "questions",
        "LLM calls each",
        "prompt tokens, about",
        "new tokens, at most",
        "corpus",
    )
    return Grid(headings, lines)


def indexes_text(needs: Iterable[Need]) -> str:
    """The indexes of some jobs, a line each."""
    lines = (
        f"{need.index}; over {need.corpus}"
        + (f", {need.passages:,} passages" if need.passages else "")
        for need in needs
        if need.index
    )
    return "\n".join(dict.fromkeys(lines))


def total_text(needs: Iterable[Need], kind: str) -> str:
    """The sum of calls or tokens over all jobs for which it is known."""
    return _count(sum(need.total(kind) or 0 for need in needs))


def _range(calls: Calls) -> str:
    return f"{calls.least}" if calls.least == calls.most else f"{calls.least} to {calls.most}"


def _count(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value / 1e6:,.1f} M" if value >= 1e5 else f"{value:,}"


def keys_text(needs: Iterable[Need], environment: Mapping[str, str]) -> str:
    """The keys of services that jobs need, each with whether its variable is set."""
    names = sorted({name for need in needs for name in need.keys})
    return ", ".join(f"${name} ({'set' if environment.get(name) else 'not set'})" for name in names)


def models_text(needs: Iterable[Need], parameters: Mapping[str, float]) -> str:
    """The models that must be had, with the bytes of their weights in bfloat16."""
    names = sorted({name for need in needs for name in need.models})
    texts = []
    for name in names:
        size = parameters.get(name)
        texts.append(f"{name} ({size_text(round(2e9 * size))})" if size else name)
    return ", ".join(texts)
