"""ReAct's text (Yao et al. 2023): actions read out of what a model writes, steps shown to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxrag.text.sentences import word_key

_NAME = r"\b(search|lookup|finish)[ \t]*\[([^\n]*)"
_LABELLED = re.compile(rf"\baction\s*\d*\s*:\s*{_NAME}", re.I)
_BARE = re.compile(_NAME, re.I)
_LABEL = re.compile(r"^\s*thought\s*\d*\s*:\s*", re.I)
_ACTION_LABEL = re.compile(r"\n?\s*action\s*\d*\s*:\s*.*\Z", re.I | re.S)
_LEFT_OUT = "(left out)"


class Action(NamedTuple):
    """What the model wants: "search", "lookup" or "finish", and with what."""

    name: str
    argument: str

    def __str__(self) -> str:
        return f"{self.name.capitalize()}[{self.argument}]"


class Step(NamedTuple):
    """A thought, an action (or what stood for one), and what came of it."""

    thought: str
    action: str
    observation: str


class Page(NamedTuple):
    """Sentences of what was found last, what was looked up there, and how often."""

    sentences: tuple[str, ...] = ()
    keyword: str = ""
    looked: int = 0


def lookup(page: Page, keyword: str) -> tuple[str | None, Page]:
    """The next sentence of a page that holds the keyword; None where there is no more."""
    looked = page.looked if word_key(keyword) == page.keyword else 0
    wanted = keyword.casefold()
    held = [one for one in page.sentences if wanted and wanted in one.casefold()]
    after = page._replace(keyword=word_key(keyword), looked=min(looked + 1, len(held)))
    if looked >= len(held):
        return None, after
    return f"(Result {looked + 1} / {len(held)}) {held[looked]}", after


def read_action(text: str) -> tuple[str, Action | None]:
    """The thought, and the first action, of what a model wrote; None where there is no action.

    An action that "Action:" stands before goes first. It ends with the bracket that closes it or,
    where it was cut before that, with its line.
    """
    found = _LABELLED.search(text) or _BARE.search(text)
    thought = text[: found.start()] if found else text
    thought = " ".join(_LABEL.sub("", _ACTION_LABEL.sub("", thought)).split())
    if not found:
        return thought, None
    return thought, Action(found.group(1).lower(), _inside(found.group(2)).strip())


def _inside(text: str) -> str:
    """A text up to the bracket that closes one opened before it; all of it where none does."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth == 0:
            return text[:place]
    return text


def shortened(past: Sequence[Step]) -> list[str]:
    """The steps as text, whole, and then each time with one thing less.

    First observations give way to a mark, the oldest first, then whole steps go, the oldest first.
    """
    count = len(past)
    marked = [[step._replace(observation=_LEFT_OUT) for step in past[:n]] for n in range(count + 1)]
    less = [_text([*marked[n], *past[n:]]) for n in range(count + 1)]
    return less + [_text(marked[count][n:], first=n + 1) for n in range(1, count + 1)]


def _text(past: Sequence[Step], first: int = 1) -> str:
    """Each step's three lines; "" for none."""
    numbered = zip(itertools.count(first), past, strict=False)
    return "".join(
        f"Thought {n}: {step.thought}\nAction {n}: {step.action}\n"
        f"Observation {n}: {step.observation}\n"
        for n, step in numbered
    )


def one_line(text: str) -> str:
    """What was written instead of an action, as the next prompts show it."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return " ".join(line.split())
