"""Prompts to tokens, and tokens to text."""

from __future__ import annotations

import bisect
import datetime
import functools
import itertools
import json
import logging
import re
import reprlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from jaxrag.core.bounded import Bounded, LimitError
from jaxrag.core.hashing import canonical, digest
from jaxrag.core.json_text import parse_json
from jaxrag.models.checkpoint.files import read_config, read_json
from jaxrag.text.reasoning import MARK_TOKENS, answer_start, opens_reasoning
from jaxrag.types import Generation, InputError, Message, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from jaxrag.engines.language_model import LanguageModel


_log = logging.getLogger("jaxrag")
_RENDER = Bounded("jaxrag.engines.chat_template", "render", seconds=0.5)
_Turn = dict[str, str]
_DATE = datetime.date(2024, 7, 26)  # Llama 3's own default
# Stands between the letters of a control token's name in data; U+FDD0 is no character.
_MARK = "\ufdd0"
_LIKE_CONTROL = re.compile(r"<\|[^|<>]*\|>|</?(?:think|tool_call|tool_response)>")


def render_chat(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, template_options: Mapping[str, Any]
) -> str:
    """Messages as the text that the model reads, up to the assistant's turn.

    What the template would lose is put elsewhere (`_accepted_form`). Its option "date"
    (YYYY-MM-DD), by default 2024-07-26, is today's date for it, so that a prompt is the same on
    every day. InputError if the tokenizer has no chat template, or it does not accept the messages,
    or fails in Jinja's sandbox; LimitError if it takes over 1 s, 512 MB or a million characters.
    """
    if not tokenizer.chat_template:
        raise InputError(
            "The model's tokenizer has no chat template: give prompts as strings, or take the "
            "model's instruction-tuned variant."
        )
    messages = [{"role": m.role, "content": m.content} for m in prompt if not isinstance(m, str)]
    roles, options = tuple(m["role"] for m in messages), dict(template_options)
    try:
        options["date"] = datetime.date.fromisoformat(str(options.get("date") or _DATE)).isoformat()
    except ValueError:
        raise InputError(
            f"template_options: date is {options['date']!r}; give a date as 2024-07-26."
        ) from None
    try:
        # of several named templates, the one that the options name or the default
        options["chat_template"] = tokenizer.get_chat_template(options.get("chat_template"))
        form = _accepted_form(tokenizer, roles, canonical(options))
        if isinstance(form, Exception):
            raise form
        return _rendered(tokenizer, form(messages), options)
    except LimitError:
        raise
    except Exception as error:  # a template may divide by zero, or add words to numbers
        raise InputError(
            f"The chat template refuses messages ({', '.join(roles)}): {error}"
        ) from error


def _rendered(
    tokenizer: PreTrainedTokenizerFast, messages: list[_Turn], options: Mapping[str, Any]
) -> str:
    values = {**tokenizer.special_tokens_map, "add_generation_prompt": True}
    values |= {"date": _DATE.isoformat(), **options}
    try:
        return _RENDER(template=values.pop("chat_template"), messages=messages, values=values)
    except LimitError as error:
        raise LimitError(
            f"The chat template of {tokenizer.name_or_path or 'the model'} is refused: {error}. "
            'Correct it, or give another: template_options=\'{"chat_template": "..."}\'.'
        ) from None


@functools.lru_cache(maxsize=64)
def _accepted_form(
    tokenizer: PreTrainedTokenizerFast, roles: tuple[str, ...], options: str
) -> Callable[[list[_Turn]], list[_Turn]] | Exception:
    """The first form of messages of these roles of which the template loses and refuses nothing.

    Without one, why the first is refused. The forms are: as they are; with the system message
    before the first user message (Gemma refuses it, Phi-3 loses it); or all in one user message
    (templates that show the last message only). It is found by rendering names in the place of the
    contents; ``options``, as JSON, are those of the template and itself.
    """
    refused: Exception | None = None
    tried: list[list[_Turn]] = []
    plain = set(roles) <= {"system", "user", "assistant"}
    for form in (list, merged_system, *([_merged] if plain else [])):
        messages = form([{"role": role, "content": f"content{i}x"} for i, role in enumerate(roles)])
        if messages in tried:  # a rendering may take half a second
            continue
        tried.append(messages)
        try:
            text = _rendered(tokenizer, messages, json.loads(options))
        except LimitError:
            raise
        except InputError as error:
            refused = refused or error
            continue
        if all(f"content{i}x" in text for i in range(len(roles))):
            if form is not list:
                _log.info("The chat template does not take %s: %s", ", ".join(roles), form.__doc__)
            return form
    return refused or ValueError("it leaves some of them out")


def merged_system(messages: list[_Turn]) -> list[_Turn]:
    """Puts the system message before the user message that follows it."""
    if [m["role"] for m in messages[:2]] != ["system", "user"]:
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def _merged(messages: list[_Turn]) -> list[_Turn]:
    """All messages are put into one of the user."""
    return [{"role": "user", "content": "\n\n".join(m["content"] for m in messages)}]


_Part = tuple[list[int], list[tuple[int, int]]]


class PromptEncoder:
    """Prompts as tokens for one model, with a check that prompt and answer fit.

    Text is text: a question or passage that contains a control token such as ``<|im_start|>`` is
    tokenised as if the tokenizer had none. Only the chat template writes control tokens, and a
    prompt of plain text outside its `FilledText.data`.

    Args:
      template_options: arguments of the chat template; "control_tokens": true gives control tokens
        in data their meaning.
      max_length: limit of prompt and answer together, in tokens.
      vocabulary: number of rows of the embedding table; None where unknown.
      reads_end: whether an end token follows a prompt of plain text, as T5's sources.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        template_options: Mapping[str, Any],
        max_length: int,
        vocabulary: int | None = None,
        reads_end: bool = False,
    ) -> None:
        self.tokenizer, self.max_length, self._reads_end = tokenizer, max_length, reads_end
        self.template_options, self._vocabulary = dict(template_options), vocabulary

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that determine the prompts: template, options, place of a system message."""
        identity = {
            "chat_template": digest(str(self.tokenizer.chat_template)),
            "template_options": self.template_options,
        }
        try:
            pair = (Message("system", "system1x"), Message("user", "user1x"))
            if "system1x\n\nuser1x" in self._render(pair):
                identity["system_message"] = "put before the user's"
        except LimitError:
            raise
        except InputError:
            pass
        return identity

    def __call__(self, prompt: Prompt, *, room: int, what: str = "new tokens") -> list[int]:
        """Token ids of a prompt that leaves ``room`` tokens for ``what``; InputError if not."""
        tokens = self.tokens(prompt)
        if len(tokens) + room > self.max_length:
            raise InputError(
                f"A prompt of {len(tokens)} tokens and {room} {what} exceed the model's "
                f"{self.max_length}: shorten the prompt (reader.truncate=True cuts the passages "
                "in it, and nothing else), or load the model with a larger max_length if its "
                "checkpoint allows more."
            )
        return tokens

    def left(self, prompt: Prompt, *, room: int) -> int:
        """Free tokens beside a prompt and ``room`` others; negative if they do not fit."""
        return self.max_length - room - len(self.tokens(prompt))

    def with_continuation(self, prompt: Prompt, text: str) -> tuple[list[int], list[int]]:
        """Tokens of a prompt and of a text that follows it, tokenised separately.

        The continuation's tokens do not depend on the prompt; in a line it begins with a blank.
        """
        added = self._checked(self.tokenizer.encode(text, add_special_tokens=False))
        return self(prompt, room=len(added), what="tokens of continuation"), added

    def tokens(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, see `with_spans`."""
        return self.with_spans(prompt)[1]

    def with_spans(self, prompt: Prompt) -> tuple[str, list[int], list[tuple[int, int]]]:
        """The text of a prompt, its token ids, and (start, end) of each token in the text.

        Messages are rendered by the chat template, which writes all special tokens itself. A string
        is tokenised with those that the tokenizer puts before a text, such as a begin token.
        InputError if the prompt is empty or refused, or a token is not in the model's vocabulary.
        """
        rendered = self._rendered(prompt)
        begin = self.frame[0] if isinstance(prompt, str) else []
        begin_text = str(self.tokenizer.decode(begin))
        if begin_text and rendered.startswith(begin_text):
            begin = []
        tokens, places = self._encoded(rendered)
        if not (begin or tokens):
            raise InputError("A prompt is empty: it has no tokens to continue.")
        if _MARK in rendered:
            at = [0, *itertools.accumulate(character != _MARK for character in rendered)]
            rendered, places = rendered.replace(_MARK, ""), [(at[a], at[b]) for a, b in places]
        end = self.frame[1] if self._reads_end and isinstance(prompt, str) else []
        tokens, places = [*tokens, *end], [*places, *[(len(rendered), len(rendered))] * len(end)]
        spans = [(0, 0)] * len(begin) + places
        return rendered, self._checked([*begin, *tokens]), spans

    def text(self, prompt: Prompt) -> str:
        """The prompt as a text for a server that tokenises it and adds a begin token itself."""
        begin = str(self.tokenizer.decode(self.frame[0])) if self.frame[0] else ""
        return str(self.with_spans(prompt)[0]).removeprefix(begin)

    def _rendered(self, prompt: Prompt) -> str:
        """The text of a prompt, with marks in the names of control tokens in its data."""

        def marked(text: str) -> str:
            control = self._control
            return control.sub(lambda match: _MARK.join(match[0]), text) if control else text

        if not isinstance(prompt, str):
            return self._render(tuple(m._replace(content=marked(m.content)) for m in prompt))
        rendered, at = "", 0
        for start, end in getattr(prompt, "data", ()):
            rendered, at = rendered + prompt[at:start] + marked(prompt[start:end]), end
        return rendered + prompt[at:]

    def _render(self, prompt: Prompt) -> str:
        options = {k: v for k, v in self.template_options.items() if k != "control_tokens"}
        return render_chat(self.tokenizer, prompt, options)

    def _checked(self, tokens: list[int]) -> list[int]:
        """The tokens; InputError if one is not in the embedding table."""
        if self._vocabulary and tokens and (most := max(tokens)) >= self._vocabulary:
            raise InputError(
                f"Token {most} ({self.tokenizer.convert_ids_to_tokens(most)!r}) of a prompt is not "
                f"among the {self._vocabulary} of the model's embedding table: tokenizer and "
                "weights do not belong together, or tokens were added without resizing the table."
            )
        return tokens

    @functools.cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """Tokens that the tokenizer puts before and after a text; the latter would end a prompt."""
        bare = self.tokenizer.encode("a", add_special_tokens=False)
        framed = self.tokenizer.encode("a")
        starts = (i for i in range(len(framed)) if framed[i : i + len(bare)] == bare)
        start = next(starts, 0)
        return framed[:start], framed[start + len(bare) :]

    @functools.cached_property
    def _control(self) -> re.Pattern[str] | None:
        """Matches control tokens: special ones, those of the template, others written like one."""
        if self.template_options.get("control_tokens"):
            return None
        templates = f"{self.tokenizer.chat_template} {self.template_options.get('chat_template')}"
        added = self.tokenizer.added_tokens_decoder.values()
        names = {t.content for t in added if t.special or _LIKE_CONTROL.fullmatch(t.content)}
        marks = {t.content for t in added if len(t.content) > 2 and not t.content.isalnum()}
        names |= {name for name in marks if name in templates}
        names = {name for name in names if name.strip()}
        return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")

    @functools.cached_property
    def _literal(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizer after the marks are taken out, and the same with cuts at the marks."""
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        added = [{**token, "normalized": False} for token in backend["added_tokens"]]
        backend = json.dumps({**backend, "added_tokens": added, "truncation": None})
        whole, cut = Tokenizer.from_str(backend), Tokenizer.from_str(backend)
        own = [whole.normalizer] if whole.normalizer else []
        whole.normalizer = normalizers.Sequence([normalizers.Replace(_MARK, ""), *own])  # pyright: ignore
        own = [cut.pre_tokenizer] if cut.pre_tokenizer else []
        split = pre_tokenizers.Split(_MARK, "removed")
        cut.pre_tokenizer = pre_tokenizers.Sequence([split, *own])  # pyright: ignore
        return whole, cut

    def _encoded(self, rendered: str) -> _Part:
        """Tokens and spans of a text; those with marks in them are no control tokens."""
        if _MARK not in rendered:
            made = self.tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True)
            return list(made["input_ids"]), list(made["offset_mapping"])
        whole, cut = self._literal
        encoding = whole.encode(rendered, add_special_tokens=False)
        control = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        # a vocabulary of whole words has the name, too
        if any(token in control and _MARK in rendered[a:b] for token, (a, b) in pairs):
            encoding = cut.encode(rendered, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def encoder_of(model: LanguageModel) -> PromptEncoder | None:
    """The encoder of a model's prompts; None where its tokenizer or its limit is unknown."""
    tokenizer, limit = getattr(model, "tokenizer", None), getattr(model, "max_length", None)
    if tokenizer is None or limit is None:
        return None
    options = json.loads(model.identity).get("template_options", {})
    end = getattr(model, "reads_end", False)
    return PromptEncoder(tokenizer, template_options=options, max_length=limit, reads_end=end)


def parse_template_options(text: str) -> dict[str, Any]:
    """Arguments of the chat template: a JSON object, or "" for none; InputError for others."""
    try:
        options = parse_json(text or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InputError(
            f"template_options is {text!r}: it must be a JSON object, such as "
            "'{\"enable_thinking\": false}', or empty."
        )
    return options


def prompt_number(tokens: Sequence[int]) -> int:
    """A hash of a prompt, which its samples depend on besides the seed."""
    return zlib.crc32(np.array(tokens, np.int32).tobytes())


def prompt_size(prompt: Prompt, continuation: str = "") -> int:
    """Number of characters of a prompt and its continuation, to sort requests into batches."""
    size = len(prompt) if isinstance(prompt, str) else sum(len(m.content) for m in prompt)
    return size + len(continuation)


def end_tokens(path: Path, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """All tokens that end an answer: those that the checkpoint names, and the end of a turn.

    They are named by tokenizer, config and generation_config.json, as ids or texts.
    """
    listed: list[Any] = [tokenizer.eos_token_id, read_config(path).get("eos_token_id")]
    generation = Path(path) / "generation_config.json"
    if generation.exists():
        listed.append(read_json(generation).get("eos_token_id"))
    ids: set[Any] = {_turn_end(tokenizer)}
    for value in listed:
        for token in value if isinstance(value, list) else [value]:
            if token is not None and type(token) not in (int, str):
                raise InputError(
                    f"{path}: eos_token_id is {reprlib.repr(value)}; it must be a token's id or "
                    "text, or a list of them."
                )
            text = isinstance(token, str)
            ids.add(tokenizer.convert_tokens_to_ids(token) if text else token)
    return tuple(sorted(token for token in ids if token is not None and token >= 0))


def _turn_end(tokenizer: PreTrainedTokenizerFast) -> int | None:
    """The special token that directly follows an answer in a chat; None if there is none."""
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "content1x"}]
    try:  # of several named templates, the default
        options = {"chat_template": tokenizer.get_chat_template(), "add_generation_prompt": False}
        text = _rendered(tokenizer, chat, options)
    except LimitError:
        raise
    except (InputError, ValueError):  # no template, or it refuses
        return None
    after = text.rpartition("content1x")[2].lstrip()
    special = {t.content: i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    ends = sorted((name for name in special if name and after.startswith(name)), key=len)
    return special[ends[-1]] if ends else None


class AnswerReader:
    """Turns generated tokens into a `Generation`.

    ``ends`` are tokens, and ``stop`` strings, that end an answer; the text is cut before the first
    string to occur after reasoning.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, ends: Sequence[int], stop: Sequence[str]
    ) -> None:
        self._tokenizer, self._ends, self._stop = tokenizer, frozenset(ends), tuple(stop)
        added = tokenizer.added_tokens_decoder
        special = {i: token.content for i, token in added.items() if token.special}
        marks = {i for i, name in special.items() if name in MARK_TOKENS}
        # where marks of reasoning are special tokens, the others are left out here
        self._hidden = frozenset(special) - marks if marks else None

    def read(
        self, tokens: Sequence[int], logprobs: Sequence[float], *, prompt: Sequence[int]
    ) -> Generation:
        """The answer to a prompt in ``tokens``, which may extend beyond its end."""
        opened = self._opens(prompt)
        end = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        size = len(tokens) if end is None else end
        text, reason = self._text(tokens[:size]), "length" if end is None else "end"
        if end is not None:
            size += 1
        if self._cut(text, opened) is not None:
            # the tokens that it took; an end token came after
            counts = range(1, size + 1)
            size = next(n for n in counts if self._cut(self._text(tokens[:n]), opened) is not None)
            text = self._text(tokens[:size])
            text, reason = text[: self._cut(text, opened)], "stop"
        start = answer_start(text, opened=opened)
        # of reasoning: tokens whose text is before the answer's
        counts = range(1, size + 1 - (reason == "end") if start else 1)
        first = bisect.bisect_right(counts, start, key=lambda n: len(self._text(tokens[:n])))
        return Generation(
            text=text[start:],
            tokens=tuple(map(int, tokens[first:size])),
            logprobs=tuple(map(float, logprobs[first:size])),
            finish_reason=reason,  # type: ignore[arg-type]
            prompt_tokens=len(prompt),
            reasoning=text[:start],
            reasoning_tokens=first,
            reasoning_logprobs=tuple(map(float, logprobs[:first])),
        )

    def stopped(self, prompt: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether a stop string occurs in the text of ``tokens``, after reasoning."""
        return bool(self._stop) and self._cut(self._text(tokens), self._opens(prompt)) is not None

    def _opens(self, prompt: Sequence[int]) -> bool:
        """Whether the end of a prompt has opened the model's reasoning."""
        return opens_reasoning(str(self._tokenizer.decode(list(prompt[-16:]))))

    def _cut(self, text: str, opened: bool) -> int | None:
        after = answer_start(text, opened=opened)
        starts = [start for stop in self._stop if (start := text.find(stop, after)) >= 0]
        return min(starts, default=None)

    def _text(self, tokens: Sequence[int]) -> str:
        visible = list(tokens)
        if self._hidden is not None:
            visible = [token for token in visible if token not in self._hidden]
        text = self._tokenizer.decode(
            visible,
            skip_special_tokens=self._hidden is None,
            clean_up_tokenization_spaces=False,
        )
        return str(text)
