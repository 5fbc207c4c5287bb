"""Text from models, questions and passages, made safe to print."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text without characters that control a terminal or reorder what is displayed.

    Control characters (the escape character among them, so that sequences after it are plain text)
    and the marks that change the direction of text are removed; unpaired surrogates become "?".
    Line feeds, tabs and all other characters are kept.
    """
    kept = "".join(c for c in text if c in _KEPT or not _controls(c))
    return kept.encode("utf-8", "replace").decode("utf-8")


def _controls(character: str) -> bool:
    return unicodedata.category(character) == "Cc" or (
        unicodedata.bidirectional(character)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    )
