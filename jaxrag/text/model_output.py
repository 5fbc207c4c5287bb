"""Answers in the texts that language models write."""

from __future__ import annotations

import re

from jaxrag.text.reasoning import answer_start

# Characters without a shape: zero-width spaces, soft hyphens, marks of writing direction.
_INVISIBLE = "\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_ENDS = "".join(re.findall(rf"[\s{_INVISIBLE}]", "".join(map(chr, range(0x10000)))))
_EMPHASIS = r"[*_`#>\s]*"
_NAME = r"(?:(?:the|my)\s+)?(?:(?:final|short|correct|direct)\s+)?answer(?:s|\(s\))?(?:\s+is)?"
_LABEL = re.compile(
    rf"^(?:(?:[-+\u2022]|\d+[.)])\s+)?[*_`#>\s\[(\"]*"
    rf"(?:{_NAME}[*_`#>\s\])\"]*[:\uff1a]+{_EMPHASIS})+",
    re.I,
)
# lines that only mark what follows: a fence, a rule, a heading such as "### Final answer"
_RULE = re.compile(rf"`{{3}}\w*|[-*_=~#]{{3,}}|[*_#=\[(]+\s*{_NAME}[*_#=\s\])]*", re.I)
_HEADING = re.compile(rf"{_NAME}\s*[.;\u2013-]?", re.I)  # one without marks, if more follows
_OPEN = r"<\s*(?:final[\s_-]*)?answers?\b(?:\s[^<>]*|\s*/)?>"
_CLOSE = r"<\s*/\s*(?:final[\s_-]*)?answers?\s*>"
_PAIR = re.compile(rf"{_OPEN}((?:(?!{_OPEN}).)*?){_CLOSE}", re.S | re.I)
_BEGIN = re.compile(_OPEN, re.I)
# also an end tag in which the text breaks off, as at a limit of tokens
_TAG = re.compile(rf"{_OPEN}|{_CLOSE}|<\s*/\s*\w*\s*$", re.I)
# marks at which a turn ends or the next begins, where a server leaves them in the text
_TURN = re.compile(
    r"<\|(?:end|im_end|im_start|eot_id|eom_id|return|start|assistant|user|system|endoftext|"
    r"end_of_text|start_header_id|end_of_turn_token)\|>|</s>|"
    r"<(?:end|start)_of_turn>|<eos>|<｜end▁of▁sentence｜>",
    re.I,
)
_WRAPPER = r"</(?:response|output|solution)>|<\|end_(?:of_solution|response)\|>"
_END = re.compile(rf"{_TURN.pattern}|{_WRAPPER}|\[END FINAL RESPONSE\]", re.I)


def parse_answer(raw: str, how: str, *, opened: bool = False) -> str:
    """Parses the answer in a text; "" if there is none.

    Reasoning (with ``opened``, begun by the prompt) is no part of it, nor what follows a mark of
    the answer's or the turn's end, a label such as "Answer:" or "**Final answer:**", and emphasis
    around the whole (but by "text"). ``how`` says what is taken:

    - "tags": the text of the last pair of <answer> and </answer> that is not blank, in one line;
      without a pair, the rest of the first line that is not blank after the last <answer>; without
      tags, as "first_line".
    - "first_line": the first line that is not blank, nor a label alone.
    - "text": all of it, without blanks and invisible characters at its ends.
    """
    raw = raw[answer_start(raw, opened=opened) :]
    raw = _END.split(raw, maxsplit=1)[0]
    if how == "text":
        return _trimmed(raw)
    if how == "tags":
        if pairs := _PAIR.findall(raw):
            last = next((pair for pair in reversed(pairs) if _trimmed(pair)), "")
            lines = (_trimmed(line) for line in last.splitlines())
            return _bare(" ".join(line for line in lines if not _RULE.fullmatch(line)))
        unclosed = [part for part in _BEGIN.split(raw)[1:] if _trimmed(_TAG.sub("", part))]
        raw = _TAG.sub("", unclosed[-1] if unclosed else raw)
    lines = [line for line in map(_bare, raw.splitlines()) if line]
    return next((line for line in lines if not _HEADING.fullmatch(line)), "".join(lines[:1]))


def turn_marks(text: str) -> bool:
    """Whether a mark of a turn's end or begin stands in a text."""
    return bool(_TURN.search(text))


def _trimmed(text: str) -> str:
    return text.strip(_ENDS)


def _bare(text: str) -> str:
    """An answer without label and emphasis; "" for a line that only marks something."""
    text = _trimmed(text)
    if not text or _RULE.fullmatch(text):
        return ""
    text = _trimmed(_LABEL.sub("", text))
    for mark in ("**", "__", "*", "_", "`"):
        inner = text.removeprefix(mark).removesuffix(mark)
        both = len(inner) == len(text) - 2 * len(mark)
        # around the whole, or the end of emphasis that a label began
        if inner and mark not in inner and text.endswith(mark) and not inner[-1].isspace():
            text = inner if both or text.count(mark) == 1 else text
    return _trimmed(text)


def has_answer_tag(raw: str) -> bool:
    """Whether an <answer> tag begins in a text."""
    return bool(_BEGIN.search(raw))
