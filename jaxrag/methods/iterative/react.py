"""ReAct (Yao et al. 2023): thoughts, actions and observations take turns until an action answers.

A step is one generation, a thought and an action. ``Search[entity]`` shows the first sentences of
the best passage; ``Lookup[string]`` the next sentence of the passage found last that holds the
string; ``Finish[answer]`` ends. Everything a model may write has a defined effect:

- No action in it: the action alone is asked for once more, after the thought (counted as
  "repaired"). Again none: the observation says which actions there are ("invalid").
- An action that was there before: the observation says so and nothing is searched ("repeats"); so
  many of them (2) end the loop. A lookup counts as the same only once it has no more results.
- Too long a text: the oldest observations give way to a mark, then the oldest steps ("dropped").
- After ``max_steps`` the answer is empty, as in the original, or read from what was found.

What differs from the original: it searches Wikipedia by title, here an index is searched by
meaning, and a title that has to fit is a setting; and it asks on after an action that it repeats.

Source: docs/methods.md, "ReAct".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

from jaxrag.core.checks import check_limits
from jaxrag.data import question_kinds
from jaxrag.methods.iterative.actions import (
    Action,
    Page,
    Step,
    lookup,
    one_line,
    read_action,
    shortened,
)
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts, tasks
from jaxrag.steps.candidates import search
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.types import Answer, Generation, InputError, Passage, Question

OnLimit = Literal["empty", "answer"]
Found = Literal["rank", "title"]

_HOW = "Invalid action. Use Search[entity], Lookup[string] or Finish[answer]."


@dataclasses.dataclass(frozen=True)
class Pages:
    """What a search shows.

    Attributes:
      n: passages of a search.
      show: of them in the observation, best first.
      sentences: first sentences shown of each; 0 is all.
      by: "rank": the best passages are found, whatever they are. "title": only those of the
        searched title, as in the original; without one the titles of all are told as similar.
    """

    n: int = 5
    show: int = 1
    sentences: int = 5
    by: Found = "rank"

    def __post_init__(self) -> None:
        check_limits(**{"pages.n": self.n, "pages.show": self.show})
        if self.sentences < 0 or self.by not in get_args(Found):
            raise InputError(
                f"pages.sentences is {self.sentences} and pages.by {self.by!r}: 0 (all) or more, "
                f"and {' or '.join(get_args(Found))}."
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """As for HotpotQA in the paper.

    Attributes:
      max_steps: most steps.
      step_tokens: most new tokens of a thought and its action.
      pages: what a search shows.
      repeats: how many actions that were there before end the loop.
      on_limit: the end without an answer: "empty", as in the original, or "answer", which asks
        for it directly, from the passages that were shown.
      characters: most of the steps so far where the model does not tell its tokenizer; where it
        does, they may fill its room.
      reader: how the model is asked; roles "react" and "react_action", and for "answer" those of
        the question's kind.
      closed_tokens: most new tokens of a closed question's answer, for "answer".
      by: what answers a closed question, for "answer"; see `kinds.By`.
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
        if self.on_limit not in get_args(OnLimit):
            allowed = ", ".join(get_args(OnLimit))
            raise InputError(f"on_limit is {self.on_limit!r}; allowed: {allowed}.")

    @property
    def needs(self) -> Needs:
        """It searches, and may answer from passages."""
        return Needs(search=True) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Takes steps until one finishes."""
        state = _State({"steps": []})
        ended, reply, finish = "limit", None, None
        for number in range(1, self.max_steps + 1):
            thought, action, reply, raw = await _think(number, question, tools, self, state)
            if action is not None and action.name == "finish":
                finish, ended = action.argument, "finish"
                _record(state, thought, str(action), "", raw)
                break
            said = str(action) if action else one_line(reply.text)
            observation = await _act(action, said, tools, self.pages, state)
            _record(state, thought, said, observation, raw)
            if state.counts["repeats"] >= self.repeats:
                ended = "repeated"
                break
        assert reply is not None  # max_steps is at least 1
        trace = state.trace
        trace["loop"] = {"steps": len(trace["steps"]), "end": ended, **state.counts}
        if state.shown:
            steps.record_selected(tuple(state.shown), tools, trace)
        return await _end(question, finish, reply, tools, self, state)


@dataclasses.dataclass
class _State:
    """A question on its way."""

    trace: steps.Trace
    past: list[Step] = dataclasses.field(default_factory=list)
    page: Page = Page()
    done: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    shown: dict[int, None] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("repaired", "invalid", "repeats", "dropped"), 0)
    )


async def _think(
    number: int, question: Question, tools: Tools, config: Config, state: _State
) -> tuple[str, Action | None, steps.Reply, list[str]]:
    """A thought and an action, which is asked for again where there is none; all that was said."""
    reply = await _ask("react", number, question, tools, config, state)
    raw, (thought, action) = [reply.raw], read_action(reply.text)
    if action is None:
        state.counts["repaired"] += 1
        thought = thought or "I need an action."
        reply = await _ask("react_action", number, question, tools, config, state, thought=thought)
        raw, action = [*raw, reply.raw], read_action(reply.text)[1]
    return thought, action, reply, raw


async def _ask(
    role: str,
    number: int,
    question: Question,
    tools: Tools,
    config: Config,
    state: _State,
    **fields: str,
) -> steps.Reply:
    """Asks with as much of the steps so far as there is room for."""
    reader = dataclasses.replace(config.reader, answer_tokens=config.step_tokens)
    template = prompts.load(reader.prompts).role(role)
    told = {"question": loops.told(question), "step": str(number), **fields}

    def fits(shown: str) -> bool:
        prompt = template.prompt(**told, scratchpad=shown)
        try:
            return tools.llm.room(prompt, max_new_tokens=config.step_tokens) >= 0
        except InputError:  # the model does not tell
            return len(shown) <= config.characters

    candidates = enumerate(shortened(state.past))
    dropped, shown = next(
        ((count, text) for count, text in candidates if fits(text)), (2 * len(state.past), "")
    )
    state.counts["dropped"] = max(state.counts["dropped"], dropped)
    return await steps.ask(role, question, tools.llm, reader, **told, scratchpad=shown)


async def _act(action: Action | None, said: str, tools: Tools, pages: Pages, state: _State) -> str:
    """What is observed after an action."""
    key = (
        action.name if action else "invalid",
        word_key(action.argument if action else said),
    )
    if action is not None and action.name == "lookup":
        key = (f"lookup after {len(state.trace.get('searches', ()))} searches", key[1])
        found, state.page = lookup(state.page, action.argument)
        if found is not None:
            return found
    if key in state.done:
        state.counts["repeats"] += 1
        return f"This was action {state.done[key]} already; take another one."
    state.done[key] = len(state.past) + 1
    if action is None or not action.argument:
        state.counts["invalid"] += 1
        return _HOW
    if action.name == "lookup":
        return "No more results."
    return await _search(action.argument, tools, pages, state)


async def _search(entity: str, tools: Tools, pages: Pages, state: _State) -> str:
    """The first sentences of what is found; it becomes the page of later lookups."""
    path = f"step {len(state.past) + 1}"
    ranking = await search(path, entity, pages.n, tools, state.trace)
    passages = tools.retriever.passages(ranking.ids)
    found = [
        (row, passage)
        for row, passage in zip(ranking.ids, passages, strict=True)
        if pages.by == "rank" or word_key(passage.title) == word_key(entity)
    ][: pages.show]
    if not found:
        titles = dict.fromkeys(passage.title for passage in passages if passage.title)
        similar = f" Similar: {', '.join(titles)}." if titles else ""
        return f"Could not find {entity}.{similar}"
    state.shown.update(dict.fromkeys(row for row, _ in found))
    state.page = Page(tuple(one for _, passage in found for one in sentences(passage.text)))
    return " ".join(_beginning(passage, pages.sentences) for _, passage in found)


def _beginning(passage: Passage, count: int) -> str:
    """The title and the first sentences of a passage, on one line."""
    text = " ".join(sentences(passage.text)[: count or None])
    return f"{passage.title}: {text}" if passage.title else text


def _record(state: _State, thought: str, action: str, observation: str, raw: Sequence[str]) -> None:
    state.past.append(Step(thought, action, observation))
    record: dict[str, Any] = {"thought": thought, "action": action, "observation": observation}
    state.trace["steps"].append(record | {"raw": list(raw)})


async def _end(
    question: Question,
    finish: str | None,
    last: steps.Reply,
    tools: Tools,
    config: Config,
    state: _State,
) -> Answer:
    """The answer: what the action finished with, nothing, or what is read from the passages."""
    trace = state.trace
    if finish is None and config.on_limit == "answer":
        rows = tuple(state.shown)
        reply = (
            await tasks.answer_from_passages(question, rows, tools, config, trace)
            if rows
            else await tasks.answer_directly(question, tools, config, trace)
        )
        return Answer(question.id, reply.text, trace)
    template = prompts.load(config.reader.prompts).role(kinds.asked_role(question))
    text = kinds.read(finish or "", question, template)
    said = last.generation if finish is not None else Generation("", (), (), "length", 0)
    u = steps.mean_nll(said, config.reader.fidelity)
    role = question_kinds.role_of(question)
    trace["task"] = "open" if role == "context" else role
    trace["answer"] = {**steps.Reply(text, said.text, u, said).record(), "junk": finish is None}
    kinds.note_option(text, question, trace)
    return Answer(question.id, text, trace)
