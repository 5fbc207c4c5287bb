"""A hook of mkdocs: the search finds guides first, without measurements; wide tables have room."""

from __future__ import annotations

from typing import Any

_LEFT_OUT = ("results/", "claims.md", "tpu.md", "gpu.md", "benchmarks.md")
_GUIDE = 2
_BOOST = {"concepts.md": 4, "reference/": 0.5, "tutorials/": 1, "road.md": 1}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Sets the page's ``search`` before its text is indexed; hides contents beside wide tables."""
    uri = page.file.src_uri
    if uri.startswith(_LEFT_OUT):
        page.meta["search"] = {"exclude": True}
    else:
        boosts = [boost for start, boost in _BOOST.items() if uri.startswith(start)]
        page.meta["search"] = {"boost": boosts[0] if boosts else _GUIDE}
    if uri.startswith(("results/", "tutorials/")):
        page.meta["hide"] = ["toc"]
    return markdown
