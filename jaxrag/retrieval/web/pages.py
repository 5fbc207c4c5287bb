"""Results of web searches: pages with snippets, and their passages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import NamedTuple

from jaxrag.core.hashing import digest
from jaxrag.types import EngineDown, InputError, Passage

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_ENDLESS = re.compile(r"&#[0-9]{100,};?")  # int() refuses thousands of digits
_MARK = "#passage-"
_ID = re.compile(rf"{_MARK}([0-9a-f]{{16}})$")


class SearchRefusedError(EngineDown, InputError):
    """A wrong setting, key or state with which every search would fail: it stops the run."""


class WebPage(NamedTuple):
    """One result of a search: plain text, white space collapsed."""

    url: str
    title: str
    snippet: str


def plain(text: object, *, tags: bool = False) -> str:
    """A text of a result as one line; "" if it is not a string.

    ``tags``: whether it is HTML, whose tags are removed and whose entities are decoded.
    """
    if not isinstance(text, str):
        return ""
    if tags:
        text = html.unescape(_ENDLESS.sub("\N{REPLACEMENT CHARACTER}", _TAG.sub("", text)))
    return " ".join(text.encode("utf-8", "replace").decode().split())  # a lone surrogate is "?"


def usable(pages: Iterable[WebPage], count: int) -> list[WebPage]:
    """The first ``count`` pages with an address and a text, one for each address."""
    by_address: dict[str, WebPage] = {}
    for page in pages:
        if page.url and (page.title or page.snippet):
            by_address.setdefault(page.url, page)
    return list(by_address.values())[:count]


def row_of(page: WebPage) -> int:
    """The row of a page's passage: 63 bits of the hash of its content, the same in every run."""
    return int(digest(*page)[:16], 16) >> 1


def passage_of(page: WebPage) -> Passage:
    """The passage of a page; its id is the address with the row as a fragment (browsers ignore it).

    Engines show different snippets of one page to different queries, and each is a passage.
    """
    return Passage(f"{page.url}{_MARK}{row_of(page):016x}", page.title, page.snippet)


def row_in(passage_id: str) -> int:
    """The row of a passage's id; KeyError if it is not of a passage from the web."""
    if (match := _ID.search(passage_id)) is None:
        raise KeyError(passage_id)
    return int(match[1], 16)
