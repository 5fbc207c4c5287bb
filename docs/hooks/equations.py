"""A hook of mkdocs: writes equations as MathML, which browsers draw without scripts."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(html: str, **_: Any) -> str:
    """Replaces the equations of a page, as pymdownx.arithmatex marks them."""
    return _EQUATION.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    return convert(unescape(found["latex"]), display=display)
