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

Source and differences from the original: docs/methods, "ReAct".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.methods.iterative.actions import (
    Action,
    Page,
    Step,
    first_line,
    history_texts,
    lookup,
    read_action,
)
from jaxrag.steps import loops
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.text.sentences import sentences, word_key
from jaxrag.types import InputError, Passage

OnLimit = Literal["empty", "answer"]
Found = Literal["rank", "title"]

_INVALID = "Invalid action. Use Search[entity], Lookup[string] or Finish[answer]."


@dataclasses.dataclass(frozen=True)
class Pages:
    """The passages that a search shows in its observation.

    Attributes:
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
        check_range(**{"pages.sentences": self.sentences})
        check_choices(self, by=Found)


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings for HotpotQA.

    Attributes:
      repeats: how many repeated actions end the loop.
      on_limit: the answer if the loop ends without one: "empty", as in the original; "answer" asks
        for it, from the passages that were shown.
      characters: most characters of the history, for a model that does not give its tokenizer;
        otherwise the model's context limits it.
      reader: prompts and decoding; roles "react" and "react_action", and for "answer" those of
        the question's kind.
    """

    name = "react"
    needs = Needs(search=True)

    max_steps: int = 7
    step_tokens: int = 100
    pages: Pages = Pages()
    repeats: int = 2
    on_limit: OnLimit = "empty"
    characters: int = 12_000
    reader: Reader = Reader(prompts="iterative")

    def __post_init__(self) -> None:
        limits = ("max_steps", "step_tokens", "repeats", "characters")
        check_limits(**{name: getattr(self, name) for name in limits})
        check_choices(self, on_limit=OnLimit)

    async def answer(self, episode: Episode) -> Reply:
        """Takes steps until an action finishes."""
        state = _State(episode, self)
        end, finish = "limit", None
        while len(state.history) < self.max_steps:
            thought, action, raw = await state.think()
            if action is not None and action.name == "finish":
                end, finish = "finish", action.argument
                state.add(Step(thought, str(action), ""), raw)
                break
            written = str(action) if action else first_line(state.last.text)
            observation = await state.act(action, written)
            state.add(Step(thought, written, observation), raw)
            if state.counts["repeats"] >= self.repeats:
                end = "repeated"
                break
        loop = {"steps": len(state.records), "end": end, **state.counts}
        episode.note(steps=state.records, loop=loop)
        if finish is None and self.on_limit == "answer":
            return await episode.answer(state.shown or None)
        if finish is None:
            return episode.finish("", junk=True, read=state.shown or None)
        last = state.last.generation
        return episode.finish(finish, raw=last.text, generation=last, read=state.shown or None)


@dataclasses.dataclass
class _State:
    """History of an episode's steps, and the transitions of a step."""

    episode: Episode
    config: Config
    history: list[Step] = dataclasses.field(default_factory=list)
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    page: Page = Page()
    searches: int = 0
    done: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    shown: Pool = Pool()
    counts: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(("repaired", "invalid", "repeats", "dropped"), 0)
    )
    last: Reply = dataclasses.field(init=False)

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

    async def _ask(self, role: str, **fields: Any) -> None:
        """Generates from as much of the history as fits into the model's context."""
        episode, tokens = self.episode, self.config.step_tokens
        fields |= {"question": loops.with_choices(episode.question), "step": str(self.number)}

        def fits(history: str) -> bool:
            prompt, _ = episode.prompt(role, **fields, scratchpad=history)
            try:
                return episode.room(prompt, limit=tokens) >= 0
            except InputError:  # the model does not give its tokenizer
                return len(history) <= self.config.characters

        texts = enumerate(history_texts(self.history))
        dropped, history = next(
            ((count, text) for count, text in texts if fits(text)), (2 * len(self.history), "")
        )
        self.counts["dropped"] = max(self.counts["dropped"], dropped)
        self.last = await episode.ask(role, limit=tokens, **fields, scratchpad=history)

    async def act(self, action: Action | None, written: str) -> str:
        """The observation after an action, or after a text without one."""
        name, argument = action or ("invalid", written)
        key = (name, word_key(argument))
        if name == "lookup":
            key = (f"lookup after {self.searches} searches", key[1])
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
        pages, self.searches = self.config.pages, self.searches + 1
        pool = await self.episode.search(entity, pages.n, path=f"step {self.number}")
        passages = self.episode.passages(pool)
        positions = [
            number
            for number, passage in enumerate(passages)
            if pages.by == "rank" or word_key(passage.title) == word_key(entity)
        ][: pages.show]
        if not positions:
            titles = dict.fromkeys(passage.title for passage in passages if passage.title)
            similar = f" Similar: {', '.join(titles)}." if titles else ""
            return f"Could not find {entity}.{similar}"
        shown = [passages[number] for number in positions]
        self.shown = self.shown.union(pool.at(positions))
        self.page = Page(tuple(line for passage in shown for line in sentences(passage.text)))
        return " ".join(_beginning(passage, pages.sentences) for passage in shown)

    def add(self, step: Step, raw: list[str]) -> None:
        """Adds a step to the history and to the records of the trace."""
        self.history.append(step)
        self.records.append({**step._asdict(), "raw": raw})


def _beginning(passage: Passage, count: int) -> str:
    """The title and the first sentences of a passage, on one line."""
    text = " ".join(sentences(passage.text)[: count or None])
    return f"{passage.title}: {text}" if passage.title else text
