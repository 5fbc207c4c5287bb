"""Reads texts with an unknown tokenizer; `jaxrag.core.bounded` runs it in a process of its own."""

from __future__ import annotations

import string

from tokenizers import Tokenizer

MOST_ADDED = 1 << 14
"""Most added tokens, each of which takes time to load; Gemma 3 has 6,000."""

# Regular expressions that take exponential time do so on one of these: long runs of a character or
# of words, with an end that does not match.
_TEXTS = (
    *(50 * character for character in string.printable),
    *(50 * character + "!" for character in string.ascii_letters + string.digits + " \n"),
    100 * "the capital of Rome is " + "!",
    *(
        2_000 * part + end
        for part in ("a", "a ", "1", " ", "\n", "\u4e2d", "\u0301")
        for end in ("", "\0")
    ),
    "It's 3.5% of \u20ac1,000: \u00e9\u4e2d\u6587 \U0001f642\u200d\u2642 https://example.org/?a=b#c\r\n\t\u2028",
)


def read_texts(path: str) -> int:
    """Encodes and decodes texts with a tokenizer; MemoryError for too many added tokens."""
    tokenizer = Tokenizer.from_file(path)
    if (added := len(tokenizer.get_added_tokens_decoder())) > MOST_ADDED:
        raise MemoryError(f"it has {added:,} added tokens, of at most {MOST_ADDED:,}")
    encodings = [tokenizer.encode(text) for text in _TEXTS]
    return sum(len(tokenizer.decode(encoding.ids)) for encoding in encodings)
