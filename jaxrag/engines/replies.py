"""Answers of OpenAI-compatible servers: their text, tokens and log-probabilities.

What their form does not allow is an error of the server, and never part of an answer.
"""

from __future__ import annotations

import bisect
import itertools
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxrag.text.reasoning import answer_start
from jaxrag.types import Generation, InputError

_UNKNOWN = -1  # a token whose id the server does not return
_ENDED = {"stop", "eos", "eos_token", "end", "end_turn", "stop_sequence", "stop_token", "complete"}
_CUT = {"length", "max_tokens", "max_output_tokens", "model_length"}
_MOST_TOKENS = 1 << 24
_LEAST = -9999.0  # what vLLM writes for minus infinity
_BYTES = re.compile(r"(?:bytes:)?(?:(?:\\x[0-9a-fA-F]{2})+|(?:<0x[0-9a-fA-F]{2}>)+)")
_REPLACED = "\ufffd".encode()
_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
_LETTERS = {chr(b): b for b in _SHOWN} | {chr(256 + i): b for i, b in enumerate(_HIDDEN)}
"""The bytes that letters stand for in vocabularies like GPT-2's."""


class ListedToken(NamedTuple):
    """A token of a response: its bytes, its log-probability, its id or None."""

    piece: bytes
    logprob: Any
    id: Any = None


class ServerReply(NamedTuple):
    """A generation, and what the server's response leaves uncertain about it.

    Attributes:
      in_reasoning: whether a stop string ended it inside reasoning.
      perhaps_cut: whether a stop string may have ended it whose token is not listed.
      lists_stop: whether the token that met a stop string is listed.
      lacks_tokens: whether the tokens are the begin of a text that a stop string ended inside one.
    """

    generation: Generation
    in_reasoning: bool = False
    perhaps_cut: bool = False
    lists_stop: bool = False
    lacks_tokens: bool = False


def only_choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only choice of a response; InputError if there is none, or it is no whole answer."""
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise InputError(
            f"The server's response has no single choice: {reprlib.repr(response)[:200]}"
        )
    reason = choices[0].get("finish_reason")
    if reason is not None and str(reason).lower() not in _ENDED | _CUT:
        raise InputError(
            f"The server ended the answer with finish_reason {str(reason)[:50]!r}, so what it "
            "returned is no whole answer."
        )
    return choices[0]


def reply_text(choice: Mapping[str, Any], *, allow_none: bool = False) -> tuple[str, str]:
    """The text of a choice, and its reasoning where the server has a field for it.

    InputError if it has no text, but null (unless ``allow_none``: ""), a refusal, a call, a number,
    parts that are none, or only tokens that are not shown before the limit of new ones.
    """
    message = choice.get("message", choice)
    if not isinstance(message, dict):
        raise InputError(f"The server's message is no object: {str(message)[:100]}")
    content = message.get("content" if "message" in choice else "text")
    fields = (message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
    reasoning = next((field for field in fields if isinstance(field, str) and field), "")
    if isinstance(content, list) and content:
        content, reasoning = _joined_parts(content, reasoning)
    if content in (None, "", []):
        why = _why_empty(message, reasoning, content, _is_cut(choice))
        if why and not allow_none:
            raise InputError(f"The server gives no text: {why}.")
        return "", reasoning
    if not isinstance(content, str):
        raise InputError(f"The server's text is no text: {str(content)[:100]}")
    return content.encode("utf-8", "replace").decode(), reasoning  # half of a pair is no character


def _why_empty(message: Mapping[str, Any], reasoning: str, content: object, cut: bool) -> str:
    """Why a message has no text; "" if its text is empty."""
    if said := message.get("refusal"):
        return f"it refuses: {str(said)[:200]}"
    if message.get("tool_calls") or message.get("function_call"):
        return "it calls a tool"
    if cut or (reasoning and content is None):
        return "null after unfinished reasoning; allow more tokens (reader.answer_tokens)"
    return "" if content == "" else "null"


def _is_cut(choice: Mapping[str, Any]) -> bool:
    """Whether an answer ends at the limit of new tokens."""
    return str(choice.get("finish_reason")).lower() in _CUT


def _joined_parts(parts: Sequence[Any], reasoning: str) -> tuple[str, str]:
    """Text and reasoning of a list of parts."""
    text = ""
    for part in parts:
        kind = str(part.get("type", "text")) if isinstance(part, dict) else ""
        if "thinking" in kind or "reasoning" in kind:
            said = part.get(kind) or part.get("text") or ""
            if isinstance(said, list):  # Mistral's has parts itself
                said = "".join(str(one.get("text", "")) for one in said if isinstance(one, dict))
            reasoning += str(said)
        elif kind in ("text", "output_text") and isinstance(part.get("text"), str):
            text += part["text"]
        else:
            raise InputError(f"The server's text has a part that is no text: {str(part)[:100]}")
    return text, reasoning


def listed_tokens(choice: Mapping[str, Any]) -> list[ListedToken]:
    """The tokens of a choice, in the form of the chat or of the completions endpoint."""
    table = choice.get("logprobs")
    if table is None:
        return []
    if not isinstance(table, dict):
        raise InputError(f"The server's logprobs are no object: {str(table)[:100]}")
    rows = table.get("content")
    if rows is None:
        values, names = table.get("token_logprobs") or [], table.get("tokens") or []
        if isinstance(values, list) and isinstance(names, list):
            pairs = itertools.zip_longest(values, names[: len(values)])  # names may be ids
            rows = [{"logprob": value, "token": name, "id": name} for value, name in pairs]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"The server's log-probabilities are no list: {str(table)[:100]}")
    return [
        ListedToken(_piece(row.get("token"), row.get("bytes")), row.get("logprob"), row.get("id"))
        for row in rows
    ]


def _piece(name: object, written: object) -> bytes:
    if isinstance(written, list) and all(type(b) is int and 0 <= b < 256 for b in written):
        return bytes(written)
    if not isinstance(name, str):
        return b""
    if _BYTES.fullmatch(name):
        return bytes(int(code, 16) for code in re.findall("x(..)", name))
    return name.encode("utf-8", "replace")


def _spelt(tokens: list[ListedToken], said: bytes) -> list[ListedToken]:
    """The tokens, and where their names are those of the vocabulary, the bytes they stand for.

    LMDeploy's and mlx_lm's are: a blank is "\u0120" or "\u2581", a line break "\u010a" or "<0x0A>".
    """
    if said in b"".join(token.piece for token in tokens):
        return tokens
    for spell in (_byte_level, lambda name: _piece(name.replace("\u2581", " "), None)):
        spelt = [one._replace(piece=spell(one.piece.decode("utf-8", "replace"))) for one in tokens]
        if said in b"".join(token.piece for token in spelt):
            return spelt
    return tokens


def _byte_level(name: str) -> bytes:
    """The bytes of a name with a letter for each; of a control token's, the name's own."""
    return bytes(_LETTERS[c] for c in name) if {*name} <= _LETTERS.keys() else name.encode()


def checked_logprobs(tokens: Sequence[ListedToken], count: int) -> list[float]:
    """The tokens' log-probabilities; InputError if they are not ``count``, or one is none."""
    if len(tokens) != count:
        raise InputError(
            f"The server returned {len(tokens)} log-probabilities for {count} tokens. If it "
            "does not support them, set logprobs=False; methods that need them are refused."
        )
    values = []
    for token in tokens:
        value = token.logprob
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not _LEAST < value <= 1e-6:  # NaN is in no range
            raise InputError(
                f"The server returned the log-probability {str(value)[:30]}, which is none: they "
                "are finite numbers of at most 0. This is a fault of the server."
            )
        values.append(min(float(value), 0.0))
    return values


class _Places(NamedTuple):
    """Where an answer lies among the listed tokens.

    Attributes:
      first: number of tokens of reasoning, with the blanks after it.
      count: number of tokens up to the answer's end, without an end token.
      ended: whether an end token follows.
      met: whether a stop string is in their text.
    """

    first: int
    count: int
    ended: bool
    met: bool


def read_reply(
    response: Mapping[str, Any],
    *,
    stop: Sequence[str],
    limit: int,
    ends: Sequence[int] = (),
    opened: bool = False,
    logprobs: bool = True,
) -> ServerReply:
    """The generation in a response without token ids.

    Args:
      stop: stop strings of the request; the text is cut before the first, if the server did not.
      limit: of new tokens.
      ends: ids of end tokens, if known.
      opened: whether the prompt has opened the model's reasoning.
      logprobs: whether log-probabilities were asked for.

    InputError if it has no text, or not a log-probability of each token.
    """
    choice = only_choice(response)
    over = not _is_cut(choice)
    whole, own = reply_text(choice, allow_none=over and bool(stop))
    whole = whole.lstrip() if own else whole  # blanks after reasoning are no part of the answer
    start = answer_start(whole, opened=opened and not own)
    reasoning, answer = own or whole[:start], whole[start:]
    text = answer[: min((at for s in stop if (at := answer.find(s)) >= 0), default=None)]
    tokens = _spelt(listed_tokens(choice), answer.strip().encode())
    asked, made, thought = _usage(response.get("usage"))
    if len(tokens) > limit + 1:  # an end token may not be counted
        raise InputError(f"The server returned {len(tokens)} tokens, of at most {limit}.")
    part = logprobs and not reasoning and _are_part(tokens, answer)
    lacks = part and over and bool(stop)
    if part and not lacks:
        listed = b"".join(token.piece for token in tokens).strip().decode(errors="replace")
        raise InputError(
            f"The server's log-probabilities are those of {listed[:80]!r} alone, a part of its "
            f"text {answer.strip()[:80]!r}."
        )
    if logprobs:
        nothing = over and not whole  # an end or a stop string at once, which is not listed
        wanted = 0 if nothing else made or len(whole.split())
        values = checked_logprobs(tokens, len(tokens) or wanted)
        at = _places(tokens, answer, stop, reasoning, over, ends)
        named = at.ended or not over or any(token.piece for token in tokens)
        if answer.strip() and not lacks and (not named or (len(text) < len(answer) and not at.met)):
            raise InputError(
                "The server's log-probabilities have no names of tokens that make up the text, so "
                "nobody knows where the answer ends: set logprobs=False."
            )
        count, unlisted = at.count + at.ended - at.first, max(made - len(tokens), 0)
    else:
        unlisted = thought
        at, values, count = _Places(0, 0, False, False), [], made - thought
    met = at.met or len(text) < len(answer)
    generation = Generation(
        text=text,
        tokens=(_UNKNOWN,) * count,
        logprobs=tuple(values[at.first : at.count + at.ended]),
        finish_reason="stop" if met else "end" if at.ended else "stop" if over else "length",
        prompt_tokens=asked,
        reasoning=reasoning,
        reasoning_tokens=at.first + (unlisted if reasoning else 0),
        reasoning_logprobs=tuple(values[: at.first]),
    )
    stopped = over and bool(stop) and not at.ended and not met
    in_reasoning = stopped and bool(reasoning) and not text.strip()
    if not in_reasoning:
        reply_text(choice)  # fails where there is no text
    return ServerReply(generation, in_reasoning, stopped, met, lacks)


def _places(
    tokens: Sequence[ListedToken],
    answer: str,
    stop: Sequence[str],
    reasoning: str,
    over: bool,
    ends: Sequence[int],
) -> _Places:
    """Finds the answer among the tokens of a response; ``over`` is whether it was not cut."""
    pieces = [token.piece for token in tokens]
    starts = [0, *itertools.accumulate(map(len, pieces))]
    joined, said = b"".join(pieces), answer.strip().encode()
    ended = over and bool(tokens) and _is_end(tokens, answer if said else reasoning, ends)
    begin, first = joined.rfind(said, 0, starts[-2] if ended else None), 0
    after = max(begin, 0)
    # reasoning or marks before the text, which the server has taken out
    hidden = re.search(rb"\w", joined[:after]) and not joined.lstrip().startswith(said)
    if reasoning or hidden:
        if begin < 0:
            raise InputError(
                "The server's log-probabilities of reasoning cannot be told from the answer's, as "
                "its tokens do not make up the text: switch reasoning off, such as by "
                "template_options='{\"enable_thinking\": false}', or set logprobs=False."
            )
        first = bisect.bisect_right(starts, begin) - 1 if said else len(tokens)
    stops = [(at, s) for s in map(str.encode, stop) if (at := joined.find(s, starts[first])) >= 0]
    if stops:
        at, cutter = min(stops)
        return _Places(first, bisect.bisect_left(starts, at + len(cutter)), False, True)
    beyond = [i for i, start in enumerate(starts[:-1]) if start >= after + len(said)]
    if said and begin >= 0 and sum(bool(pieces[i].strip()) for i in beyond) > 1:
        raise InputError(
            f"The server returned log-probabilities of {len(beyond)} tokens after the text, where "
            "there is at most an end token."
        )
    return _Places(min(first, len(tokens) - ended), len(tokens) - ended, ended, False)


def _are_part(tokens: Sequence[ListedToken], answer: str) -> bool:
    """Whether the tokens are only a part of the text, as far as their names are pieces."""
    listed, said = b"".join(token.piece for token in tokens).strip(), answer.strip().encode()
    return bool(listed) and listed != said and listed in said


def _is_end(tokens: Sequence[ListedToken], answer: str, ends: Sequence[int]) -> bool:
    """Whether the last token is an end token: it is no part of the answer, which others make up.

    Names may be replaced characters or pieces of the vocabulary, so only their number counts.
    """
    last, said = tokens[-1], answer.strip().encode()
    if last.id in ends and type(last.id) is int:
        return True
    piece = last.piece.strip()
    if (last.piece and not piece) or (piece and (said.endswith(piece) or _REPLACED in piece)):
        return False
    others = b"".join(token.piece for token in tokens[:-1]).decode("utf-8", "replace")
    return len(others.strip()) >= len(said.decode())


def _usage(usage: Any) -> tuple[int, int, int]:
    """Tokens of the prompt, of all that was generated, and of the reasoning in it."""
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("completion_tokens_details")
    thought = _integer(details.get("reasoning_tokens")) if isinstance(details, dict) else 0
    asked, made = _integer(usage.get("prompt_tokens")), _integer(usage.get("completion_tokens"))
    apart = _integer(usage.get("total_tokens")) == asked + made + thought  # as xAI counts
    return asked, made + thought * apart, thought


def _integer(value: object) -> int:
    """A count of tokens, 0 if it is none; InputError for one that no answer or prompt has."""
    if type(value) is not int or value <= 0:
        return 0
    if value > _MOST_TOKENS:
        raise InputError(
            f"The server counts {float(min(value, 10**300)):.3g} tokens: a fault of it."
        )
    return value
