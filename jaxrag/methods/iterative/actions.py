"""ReAct's text (Yao et al. 2023): parses generated actions and renders the history of steps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxrag.text.sentences import word_key

_NAME = r"\b(search|lookup|finish)[ \t]*+\[([^\n]*)"
_NUMBERED = r"\s*+\d*+\s*+:"
_LABELLED = re.compile(rf"\baction{_NUMBERED}\s*+{_NAME}", re.I)
_BARE = re.compile(_NAME, re.I)
_LABEL = re.compile(rf"^\s*+thought{_NUMBERED}", re.I)
_ACTION_LABEL = re.compile(rf"action{_NUMBERED}", re.I)
_BRACKET = re.compile(r"[\[\]]")
_LEFT_OUT = "(left out)"


class Action(NamedTuple):
    """An action, "search", "lookup" or "finish", and its argument."""

    name: str
    argument: str

    def __str__(self) -> str:
        return f"{self.name.capitalize()}[{self.argument}]"


class Step(NamedTuple):
    """A thought, an action (or the text in its place), and the observation."""

    thought: str
    action: str
    observation: str


class Page(NamedTuple):
    """Sentences of the last passages found; keyword and result number of the last lookup."""

    sentences: tuple[str, ...] = ()
    keyword: str = ""
    looked: int = 0


def lookup(page: Page, keyword: str) -> tuple[str | None, Page]:
    """The next sentence of a page that contains the keyword, or None; and the page after it."""
    looked = page.looked if word_key(keyword) == page.keyword else 0
    key = keyword.casefold()
    matches = [sentence for sentence in page.sentences if key and key in sentence.casefold()]
    after = page._replace(keyword=word_key(keyword), looked=min(looked + 1, len(matches)))
    if looked >= len(matches):
        return None, after
    return f"(Result {looked + 1} / {len(matches)}) {matches[looked]}", after


def read_action(text: str) -> tuple[str, Action | None]:
    """The thought and the first action of a text, or None.

    An action after "Action:" takes precedence. It ends at its closing bracket or, if that is
    missing, with its line.
    """
    match = _LABELLED.search(text) or _BARE.search(text)
    thought = text[: match.start()] if match else text
    thought = _LABEL.sub("", _ACTION_LABEL.split(thought, maxsplit=1)[0])
    thought = " ".join(thought.split())
    if not match:
        return thought, None
    return thought, Action(match.group(1).lower(), _inside(match.group(2)).strip())


def _inside(text: str) -> str:
    """The text before its first unmatched closing bracket, or all of it."""
    depth = 1
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket.group() == "[" else -1
        if depth == 0:
            return text[: bracket.start()]
    return text


def history_texts(history: Sequence[Step]) -> list[str]:
    """Ever shorter texts of the steps, from complete to empty.

    First observations are replaced by a mark, one at a time, the oldest first; then steps are left
    out, the oldest first.
    """
    count = len(history)
    marked = [step._replace(observation=_LEFT_OUT) for step in history]
    less = [_text([*marked[:n], *history[n:]]) for n in range(count + 1)]
    return less + [_text(marked[n:], first=n + 1) for n in range(1, count + 1)]


def _text(history: Sequence[Step], first: int = 1) -> str:
    """Three lines per step; "" without steps."""
    numbered = zip(itertools.count(first), history, strict=False)
    return "".join(
        f"Thought {n}: {step.thought}\nAction {n}: {step.action}\n"
        f"Observation {n}: {step.observation}\n"
        for n, step in numbered
    )


def first_line(text: str) -> str:
    """The first line that is not blank, without repeated blanks."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return " ".join(line.split())
