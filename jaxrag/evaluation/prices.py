"""Prices of language models, for the cost of a run in US dollars.

A list is a JSON file: by model ``prompt`` and ``new``, dollars for a million tokens of prompts and
of generated text, and ``date``, when the price held. ``$JAXRAG_PRICES`` names a file of your own,
whose models are added to these, or replace them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.json_text import parse_json
from jaxrag.types import InputError

VARIABLE = "JAXRAG_PRICES"
_TOKENS = 1e6


class Price(NamedTuple):
    """Dollars for a million tokens read, and written, and the date YYYY-MM-DD when they held."""

    prompt: float
    new: float
    date: str

    def of_question(self, cost: Mapping[str, float]) -> float:
        """Dollars of a question's recorded cost, without the tokens of helper models."""
        prompt, new = (
            cost.get(kind, 0) - cost.get(f"helper_{kind}", 0)
            for kind in ("prompt_tokens", "new_tokens")
        )
        return (self.prompt * prompt + self.new * new) / _TOKENS


PRICES: Mapping[str, Price] = {
    "gpt-3.5-turbo": Price(0.5, 1.5, "2024-02-16"),
}
"""Published list prices. ERRR names neither snapshot nor prices of GPT-3.5-Turbo: these are of
gpt-3.5-turbo-0125, the model of that name when ERRR appeared."""


def prices() -> dict[str, Price]:
    """`PRICES`, with those of the file that ``$JAXRAG_PRICES`` names; InputError if invalid."""
    name = os.environ.get(VARIABLE)
    return {**PRICES, **(read_prices(Path(name)) if name else {})}


def read_prices(file: Path) -> dict[str, Price]:
    """Reads a list of prices; InputError as for `prices`."""
    try:
        content = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"list of prices: {file} is no readable JSON file ({error}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} is not an object of models by name.")
    return {model: _price(fields, f"{file}, {model!r}") for model, fields in content.items()}


def _price(fields: Any, where: str) -> Price:
    if not isinstance(fields, dict) or set(fields) != set(Price._fields):
        raise InputError(f"{where}: give an object with the fields {', '.join(Price._fields)}.")
    for name in ("prompt", "new"):
        value = fields[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise InputError(f"{where}: {name} is {value!r}; give dollars for a million tokens.")
    return Price(float(fields["prompt"]), float(fields["new"]), str(fields["date"]))
