"""A hook of mkdocs: the search finds guides first, without measurements; wide tables have room."""

from __future__ import annotations

from typing import Any

_LEFT_OUT = ("results/", "claims.md", "tpu.md", "gpu.md", "benchmarks.md")
_OTHERS = ("reference/", "tutorials/", "faults.md", "road.md")  # no guides


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Sets the page's ``search`` before its text is indexed, and hides contents beside results."""
    uri = page.file.src_uri
    if uri.startswith(_LEFT_OUT):
        page.meta["search"] = {"exclude": True}
    elif not uri.startswith(_OTHERS):
        page.meta["search"] = {"boost": 2}
    if uri.startswith("results/"):
        page.meta["hide"] = ["toc"]
    return markdown
