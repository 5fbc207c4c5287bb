"""An episode: one question, from the moment a method gets it to its answer.

A method asks, searches, selects and answers through it, and it records all of this in the trace.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from jaxrag.data import question_kinds
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import Request, gather
from jaxrag.steps import kinds, prompts
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.prompts import truncation
from jaxrag.steps.reader import NO_ANSWER, NO_TEXT, Reader, Reply, mean_nll
from jaxrag.steps.tools import Helper, HelperTool, LanguageModelTool, ModelHelper, Tools
from jaxrag.text.model_output import has_answer_tag, parse_answer
from jaxrag.trace import GateRecord, SearchRecord, SelectedRecord, Trace, Truncated
from jaxrag.types import Answer, Generation, InputError, Passage, Prompt, Question

Loaded = TypeVar("Loaded", bound=HelperTool)

_LONG = ("pseudo_context", "rationale")  # roles whose limit is Reader.passage_tokens


@dataclasses.dataclass(frozen=True)
class Pool:
    """Passages in an order: found by searches, or selected to be read.

    ``rows`` are row numbers in the corpus, each once, but in a mix that keeps duplicates
    (`jaxrag.steps.candidates.FixedMix`); ``scores`` are of the search or selector that found them.
    """

    rows: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, k: int) -> Pool:
        """The first ``k``, or all if there are fewer."""
        return Pool(self.rows[:k], self.scores[:k])

    def at(self, positions: Sequence[int]) -> Pool:
        """The passages at some positions, in that order."""
        return Pool(
            tuple(self.rows[i] for i in positions), tuple(self.scores[i] for i in positions)
        )

    def union(self, other: Pool) -> Pool:
        """These passages, then those of ``other`` that are not among them."""
        new = other.at([i for i, row in enumerate(other.rows) if row not in self.rows])
        return Pool(self.rows + new.rows, self.scores + new.scores)


class Scored(NamedTuple):
    """A selector's result.

    Attributes:
      columns: values of each candidate by name, among them the "score" that it selects by.
      kept: positions in the pool of the selected ones, best first.
      facts: what else `jaxrag.trace.SelectedRecord` holds of it.
    """

    columns: Mapping[str, Sequence[float]]
    kept: Sequence[int]
    facts: Mapping[str, Any] = {}


class Gate(Protocol):
    """Decides whether to retrieve for a question."""

    def __call__(self, episode: Episode) -> Awaitable[bool]:
        """True to retrieve; recorded by `Episode.decided`."""
        ...


class UsesPseudo(Protocol):
    """A part of a Config that may search or score by a pseudo-context."""

    @property
    def uses_pseudo(self) -> bool:
        """Whether a pseudo-context must be written first."""
        ...


class Candidates(UsesPseudo, Protocol):
    """Searches by the query and, where ``uses_pseudo``, by a pseudo-context."""

    def __call__(self, episode: Episode, query: str, pseudo: str) -> Awaitable[Pool]:
        """The passages to select from."""
        ...


class PassageSelector(UsesPseudo, Protocol):
    """Selects the passages that are read."""

    def __call__(self, episode: Episode, pool: Pool, query: str, pseudo: str) -> Awaitable[Scored]:
        """Scores the candidates."""
        ...


class Method(Protocol):
    """A method's Config: its settings as a frozen dataclass, and its algorithm."""

    @property
    def name(self) -> str:
        """Name in records and tables."""
        ...

    @property
    def reader(self) -> Reader:
        """Prompts and decoding."""
        ...

    async def answer(self, episode: Episode) -> Reply:
        """Answers the episode's question."""
        ...


class Episode:
    """One question while a method answers it.

    ``reader`` has prompts and decoding, ``trace`` what was done so far, ``concluded`` the reply
    that is recorded as the answer so far. InputError if the question's gold answer is not among its
    choices.
    """

    def __init__(self, question: Question, tools: Tools, reader: Reader, *, path: str = "") -> None:
        self.question, self.reader = question, reader
        self.trace: Trace = {"task": kinds.task_of(question)}
        self._tools, self._path = tools, path
        self._recording = self.trace  # of searches: a part's are recorded with the question
        self._direct: Reply | None = None
        self.concluded: Reply | None = None
        self._pseudo: dict[str, str] = {}
        self._shown: Pool | None = None

    # Answers

    async def direct(self) -> Reply:
        """The answer from the model's own knowledge, asked once; ``trace["direct"]``."""
        if self._direct is None:
            self._direct = await self.read(None)
            logprobs = list(self._direct.generation.logprobs)
            self.trace["direct"] = {**self._direct.record(), "logprobs": logprobs}
        return self._direct

    async def answer(self, pool: Pool | None = None) -> Reply:
        """The answer from the passages of a pool, shown in its order; without one, `direct`.

        For multiple choice its text is that of the choices that it names, for labels the label.
        """
        if pool is None:
            return self.conclude(await self.direct())
        return self.conclude(await self.read(pool), read=pool)

    def finish(
        self,
        text: str,
        *,
        raw: str = "",
        generation: Generation = NO_TEXT,
        junk: bool = False,
        read: Pool | None = None,
        role: str | prompts.Template = "",
    ) -> Reply:
        """An answer that the method has found in a text itself, such as one that an agent states.

        Args:
          text: the answer; for a closed question, a text that names one of its options.
          raw: the text that it was found in.
          generation: that of ``raw``, whose log-probabilities give u.
          junk: whether ``raw`` states no answer.
          read: the passages that the method showed to the model.
          role: the prompt whose words stand for the options; "" is that of the question's kind.
        """
        if role or question_kinds.options(self.question):
            role = role or kinds.shown_by(self.question, self._layout, directly=False)[0]
            text = kinds.read(text, self.question, self.template(role))
        u = mean_nll(generation, self.reader)
        return self.conclude(Reply(text, raw, u, generation), read=read, junk=junk)

    def conclude(
        self, reply: Reply, *, read: Pool | None = None, junk: bool | None = None
    ) -> Reply:
        """Makes a reply the answer that counts.

        ``read`` are the passages that it is based on; None are those that a selector kept or,
        without one, all that prompts showed. ``junk`` replaces the reply's own.
        """
        record = reply.record()
        if junk is not None:
            record["junk"] = junk
        if "truncated" in record:
            self.trace["truncated"] = record.pop("truncated")
        self.trace["answer"] = record
        if (option := kinds.option_record(reply.text, self.question)) is not None:
            self.trace["option"] = option
        if read is None and "selected" not in self.trace:
            read = self._shown
        if read is not None:
            self._note_read(read)
        self.concluded = reply
        return reply

    # Calls of models and index

    async def read(self, passages: Pool | Sequence[Passage] | str | None) -> Reply:
        """An answer from passages, from a text in their place, or from none; not the last word.

        Closed questions are answered as ``reader.by`` says.
        """
        question, reader, layout = self.question, self.reader, self._layout
        if reader.by != "text" and question_kinds.options(question):
            return await self._most_probable(passages)
        role, fields = kinds.shown_by(question, layout, directly=passages is None)
        # closed questions that are asked by an open role may be answered as freely as open ones
        open_role = role in ("direct", "context")
        limit = 0 if open_role else kinds.answer_limit(question, reader.closed_tokens)
        reply = await self.ask(role, passages=passages, limit=limit, **fields)
        return reply._replace(text=kinds.read(reply.text, question, layout.role(role)))

    async def ask(
        self,
        role: str | prompts.Template,
        /,
        *,
        passages: Pool | Sequence[Passage] | str | None = None,
        model: ModelSettings | None = None,
        limit: int = 0,
        temperature: float | None = None,
        seed: int = 0,
        **fields: str,
    ) -> Reply:
        """Prompts a language model and parses its answer; InputError if the prompts lack the role.

        Args:
          role: of the reader's prompts, or a prompt of the method's own.
          passages: best first, or a text in their place; cut to fit if the reader says so.
          model: a language model of the method's own; None is the run's.
          limit: most new tokens; 0 is the reader's limit.
          temperature: of sampling; None is the reader's.
          seed: of sampling.
          **fields: of the prompt, besides the question, or in its place.
        """
        reader, template = self.reader, self.template(role)
        limit = limit or (reader.passage_tokens if role in _LONG else reader.answer_tokens)
        prompt, truncated = self.prompt(
            template, passages=passages, model=model, limit=limit, **fields
        )
        generation = await self.model(model).generate(
            prompt,
            max_new_tokens=limit,
            temperature=reader.temperature if temperature is None else temperature,
            repetition_penalty=reader.repetition_penalty,
            stop=template.stop,
            seed=seed,
        )
        junk = template.parse == "tags" and not has_answer_tag(generation.text)
        text = parse_answer(generation.text, template.parse)
        u = mean_nll(generation, reader)
        return Reply(text, generation.text, u, generation, junk, truncated, prompt=prompt)

    def prompt(
        self,
        role: str | prompts.Template,
        /,
        *,
        passages: Pool | Sequence[Passage] | str | None = None,
        model: ModelSettings | None = None,
        limit: int = 0,
        **fields: str,
    ) -> tuple[Prompt, Truncated | None]:
        """The prompt that `ask` gives to the model, and how its passages were cut to fit."""
        template, llm = self.template(role), self.model(model)
        fields = {"question": kinds.question_text(self.question), **fields}
        if passages is None:
            return template.prompt(**fields), None
        if isinstance(passages, Pool):
            self._shown = (self._shown or Pool()).union(passages)
            passages = self.passages(passages)
        whole = [Passage("", "", passages)] if isinstance(passages, str) else passages

        def filled(part: Sequence[Passage]) -> Prompt:
            text = part[0].text if isinstance(passages, str) else self._layout.render(part)
            return template.prompt(**{**fields, "passages": text})

        def room(part: Sequence[Passage]) -> int:
            return llm.room(filled(part), max_new_tokens=limit)

        if not (self.reader.truncate and whole and (left := room(whole)) < 0):
            return filled(whole), None
        fitting = truncation.longest_fitting(whole, lambda part: room(part) >= 0)
        cut = room(fitting) - left
        return filled(fitting), {"passages": len(fitting), "of": len(whole), "tokens_cut": cut}

    def template(self, role: str | prompts.Template) -> prompts.Template:
        """The prompt of a role; InputError if the reader's prompts lack it."""
        return self._layout.role(role) if isinstance(role, str) else role

    def model(self, settings: ModelSettings | None = None) -> LanguageModelTool:
        """A language model for calls that `ask` does not make; None is the run's."""
        return self._tools.llm if settings is None else self.helper(ModelHelper(settings))

    def helper(self, settings: Helper[Loaded]) -> Loaded:
        """The loaded tool of settings in the Config; InputError if its `needs` lack them."""
        if settings not in self._tools.helpers:
            raise InputError(
                f"{settings} is not loaded: a method names such settings in the helpers of its "
                "needs, under the field that holds them."
            )
        return self._tools.helpers[settings]

    @property
    def inspection(self) -> InspectionTool:
        """Attentions and hidden states of the run's language model."""
        return self._tools.inspection

    async def logprobs(
        self,
        prompt: Prompt,
        continuations: Sequence[str],
        *,
        model: ModelSettings | None = None,
    ) -> tuple[float, ...]:
        """Natural-log probability of each text after a prompt, summed over its tokens."""
        llm = self.model(model)
        parts = await gather(*(llm.logprob(prompt, text) for text in continuations))
        return tuple(float(np.sum(part, dtype=np.float64)) for part in parts)

    async def option_logprobs(
        self, passages: Pool | Sequence[Passage] | str | None
    ) -> tuple[float, ...]:
        """Natural-log probability of each option of a closed question.

        Options count by their first token: true, yes, the letters (docs/methods, "R3: labels and
        draws"). Labels of a data set may begin alike ("not enough info", "not true"), so theirs are
        sums over all their tokens. ``passages`` are best first; None for the prompt without any.
        InputError if the question is open, all options have the same first token, or the prompts
        lack its role.
        """
        template, prompt, _ = self._option_prompt(passages)
        return await self._logprobs_after(prompt, template)

    async def pseudo_context(self, role: str = "pseudo_context") -> str:
        """A passage (as "rationale", reasoning) that the model writes to search by, asked once.

        If it is empty, the question takes its place; the trace shows the empty text.
        """
        if role not in self._pseudo:
            reply = await self.ask(role)
            self.trace["pseudo_context"] = reply.text
            self._pseudo[role] = reply.text or self.question.text
        return self._pseudo[role]

    async def pseudo_for(self, *parts: UsesPseudo, role: str = "pseudo_context") -> str:
        """The `pseudo_context` if one of the parts uses it; else ""."""
        return await self.pseudo_context(role) if any(part.uses_pseudo for part in parts) else ""

    async def search(self, text: str, k: int, *, path: str = "q") -> Pool:
        """The ``k`` best passages for a text; ``trace["searches"]``, in the order of the calls.

        ``path`` tells in the trace what was searched by: "q" the question, "p" a pseudo-context.
        The question's hidden passages are left out, of as many more results.
        """
        record: SearchRecord = {"path": self._path or path, "query": text}
        # before the result is known, so that concurrent searches are in the order of their calls
        searches = self._recording.setdefault("searches", [])
        searches.append(record)
        try:
            ranking = await self._tools.retriever.search(text, k + len(self.question.hidden))
        except BaseException:  # a method may go on without it
            searches[:] = [other for other in searches if other is not record]
            raise
        pool = Pool(ranking.ids, ranking.scores)
        if hidden := self.question.hidden:
            pool = pool.at([i for i, name in enumerate(self.ids(pool)) if name not in hidden])
        pool = pool.first(k)
        record["ids"], record["scores"] = self.ids(pool), list(pool.scores)
        return pool

    async def select(
        self, selector: PassageSelector, pool: Pool, query: str, pseudo: str = ""
    ) -> Pool:
        """The passages that a selector keeps, best first; ``trace["selected"]``."""
        return self.selected(await selector(self, pool, query, pseudo), pool)

    def selected(self, scored: Scored, pool: Pool) -> Pool:
        """The passages that a selection keeps of a pool, best first; ``trace["selected"]``."""
        columns, kept, facts = scored
        table = zip(self.ids(pool), *columns.values(), strict=True)
        best = Pool(pool.at(kept).rows, tuple(columns["score"][i] for i in kept))
        candidates = [dict(zip(("id", *columns), line, strict=True)) for line in table]
        self.trace["selected"] = cast(SelectedRecord, {"candidates": candidates, **facts})
        self._note_read(best)
        return best

    def embed(self, text: str) -> Request:
        """Awaits to the embedding of a text as a query, [d]; InputError for an index of texts."""
        return self._tools.retriever.embed(text)

    def vectors(self, rows: Sequence[int]) -> np.ndarray:
        """Stored embeddings of passages, float32 [n d]; InputError for an index of texts."""
        return self._tools.retriever.vectors(rows)

    def passages(self, pool: Pool) -> list[Passage]:
        """The passages of a pool, in its order."""
        return self._tools.retriever.corpus.get(pool.rows)

    def ids(self, pool: Pool) -> list[str]:
        """The ids of the passages of a pool."""
        return [passage.id for passage in self.passages(pool)] if pool else []

    def shown(self, pool: Pool) -> str:
        """The passages of a pool as the reader's prompts show them."""
        self._shown = (self._shown or Pool()).union(pool)
        return self._layout.render(self.passages(pool))

    async def rerank(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The reranker's score of each passage for a query."""
        return await self._tools.reranker.scores(query, passages)

    def room(self, prompt: Prompt, *, limit: int) -> int:
        """Free tokens beside a prompt and an answer of ``limit`` tokens; negative if too long.

        InputError if the model does not give its tokenizer.
        """
        return self._tools.llm.room(prompt, max_new_tokens=limit)

    # Parts, and the trace

    def about(self, text: str, *, path: str) -> Episode:
        """An episode about another text in the question's place, such as a sentence to look up.

        Its searches are recorded in this trace, all as ``path``; what else it records is its own.
        """
        part = self.apart(dataclasses.replace(self.question, text=text), path=path)
        part._recording = self._recording
        return part

    def apart(self, question: Question | None = None, *, path: str = "") -> Episode:
        """Another episode of this question with a trace of its own; this one records none of it."""
        return Episode(question or self.question, self._tools, self.reader, path=path)

    def decided(self, name: str, retrieve: bool, **details: Any) -> bool:
        """Records a gate's decision, ``trace["gate"]``, and returns it.

        InputError if it is not True or False, or another was recorded.
        """
        if not isinstance(retrieve, (bool, np.bool_)):
            raise InputError(f"gate {name} decided {retrieve!r}: give True or False.")
        if before := self.trace.get("gate"):
            names = f"{before['name']} and {name}"
            raise InputError(f"gates {names} decide about one question: a method has one gate.")
        record = {"name": name, "retrieve": bool(retrieve), **details}
        self.trace["gate"] = cast(GateRecord, record)
        return bool(retrieve)

    def note(self, **facts: Any) -> None:
        """Adds plain JSON of the method's own to the trace; ValueError for the episode's names."""
        if taken := facts.keys() & Trace.__annotations__.keys():
            raise ValueError(f"the episode writes {sorted(taken)} itself: choose other names.")
        cast(dict[str, Any], self.trace).update(facts)

    @property
    def _layout(self) -> prompts.PromptSet:
        return prompts.load(self.reader.prompts)

    def _note_read(self, pool: Pool) -> None:
        """Records the passages that are read; what was recorded of a selection of others goes."""
        ids = self.ids(pool)
        record = self.trace.get("selected", SelectedRecord())
        if record.get("ids", ids) != ids:
            record = SelectedRecord()
        self.trace["selected"] = {**record, "ids": ids, "scores": list(pool.scores)}

    async def _most_probable(self, passages: Pool | Sequence[Passage] | str | None) -> Reply:
        """The option with the highest log-probability; ties go to the first."""
        question = self.question
        template, prompt, truncated = self._option_prompt(passages)
        logprobs = await self._logprobs_after(prompt, template)
        if self.reader.by == "calibrated":
            empty = template.prompt(**kinds.content_free_fields(question))
            prior = await self._logprobs_after(empty, template)
            logprobs = tuple(a - b for a, b in zip(logprobs, prior, strict=True))
        best = max(range(len(logprobs)), key=logprobs.__getitem__)
        text = question_kinds.option_texts(question)[best]
        generation = Generation(text, (), (logprobs[best],), "stop", 0)
        return Reply(text, text, -logprobs[best], generation, False, truncated, logprobs)

    def _option_prompt(
        self, passages: Pool | Sequence[Passage] | str | None
    ) -> tuple[prompts.Template, Prompt, Truncated | None]:
        """The prompt whose continuations are a closed question's options."""
        question, limit = self.question, self.reader.answer_tokens
        if not question_kinds.options(question):
            raise InputError(f"Question {question.id} is open: it has no options to compare.")
        template = self.template(kinds.prompt_role(question, directly=passages is None))
        fields = kinds.fields(question)
        return template, *self.prompt(template, passages=passages, limit=limit, **fields)

    async def _logprobs_after(
        self, prompt: Prompt, template: prompts.Template
    ) -> tuple[float, ...]:
        """Log-probability of each option after a prompt."""
        question = self.question
        words = [prompts.continuation(prompt, w) for w in kinds.words(question, template)]
        if question_kinds.role_of(question) == "labels":
            return await self.logprobs(prompt, words)
        parts = await gather(*(self._tools.llm.logprob(prompt, word) for word in words))
        first = tuple(float(part[0]) for part in parts)
        if len(set(first)) == 1:
            raise InputError(
                f"Question {question.id}: all options have the same log-probability, "
                f"{first[0]:.4g}, so they must share their first token, such as a blank: use "
                "prompts that end with a line break, as r3's do."
            )
        return first


async def answer_question(method: Method, question: Question, tools: Tools) -> Answer:
    """Answers one question with a method: what it returns counts, whatever it concluded before.

    InputError if that is no `Reply`, or the method has recorded what is not plain JSON.
    """
    episode = Episode(question, tools, method.reader)
    reply: Any = await method.answer(episode)
    if not isinstance(reply, Reply):
        raise InputError(
            f"{method.name} returned {reply!r}: return what episode.answer or .finish gives."
        )
    if reply is not episode.concluded and reply is not NO_ANSWER:
        episode.conclude(reply)
    for name, value in episode.trace.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"trace[{name!r}] is not plain JSON ({error}): record numbers as float or int, "
                "no NaN and no arrays."
            ) from error
    return Answer(question.id, reply.text, cast(dict[str, Any], episode.trace))
