"""A hook of mkdocs: docstrings' references to headings of docs/methods become links."""

from __future__ import annotations

import functools
import logging
import posixpath
import re
from collections.abc import Mapping
from html import escape, unescape
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

METHODS = Path(__file__).parents[1] / "methods"
log = logging.getLogger("mkdocs.plugins.method_links")  # its warnings end a strict build
_QUOTE = '(?:"|&quot;)'
_QUOTED = re.compile(f"{_QUOTE}(.+?){_QUOTE}", re.S)
_REFERENCE = re.compile(
    rf"docs/methods,(?P<headings>(?:(?:,|\s+and)?\s+{_QUOTE}.+?{_QUOTE})+)", re.S
)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Links the references of the reference pages."""
    uri = page.file.src_uri
    if not uri.startswith("reference/"):
        return html
    return linked(html, posixpath.relpath("methods", posixpath.dirname(uri)), pages_of_headings())


@functools.cache
def pages_of_headings() -> dict[str, str]:
    """The name of the page in docs/methods that has a heading."""
    return {
        heading: path.stem
        for path in sorted(METHODS.glob("*.md"))
        for heading in re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.M)
    }


def linked(html: str, folder: str, pages: Mapping[str, str]) -> str:
    """``docs/methods, "HEADING"`` as a link to the heading's anchor on its page in ``folder``."""

    def link(found: re.Match[str]) -> str:
        heading = " ".join(unescape(found[1]).split())
        if heading not in pages:
            log.warning('a docstring names docs/methods, "%s": no page has this heading', heading)
            return found[0]
        address = f"{folder}/{pages[heading]}.html#{slugify(heading, '-')}"
        return f'<a href="{address}">{escape(heading)}</a>'

    def links(found: re.Match[str]) -> str:
        return f'<a href="{folder}/index.html">Methods</a>,{_QUOTED.sub(link, found["headings"])}'

    return _REFERENCE.sub(links, html)
