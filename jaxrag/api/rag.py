"""A method with its model and index, answering single questions from Python."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from jaxrag.core.file_states import one_start
from jaxrag.core.hashing import digest
from jaxrag.core.printable import html_text, printable
from jaxrag.core.store import Store, store_path
from jaxrag.data.documents import question_id, write_folder
from jaxrag.data.folder import Folder
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.report.trace import plain, trace_html, trace_steps, trace_text
from jaxrag.evaluation.summary import shown_name
from jaxrag.runs.config_file import load as load_config
from jaxrag.runs.edits import edited
from jaxrag.runs.needs import check_needs
from jaxrag.runs.parts import load_tools, open_index
from jaxrag.runs.run import Run
from jaxrag.steps.episode import answer_question
from jaxrag.steps.tools import RetrieverTool, Tools
from jaxrag.types import InputError, Passage, Question


@dataclasses.dataclass(frozen=True)
class TracedAnswer:
    """An answer with its trace: HTML in a notebook, text in a terminal.

    Attributes:
      question: the question.
      text: the answer.
      trace: how it was found, as plain JSON.
      cost: calls of the model, tokens and searches.
      passages: the passages that the trace names, by id.
    """

    question: Question
    text: str
    trace: Mapping[str, Any]
    cost: Mapping[str, int]
    passages: Mapping[str, Passage]

    def __rich__(self) -> Text:
        """The trace in colours."""
        return trace_text(self.question.text, self._steps, self.cost)

    def __str__(self) -> str:
        return plain(self.__rich__())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return trace_html(self.question.text, self._steps, self.cost)

    @property
    def _steps(self) -> list[Any]:
        return trace_steps(self.trace, self.passages, self.text)


@dataclasses.dataclass(frozen=True)
class FoundPassages:
    """Passages found for a text, best first, with the index's scores."""

    query: str
    passages: tuple[Passage, ...]
    scores: tuple[float, ...]

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    def __len__(self) -> int:
        return len(self.passages)

    def __str__(self) -> str:
        return "\n".join(
            f"{score:.3f}  {printable(p.title or p.id)}: {printable(p.text)[:160]}"
            for p, score in zip(self.passages, self.scores, strict=True)
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{score:.3f}</td><td>{html_text(p.title or p.id)}</td>"
            f'<td style="text-align:left">{html_text(p.text)}</td></tr>'
            for p, score in zip(self.passages, self.scores, strict=True)
        )
        head = "<tr><th>score</th><th>title</th><th>text</th></tr>"
        return f'<table class="tex2jax_ignore mathjax_ignore">{head}{rows}</table>'


class Rag:
    """A method with its model and index.

    Models and index are loaded at the first question, and again at a later one if their files have
    changed. Results are kept in the run's store, so the same question costs nothing the second
    time. Calls need no event loop and work inside a running one, such as a notebook's.

    Examples:
      >>> rag = jaxrag.Rag(jaxrag.load("configs/dtr.py:dtr@tiny").settings)
      >>> rag.answer("What is the currency of the Bahamas?").trace["gate"]["name"]
      'nll'
    """

    def __init__(self, settings: Run) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        model = shown_name(self.settings.model.name)
        index = shown_name(self.settings.index.name) if self.settings.index else "no index"
        return f"<Rag {self.settings.name}: {model}, {index}>"

    def changed(self, changes: Mapping[str, Any]) -> Rag:
        """A copy with other settings, by dotted names as on the command line.

        Examples:
          >>> rag = jaxrag.load("configs/dtr.py:dtr@tiny")
          >>> rag.changed({"method.gate.threshold": 0.5}).settings.method.gate.threshold
          0.5
        """
        return Rag(edited(self.settings, changes))

    def answer(self, question: str | Question) -> TracedAnswer:
        """Answers one question; errors of the model or the index are raised.

        Examples:
          >>> rag = jaxrag.load("configs/dtr.py:dtr@tiny")
          >>> answer = rag.answer("What is the currency of the Bahamas?")
          >>> print(answer)  # doctest: +ELLIPSIS
          What is the currency of the Bahamas?
          <BLANKLINE>
          1. Direct answer, uncertainty u = ... nats a token
          ...
        """
        return self.answers([question])[0]

    @one_start()
    def answers(self, questions: Sequence[str | Question]) -> list[TracedAnswer]:
        """Answers many questions in large batches, in their order.

        Raises the first error of a question; results of the others are kept in the store.

        Examples:
          >>> rag = jaxrag.load("configs/dtr.py:dtr@tiny")
          >>> len(rag.answers(["Where is Nassau?", "What is the capital of Peru?"]))
          2
        """
        if isinstance(questions, str):
            raise InputError("answers() takes a list of questions: use answer() for one.")
        asked = [_question(question, number) for number, question in enumerate(questions)]
        check_needs(self.settings)
        run = self.settings
        tools, _ = load_tools(run, Path(run.cache))
        starts = (
            (number, functools.partial(answer_question, run.method, question, tools))
            for number, question in enumerate(asked)
        )
        with contextlib.closing(Store(store_path(run.store, run.cache))) as store:
            ended = sorted(Scheduler(store, live=run.live).run(starts), key=lambda one: one.id)
        for outcome in ended:
            if outcome.error is not None:
                raise outcome.error
        return [
            self._traced(question, one, tools) for question, one in zip(asked, ended, strict=True)
        ]

    def _traced(self, question: Question, ended: Any, tools: Tools) -> TracedAnswer:
        trace = ended.value.trace
        names = {name for search in trace.get("searches", ()) for name in search["ids"]}
        names |= set((trace.get("selected") or {}).get("ids", ()))
        needed = self.settings.needs.search and names
        found = tools.retriever.corpus.find(sorted(names)) if needed else []
        passages = {passage.id: passage for passage in found}
        return TracedAnswer(question, ended.value.text, trace, ended.cost, passages)

    @one_start()
    def search(self, text: str, k: int = 5) -> FoundPassages:
        """The ``k`` best passages of the index for a text.

        Examples:
          >>> rag = jaxrag.load("configs/dtr.py:dtr@tiny")
          >>> len(rag.search("currency of the Bahamas", k=3))
          3
        """
        if k < 1:
            raise InputError(f"k is {k}; it must be at least 1.")
        retriever = open_index(self.settings, Path(self.settings.cache))
        tool = RetrieverTool(retriever)
        run = self.settings
        with contextlib.closing(Store(store_path(run.store, run.cache))) as store:
            (ended,) = Scheduler(store).run([("", functools.partial(tool.search, text, k))])
        if ended.error is not None:
            raise ended.error
        passages = tuple(retriever.passages.get(ended.value.ids))
        return FoundPassages(text, passages, ended.value.scores)


def _question(question: str | Question, number: int) -> Question:
    if isinstance(question, Question):
        return question
    if not question.strip():
        raise InputError(f"question {number + 1} is empty.")
    return Question(f"asked-{number + 1}", question, ())


def load(
    source: str | Run | Rag,
    changes: Mapping[str, Any] | None = None,
    *,
    passages: Iterable[str | Passage] = (),
    questions: Sequence[str | Question] = (),
) -> Rag:
    """A method with its model and index, from a config file or from settings.

    Nothing is loaded before the first question.

    Examples:
      >>> rag = jaxrag.load("configs/dtr.py:dtr@tiny", {"method.gate.threshold": 0.5})
      >>> rag.settings.method.gate.threshold
      0.5
      >>> notes = ["Bees live in hives.", "Honey is made in June."]
      >>> bees = jaxrag.load("configs/dtr.py:dtr@tiny", passages=notes)
      >>> bees.search("Where do bees live?", k=1).passages[0].text
      'Bees live in hives.'

    Args:
      source: FILE:VARIANT of a config, settings, or a loaded method.
      changes: new values of settings by their dotted names, as on the command line: texts, numbers,
        None, or dataclasses.
      passages: in place of the data: texts, or `jaxrag.types.Passage` with ids and titles. They
        are written to a folder in the cache that is named by their content.
      questions: for `jaxrag.run`, beside passages: `jaxrag.Question` with gold answers.

    InputError for no such file, variant or setting, or a config that describes no run of a method.
    """
    if isinstance(source, str):
        settings = load_config(source, kind=Run)
    else:
        settings = source.settings if isinstance(source, Rag) else source
    if not isinstance(settings, Run):
        raise InputError(f"load takes FILE:VARIANT of a config or a Run, not {settings!r}.")
    settings = edited(settings, changes or {})
    given = [_passage(passage) for passage in passages]
    if questions and not given:
        raise InputError("questions come with passages: give both, or ask rag.answers(questions).")
    if given:
        settings = dataclasses.replace(settings, data=_given(settings, given, questions), limit=0)
    return Rag(settings)


def _given(run: Run, passages: list[Passage], questions: Sequence[str | Question]) -> Folder:
    """The folder of given passages and questions, which is named by their content."""
    asked = [q if isinstance(q, Question) else Question(question_id(q), q, ()) for q in questions]
    folder = Path(run.cache) / "given" / digest(repr(passages), repr(asked))[:16]
    if not folder.exists():
        write_folder(folder, passages, asked)
    return Folder(str(folder))


def _passage(passage: str | Passage) -> Passage:
    name = f"p{digest(passage)[:8]}" if isinstance(passage, str) else ""
    return passage if isinstance(passage, Passage) else Passage(name, "", passage)


def search(source: str | Run | Rag, text: str, k: int = 5) -> FoundPassages:
    """The ``k`` best passages for a text, in the index of a config, of settings or of a method.

    Examples:
      >>> found = jaxrag.search("configs/dtr.py:dtr@tiny", "currency of the Bahamas", k=2)
      >>> [type(passage).__name__ for passage in found]
      ['Passage', 'Passage']
    """
    return load(source).search(text, k)
