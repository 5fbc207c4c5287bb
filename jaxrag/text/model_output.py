"""Answers in the texts that language models write."""

from __future__ import annotations

import re

from jaxrag.text.reasoning import answer_start
from jaxrag.text.sentences import BOX

# Characters without a shape: zero-width spaces, soft hyphens, marks of writing direction.
_INVISIBLE = "\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_ENDS = "".join(re.findall(rf"[\s{_INVISIBLE}]", "".join(map(chr, range(0x10000)))))
_OF = r"(?:(?:the|my|your)\s+)?(?:(?:final|short|brief|concise|exact|correct|direct)\s+)?"
_NAME = rf"{_OF}(?:ans(?:wer)?|response)(?:s|\(s\))?(?:\s+is)?"
_DASH = r"(?<=\s)[-\u2013\u2014=\u2192]+>?(?=\s)"  # not after "Response", since titles have it, too
_LABEL = re.compile(
    rf"^(?:(?:[-+\u2022]|\d+[.)])\s+)?[*_`#>\s\[(\"]*"
    rf"(?:{_NAME}[*_`#>\s\])\"]*(?:[:\uff1a]+|(?<!response\s){_DASH})[*_`#>\s]*)+",
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
_TAG = re.compile(rf"{_OPEN}|{_CLOSE}|<\s*/\s*(?:\w+\s*)?$", re.I)
_OTHER = r"(?:response|output|solution)>"  # tags only where one begins a line: HTML has <output>
_OTHER_LINE = re.compile(rf"^<{_OTHER}", re.M | re.I)
_OTHER_TAG = re.compile(rf"<(/?){_OTHER}", re.I)
_UNOPENED = re.compile(rf"\A((?:(?!<{_OTHER}).)*?)</{_OTHER}.*", re.S | re.I)
# marks at which a turn ends or the next begins, where a server leaves them in the text
_TURN = re.compile(
    r"<\|(?!end_(?:of_solution|response)\|)\w{3,}\|>|<｜[^<>]+｜>|</s>|<(?:end|start)_of_turn>"
    r"|<turn\|>|<eos>|\[\|endofturn\|\]",
    re.I,
)
_END = re.compile(
    rf"{_TURN.pattern}|<\|end_(?:of_solution|response)\|>|\[END FINAL RESPONSE\]", re.I
)
# marks before an answer, and GLM's around it
_BOX = re.compile(r"<\|(?:end_of_box|begin_of_\w+|start_response)\|>|<｜begin▁of▁sentence｜>", re.I)


def parse_answer(raw: str, how: str, *, opened: bool = False) -> str:
    """Parses the answer in a text; "" if there is none.

    Reasoning (with ``opened``, begun by the prompt) is no part of it, nor what follows a mark of
    the answer's or the turn's end. ``how`` says what is taken:

    - "tags", "first_line": the text of the last pair of <answer> and </answer> (without any, of
      response, output or solution, the first at the start of a line) that is not blank, in one
      line; without a pair, the first line after the last <answer>; without tags, the first line.
      Blank lines and labels alone do not count. A label such as "**Final answer:**", boxes, and
      emphasis around the whole are removed.
    - "text": all of it, without blanks and invisible characters at its ends.
    """
    start = answer_start(raw, opened=opened)
    raw = _END.split(_BOX.sub("", raw[start:]), maxsplit=1)[0]
    raw = _UNOPENED.sub(r"\1", raw) if start else raw  # opened before `answer_start`
    if how == "text":
        return _trimmed(raw)
    raw = BOX.sub(r"\2\3", raw)
    if _OTHER_LINE.search(raw) and not _BEGIN.search(raw):
        raw = _OTHER_TAG.sub(r"<\1answer>", raw)
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
    return bool(_TURN.search(_BOX.sub("", text)))


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
