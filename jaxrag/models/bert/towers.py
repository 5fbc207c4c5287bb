"""Two networks, or one, that embed questions and passages, and their directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

Side = Literal["query", "passage"]
SIDES: tuple[Side, Side] = ("query", "passage")

Towers = dict[str, Any]
"""Parameters of two networks, for questions under "query" and for passages under "passage"; or of
one network for both, under "both"."""


def tower(params: Towers, side: Side) -> Any:
    """The parameters that embed questions, or passages."""
    return params["both"] if "both" in params else params[side]


def has_towers(path: Path) -> bool:
    """Whether the checkpoint at ``path`` has two towers."""
    return all((path / side / "config.json").is_file() for side in SIDES)


def tokenizer_path(path: Path) -> Path:
    """Directory with the tokenizer of a checkpoint: its own, or a tower's."""
    return path / SIDES[0] if has_towers(path) else path
