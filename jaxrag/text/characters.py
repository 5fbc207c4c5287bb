"""Unicode text: regular expressions of categories, tokens, and a canonical form."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

_SIGNS = dict.fromkeys(map(ord, "\u00b4\u02b9\u02bb\u02bc\u2044\u2212"), "")
"""Signs that serve as apostrophe, slash or minus without being Unicode punctuation."""
_SIGNS |= dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"), "")  # invisible ones


@functools.cache
def of_categories(kinds: str) -> str:
    """Regular expression of one character of some general Unicode categories, such as "LM".

    Those beyond 16 bits come second: `re` looks a character up in a table only among the others.
    """
    codes = [i for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i))[0] in kinds]
    starts = [code for code, last in zip(codes, [-2, *codes], strict=False) if code != last + 1]
    stops = [code for code, after in zip(codes, [*codes[1:], -2], strict=True) if after != code + 1]
    ranges = [(a, f"\\U{a:08x}-\\U{b:08x}") for a, b in zip(starts, stops, strict=True)]
    low, high = ("".join(r for a, r in ranges if (a > 0xFFFF) == far) for far in (False, True))
    return rf"(?:[{low}]|(?=[\U00010000-\U0010ffff])[{high}])"


@functools.cache
def _token() -> re.Pattern[str]:
    return re.compile(f"{of_categories('LMN')}+|{of_categories('PS')}")


def tokens(text: str) -> list[str]:
    """DPR's tokens: runs of letters, marks and digits, and each other visible character; NFD.

    Source: SimpleTokenizer of Karpukhin et al. 2020, by which passages are searched for answers.
    """
    return _token().findall(unicodedata.normalize("NFD", text))


def within(inner: list[str], outer: list[str]) -> bool:
    """Whether ``inner`` is a run of consecutive tokens of ``outer``; False if it is empty."""
    inside, whole = ("\0".join(["", *some, ""]) for some in (inner, outer))
    return bool(inner) and inside in whole


def unified(text: str) -> str:
    """A text without differences of Unicode form: NFKC, case folding, no punctuation, no accents.

    Punctuation of all scripts is removed (curly quotes, dashes, full stops), and the marks that
    are accents, Hebrew points or Arabic vowel signs; marks that make another letter (Indic vowels,
    kana voicing, Thai tones) stay. A text that this leaves empty is only brought to NFKC.
    """
    plain = unicodedata.normalize("NFKC", text.translate(_SIGNS))
    letters = (c for c in unicodedata.normalize("NFKD", plain.casefold()) if not _dropped(c))
    return unicodedata.normalize("NFKC", "".join(letters)).strip() or plain


def _dropped(character: str) -> bool:
    combining = unicodedata.combining(character)
    accent = 10 <= combining <= 36 or combining >= 200
    return accent or unicodedata.category(character)[0] == "P" or ord(character) in _SIGNS
