"""Renders chat templates; `jaxrag.core.bounded` runs it in a process of its own."""

from __future__ import annotations

import datetime
from typing import Any

from transformers.utils import chat_template_utils

_ADDED = 1_000_000  # characters that a template may add to messages


def render(template: str, messages: list[dict[str, str]], values: dict[str, Any]) -> str:
    """Messages (role and content) as the text that a model reads, by a template of Jinja's.

    It runs in transformers' sandbox; ``values`` are its further variables, and "date", the one that
    it takes for today's. MemoryError if the text exceeds four times the messages and a million
    characters; or whatever the template raises.
    """
    today = datetime.date.fromisoformat(values.pop("date"))
    # the same object as it compiles itself, whose clock is stopped
    compiled = chat_template_utils._compile_jinja_template(template)  # pyright: ignore[reportPrivateUsage]
    compiled.globals["strftime_now"] = today.strftime
    values = {"add_generation_prompt": False, **values}
    (text,), _ = chat_template_utils.render_jinja_template(
        [messages], chat_template=template, **values
    )
    if len(text) > _ADDED + 4 * sum(len(message["content"]) for message in messages):
        raise MemoryError("it writes over a million characters")
    return text
