"""Prompts into tokens, and tokens back into the text of an answer."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import TemplateError

from jaxrag.models.checkpoint.files import read_config, read_json
from jaxrag.types import Generation, InputError, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from jaxrag.engines.language_model import LanguageModel


def encode_prompt(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, template_options: Mapping[str, Any]
) -> list[int]:
    """Token ids of a prompt.

    Messages go through the chat template up to where the assistant speaks; the template writes all
    special tokens itself. A string is tokenised as the model's own tokenizer does, which for some
    models puts a begin token first.

    Raises:
      InputError: for an empty prompt, or messages that the model has no (fitting) template for.
    """
    if isinstance(prompt, str):
        tokens = tokenizer.encode(prompt)
    else:
        text = _render(tokenizer, prompt, template_options)
        tokens = tokenizer.encode(text, add_special_tokens=False)
    if not tokens:
        raise InputError("A prompt is empty: it has no tokens to continue.")
    return tokens


class PromptEncoder:
    """`encode_prompt` for one model, which also sees to it that the answer will fit.

    Args:
      tokenizer: the model's.
      template_options: handed to the chat template.
      max_length: most tokens of prompt and answer together.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        template_options: Mapping[str, Any],
        max_length: int,
    ) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self._template_options = dict(template_options)

    def __call__(self, prompt: Prompt, *, room: int, what: str = "new tokens") -> list[int]:
        """Token ids of a prompt that leaves ``room`` for ``what``.

        Raises:
          InputError: it leaves less; see also `encode_prompt`.
        """
        tokens = encode_prompt(self.tokenizer, prompt, self._template_options)
        if len(tokens) + room > self.max_length:
            raise InputError(
                f"A prompt of {len(tokens)} tokens and {room} {what} exceed the model's "
                f"{self.max_length}: shorten the prompt (reader.truncate=True cuts the passages "
                "in it, and nothing else), or load the model with a larger max_length if its "
                "checkpoint allows more."
            )
        return tokens

    def left(self, prompt: Prompt, *, room: int) -> int:
        """Tokens that a prompt leaves beside ``room`` others; below 0, how many it is too long by.

        Raises:
          InputError: see `encode_prompt`.
        """
        tokens = encode_prompt(self.tokenizer, prompt, self._template_options)
        return self.max_length - room - len(tokens)

    def with_continuation(self, prompt: Prompt, text: str) -> tuple[list[int], list[int]]:
        """Tokens of a prompt and of a text that follows it, tokenised apart.

        So a continuation's tokens do not depend on the prompt; one that goes on within a line
        should bring its own leading blank.
        """
        added = self.tokenizer.encode(text, add_special_tokens=False)
        return self(prompt, room=len(added), what="tokens of continuation"), added


def encoder_of(model: LanguageModel) -> PromptEncoder | None:
    """The encoder of a model's prompts; None where its tokenizer or its limit is not known here.

    It is made of what the model tells about itself: its ``tokenizer`` and ``max_length``, and the
    ``template_options`` of its identity. So equal models have equal ones, whatever runs them.
    """
    tokenizer, limit = getattr(model, "tokenizer", None), getattr(model, "max_length", None)
    if tokenizer is None or limit is None:
        return None
    options = json.loads(model.identity).get("template_options", {})
    return PromptEncoder(tokenizer, template_options=options, max_length=limit)


def parse_template_options(text: str) -> dict[str, Any]:
    """What a chat template gets besides the messages: a JSON object, or "" for nothing.

    Raises:
      InputError: ``text`` is not a JSON object.
    """
    try:
        options = json.loads(text or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InputError(
            f"template_options is {text!r}: it must be a JSON object, such as "
            "'{\"enable_thinking\": false}', or empty."
        )
    return options


def check_sampling(max_new_tokens: int, temperature: float) -> None:
    """InputError where a generation's settings are out of range."""
    if max_new_tokens < 1 or temperature < 0:
        raise InputError(
            f"max_new_tokens is {max_new_tokens} and temperature {temperature}: "
            "at least 1 and at least 0 are wanted."
        )


def prompt_number(tokens: Sequence[int]) -> int:
    """What a prompt's draws depend on besides the seed, whatever else is in the call."""
    return zlib.crc32(np.array(tokens, np.int32).tobytes())


def _render(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, template_options: Mapping[str, Any]
) -> str:
    if not tokenizer.chat_template:
        raise InputError(
            "The model's tokenizer has no chat template: give prompts as strings, or take the "
            "model's instruction-tuned variant."
        )
    messages = [{"role": m.role, "content": m.content} for m in prompt if not isinstance(m, str)]
    try:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **template_options
        )
    except TemplateError as error:
        roles = ", ".join(m["role"] for m in messages)
        raise InputError(f"The chat template refuses messages ({roles}): {error}") from error
    return str(text)


def end_tokens(path: Path, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """Every token that ends an answer, by generation_config.json, config and tokenizer."""
    named: list[Any] = [tokenizer.eos_token_id, read_config(path).get("eos_token_id")]
    generation = Path(path) / "generation_config.json"
    if generation.exists():
        named.append(read_json(generation).get("eos_token_id"))
    lists = [value if isinstance(value, list) else [value] for value in named]
    return tuple(sorted({token for tokens in lists for token in tokens if token is not None}))


class AnswerReader:
    """Turns the tokens that a model made into a `Generation`.

    Args:
      ends: tokens that end an answer.
      stop: strings that end it too; the first to occur counts, and the text is cut before it.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, ends: Sequence[int], stop: Sequence[str]
    ) -> None:
        self._tokenizer, self._ends, self._stop = tokenizer, frozenset(ends), tuple(stop)

    def read(
        self, tokens: Sequence[int], logprobs: Sequence[float], *, prompt_tokens: int
    ) -> Generation:
        """The answer in ``tokens``, which may run on after its end."""
        end = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        kept = len(tokens) if end is None else end
        text, reason = self._text(tokens[:kept]), "length" if end is None else "end"
        if end is not None:
            kept += 1
        if self._cut(text) is not None:
            # how many tokens it took: the end token, if any, came after
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
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        return min(places, default=None)

    def _text(self, tokens: Sequence[int]) -> str:
        text = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)
