"""ReAct (Yao et al. 2023): thoughts, actions and observations alternate until an action answers.

Each step is one generation, a thought and an action, and an observation:

- ``Search[entity]`` shows the first sentences of the best passage.
- ``Lookup[string]`` shows the next sentence of the last passage found that contains the string.
- ``Finish[answer]`` ends.

Any other text has a defined effect, too:

- Without an action, the action alone is asked for once more, after the thought ("repaired"). If
  there is none again, the observation names the actions ("invalid").
- A repeated action is not executed; the observation says so ("repeats"). ``repeats`` of them end
  the loop. A lookup counts as repeated once it has no more results.
- In too long a history, observations are replaced by a mark, the oldest first, then steps are left
  out, the oldest first ("dropped").
- After ``max_steps`` the answer is empty, as in the original, or read from what was found.

Differences from the original: it searches Wikipedia by title; here an index is searched, and a
title match is a setting. It continues after a repeated action.

Source: docs/methods.md, "ReAct".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.methods.iterative.actions import (
    Action,
    Page,
    Step,
    first_line,
    history_texts,
    lookup,
    read_action,
)
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts, tasks
from jaxrag.steps.candidates import search
from jaxrag.steps.tools import Needs, Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.types import Answer, Generation, InputError, Passage, Question

OnLimit = Literal["empty", "answer"]
Found = Literal["rank", "title"]

_INVALID = "Invalid action. Use Search[entity], Lookup[string] or Finish[answer]."


@dataclasses.dataclass(frozen=True)
class Pages:
    """The passages that a search shows in its observation.
    Attributes:
      n: passages of a search.
      show: how many of them the observation shows, best first.
      sentences: first sentences shown of each; 0 shows all.
      by: "rank" shows the best passages; "title", as in the original, those whose title is the
        entity, or the titles of all as similar ones.
    """

    n: int = 5
    show: int = 1
    sentences: int = 5
    by: Found = "rank"

    def __post_init__(self) -> None:
        check_limits(**{"pages.n": self.n, "pages.show": self.show})
        check_choices(self, by=Found)
        if self.sentences < 0:
            raise InputError(f"pages.sentences is {self.sentences}; it must be 0 (all) or more.")


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings for HotpotQA.

    Attributes:
      max_steps: most steps.
      step_tokens: most new tokens of a thought and its action.
      pages: passages that a search shows.
      repeats: how many repeated actions end the loop.
      on_limit: the answer if the loop ends without one: "empty", as in the original; "answer" asks
        for it, from the passages that were shown.
      characters: most characters of the history, for a model that does not give its tokenizer;
        otherwise the model's context limits it.
      reader: prompts and decoding; roles "react" and "react_action", and for "answer" those of
        the question's kind.
      closed_tokens: most new tokens of a closed question's answer, for "answer".
      by: how a closed question is answered, for "answer"; see `kinds.By`.
    """

    name = "react"

    max_steps: int = 7
    step_tokens: int = 100
    pages: Pages = Pages()
    repeats: int = 2
    on_limit: OnLimit = "empty"
    characters: int = 12_000
    reader: steps.Reader = steps.Reader(prompts="iterative")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        limits = ("max_steps", "step_tokens", "repeats", "characters")
        check_limits(**{name: getattr(self, name) for name in limits})
        check_choices(self, on_limit=OnLimit)

    @property
    def needs(self) -> Needs:
        """An index, and the needs of answering."""
        return Needs(search=True) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Takes steps until an action finishes."""
        episode = _Episode(question, tools, self)
        end, finish = "limit", None
        while len(episode.history) < self.max_steps:
            thought, action, raw = await episode.think()
            if action is not None and action.name == "finish":
                end, finish = "finish", action.argument
                episode.record(Step(thought, str(action), ""), raw)
                break
            written = str(action) if action else first_line(episode.last.text)
            observation = await episode.act(action, written)
            episode.record(Step(thought, written, observation), raw)
            if episode.counts["repeats"] >= self.repeats:
                end = "repeated"
                break
        trace = episode.trace
        trace["loop"] = {"steps": len(trace["steps"]), "end": end, **episode.counts}
        if episode.shown:
            steps.record_selected(tuple(episode.shown), tools, trace)
        if finish is None and self.on_limit == "answer":
            rows = tuple(episode.shown)
            reply = (
                await tasks.answer_from_passages(question, rows, tools, self, trace)
                if rows
                else await tasks.answer_directly(question, tools, self, trace)
            )
            return Answer(question.id, reply.text, trace)
        return Answer(question.id, episode.conclude(finish), trace)


@dataclasses.dataclass
class _Episode:
    """State of a question, and the transitions of a step."""

    question: Question
    tools: Tools
    config: Config
    trace: steps.Trace = dataclasses.field(default_factory=lambda: {"steps": []})
    history: list[Step] = dataclasses.field(default_factory=list)
    page: Page = Page()
    done: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    shown: dict[int, None] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("repaired", "invalid", "repeats", "dropped"), 0)
    )
    last: steps.Reply = dataclasses.field(init=False)

    @property
    def number(self) -> int:
        """Number of the current step, from 1."""
        return len(self.history) + 1

    async def think(self) -> tuple[str, Action | None, list[str]]:
        """A thought, an action (requested again if missing), and all texts generated."""
        await self._ask("react")
        raw, (thought, action) = [self.last.raw], read_action(self.last.text)
        if action is None:
            self.counts["repaired"] += 1
            thought = thought or "I need an action."
            await self._ask("react_action", thought=thought)
            raw, action = [*raw, self.last.raw], read_action(self.last.text)[1]
        return thought, action, raw

    async def _ask(self, role: str, **fields: str) -> None:
        """Generates from as much of the history as fits into the model's context."""
        tokens = self.config.step_tokens
        reader = dataclasses.replace(self.config.reader, answer_tokens=tokens)
        template = prompts.load(reader.prompts).role(role)
        fields |= {"question": loops.with_choices(self.question), "step": str(self.number)}
        llm = self.tools.llm

        def fits(history: str) -> bool:
            try:
                prompt = template.prompt(**fields, scratchpad=history)
                return llm.room(prompt, max_new_tokens=tokens) >= 0
            except InputError:  # the model does not give its tokenizer
                return len(history) <= self.config.characters

        texts = enumerate(history_texts(self.history))
        dropped, history = next(
            ((count, text) for count, text in texts if fits(text)), (2 * len(self.history), "")
        )
        self.counts["dropped"] = max(self.counts["dropped"], dropped)
        self.last = await steps.ask(role, self.question, llm, reader, **fields, scratchpad=history)

    async def act(self, action: Action | None, written: str) -> str:
        """The observation after an action, or after a text without one."""
        name, argument = action or ("invalid", written)
        key = (name, word_key(argument))
        if name == "lookup":
            key = (f"lookup after {len(self.trace.get('searches', ()))} searches", key[1])
            sentence, self.page = lookup(self.page, argument)
            if sentence is not None:
                return sentence
        if key in self.done:
            self.counts["repeats"] += 1
            return f"This was action {self.done[key]} already; take another one."
        self.done[key] = self.number
        if action is None or not argument:
            self.counts["invalid"] += 1
            return _INVALID
        if name == "lookup":
            return "No more results."
        return await self._search(argument)

    async def _search(self, entity: str) -> str:
        """The first sentences of the passages found, which become the page of later lookups."""
        pages, retriever = self.config.pages, self.tools.retriever
        ranking = await search(f"step {self.number}", entity, pages.n, self.tools, self.trace)
        passages = retriever.passages(ranking.ids)
        found = [
            (row, passage)
            for row, passage in zip(ranking.ids, passages, strict=True)
            if pages.by == "rank" or word_key(passage.title) == word_key(entity)
        ][: pages.show]
        if not found:
            titles = dict.fromkeys(passage.title for passage in passages if passage.title)
            similar = f" Similar: {', '.join(titles)}." if titles else ""
            return f"Could not find {entity}.{similar}"
        self.shown.update(dict.fromkeys(row for row, _ in found))
        self.page = Page(tuple(one for _, passage in found for one in sentences(passage.text)))
        return " ".join(_beginning(passage, pages.sentences) for _, passage in found)

    def record(self, step: Step, raw: list[str]) -> None:
        """Adds a step to the history and the trace."""
        self.history.append(step)
        self.trace["steps"].append({**step._asdict(), "raw": raw})

    def conclude(self, finish: str | None) -> str:
        """The answer of the action that finished; empty if there was none."""
        template = prompts.load(self.config.reader.prompts).role(kinds.prompt_role(self.question))
        text = kinds.read(finish or "", self.question, template)
        empty = Generation("", (), (), "length", 0)
        made = empty if finish is None else self.last.generation
        u = steps.mean_nll(made, self.config.reader)
        record: dict[str, Any] = steps.Reply(text, made.text, u, made).record()
        self.trace["task"] = kinds.task_of(self.question)
        self.trace["answer"] = {**record, "junk": finish is None}
        kinds.note_option(text, self.question, self.trace)
        return text


def _beginning(passage: Passage, count: int) -> str:
    """The title and the first sentences of a passage, on one line."""
    text = " ".join(sentences(passage.text)[: count or None])
    return f"{passage.title}: {text}" if passage.title else text
