"""Prompts to tokens, and tokens to text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrag.core.json_text import parse_json
from jaxrag.models.checkpoint.files import read_config, read_json
from jaxrag.types import Generation, InputError, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from jaxrag.engines.language_model import LanguageModel


def encode_prompt(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, template_options: Mapping[str, Any]
) -> list[int]:
    """Token ids of a prompt.

    Messages are rendered by the chat template, which writes all special tokens itself. A string is
    tokenised with the special tokens that the tokenizer adds, such as a begin token.

    Raises:
      InputError: the prompt is empty, or the chat template does not accept its messages.
    """
    if isinstance(prompt, str):
        tokens = tokenizer.encode(prompt)
    else:
        text = render_chat(tokenizer, prompt, template_options)
        tokens = tokenizer.encode(text, add_special_tokens=False)
    if not tokens:
        raise InputError("A prompt is empty: it has no tokens to continue.")
    return tokens


def render_chat(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, template_options: Mapping[str, Any]
) -> str:
    """Messages as the text that the model reads, up to the assistant's turn.

    Where the template accepts no system message (Gemma, Mistral), it is put before the first user
    message, with an empty line between them.

    Raises:
      InputError: the tokenizer has no chat template, or it does not accept the messages, or fails.
        A template is a program from a checkpoint: it runs in Jinja's sandbox, without access to
        Python's objects.
    """
    if not tokenizer.chat_template:
        raise InputError(
            "The model's tokenizer has no chat template: give prompts as strings, or take the "
            "model's instruction-tuned variant."
        )
    messages = [{"role": m.role, "content": m.content} for m in prompt if not isinstance(m, str)]
    refused: Exception | None = None
    for accepted in (messages, _without_system(messages)):
        try:
            text = tokenizer.apply_chat_template(
                accepted, tokenize=False, add_generation_prompt=True, **template_options
            )
            return str(text)
        except Exception as error:  # a template may divide by zero, or add words to numbers
            refused = refused or error
    roles = ", ".join(m["role"] for m in messages)
    raise InputError(f"The chat template refuses messages ({roles}): {refused}") from refused


def _without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The messages with a leading system message inside the user message that follows it."""
    if [m["role"] for m in messages[:2]] != ["system", "user"]:
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


class PromptEncoder:
    """`encode_prompt` for one model, with a check that prompt and answer fit.

    Args:
      tokenizer: the model's.
      template_options: arguments of the chat template.
      max_length: limit of prompt and answer together, in tokens.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        template_options: Mapping[str, Any],
        max_length: int,
    ) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.template_options = dict(template_options)

    def __call__(self, prompt: Prompt, *, room: int, what: str = "new tokens") -> list[int]:
        """Token ids of a prompt that leaves ``room`` tokens for ``what``.

        Raises:
          InputError: it leaves fewer; see also `encode_prompt`.
        """
        tokens = encode_prompt(self.tokenizer, prompt, self.template_options)
        if len(tokens) + room > self.max_length:
            raise InputError(
                f"A prompt of {len(tokens)} tokens and {room} {what} exceed the model's "
                f"{self.max_length}: shorten the prompt (reader.truncate=True cuts the passages "
                "in it, and nothing else), or load the model with a larger max_length if its "
                "checkpoint allows more."
            )
        return tokens

    def left(self, prompt: Prompt, *, room: int) -> int:
        """Free tokens beside a prompt and ``room`` others; negative if they do not fit.

        Raises:
          InputError: see `encode_prompt`.
        """
        tokens = encode_prompt(self.tokenizer, prompt, self.template_options)
        return self.max_length - room - len(tokens)

    def with_continuation(self, prompt: Prompt, text: str) -> tuple[list[int], list[int]]:
        """Tokens of a prompt and of a text that follows it, tokenised separately.

        The continuation's tokens thus do not depend on the prompt; one that continues a line must
        bring its own leading blank.
        """
        added = self.tokenizer.encode(text, add_special_tokens=False)
        return self(prompt, room=len(added), what="tokens of continuation"), added


def encoder_of(model: LanguageModel) -> PromptEncoder | None:
    """The encoder of a model's prompts; None where its tokenizer or its limit is unknown.

    Made from the model's ``tokenizer``, ``max_length`` and the ``template_options`` of its
    identity, so that it is the same for every engine.
    """
    tokenizer, limit = getattr(model, "tokenizer", None), getattr(model, "max_length", None)
    if tokenizer is None or limit is None:
        return None
    options = json.loads(model.identity).get("template_options", {})
    return PromptEncoder(tokenizer, template_options=options, max_length=limit)


def parse_template_options(text: str) -> dict[str, Any]:
    """Arguments of the chat template besides the messages: a JSON object, or "" for none.

    Raises:
      InputError: ``text`` is not a JSON object.
    """
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
    shown = len(prompt) if isinstance(prompt, str) else sum(len(m.content) for m in prompt)
    return shown + len(continuation)


def end_tokens(path: Path, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """All tokens that end an answer, by generation_config.json, config and tokenizer."""
    named: list[Any] = [tokenizer.eos_token_id, read_config(path).get("eos_token_id")]
    generation = Path(path) / "generation_config.json"
    if generation.exists():
        named.append(read_json(generation).get("eos_token_id"))
    lists = [value if isinstance(value, list) else [value] for value in named]
    return tuple(sorted({token for tokens in lists for token in tokens if token is not None}))


class AnswerReader:
    """Turns generated tokens into a `Generation`.

    Args:
      tokenizer: the model's.
      ends: tokens that end an answer.
      stop: strings that end it, too; the text is cut before the first to occur.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, ends: Sequence[int], stop: Sequence[str]
    ) -> None:
        self._tokenizer, self._ends, self._stop = tokenizer, frozenset(ends), tuple(stop)

    def read(
        self, tokens: Sequence[int], logprobs: Sequence[float], *, prompt_tokens: int
    ) -> Generation:
        """The answer in ``tokens``, which may extend beyond its end."""
        end = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        kept = len(tokens) if end is None else end
        text, reason = self._text(tokens[:kept]), "length" if end is None else "end"
        if end is not None:
            kept += 1
        if self._cut(text) is not None:
            # the tokens that it took; an end token came after
            kept = next(n for n in range(1, kept + 1) if self.stopped(tokens[:n]))
            text = self._text(tokens[:kept])
            text, reason = text[: self._cut(text)], "stop"
        return Generation(
            text=text,
            tokens=tuple(map(int, tokens[:kept])),
            logprobs=tuple(map(float, logprobs[:kept])),
            finish_reason=reason,  # type: ignore[arg-type]
            prompt_tokens=prompt_tokens,
        )

    def stopped(self, tokens: Sequence[int]) -> bool:
        """Whether a stop string occurs in the text of ``tokens``."""
        return bool(self._stop) and self._cut(self._text(tokens)) is not None

    def _cut(self, text: str) -> int | None:
        starts = [start for stop in self._stop if (start := text.find(stop)) >= 0]
        return min(starts, default=None)

    def _text(self, tokens: Sequence[int]) -> str:
        text = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)
