"""A hook of mkdocs: docstrings' references to headings of docs/methods.md become links."""

from __future__ import annotations

import logging
import posixpath
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify

log = logging.getLogger("mkdocs.plugins.method_links")  # its warnings end a strict build
_QUOTE = '(?:"|&quot;)'
_QUOTED = re.compile(f"{_QUOTE}(.+?){_QUOTE}", re.S)
_REFERENCE = re.compile(
    rf"docs/methods\.md,(?P<headings>(?:(?:,|\s+and)?\s+{_QUOTE}.+?{_QUOTE})+)", re.S
)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Links the references of the reference pages."""
    uri = page.file.src_uri
    if not uri.startswith("reference/"):
        return html
    target = posixpath.relpath("methods.html", posixpath.dirname(uri))
    return linked(html, target)


def on_post_build(*, config: Any) -> None:
    """Warns of links to headings that docs/methods.md has not; mkdocs does not see ours."""
    site = Path(config["site_dir"])
    anchors = set(re.findall(r'id="([^"]+)"', (site / "methods.html").read_text("utf-8")))
    for page in sorted((site / "reference").glob("*.html")):
        named = set(re.findall(r'\.\./methods\.html#([^"]+)"', page.read_text("utf-8")))
        for one in sorted(named - anchors):
            log.warning("%s links to methods.html#%s, which does not exist", page.name, one)


def linked(html: str, target: str) -> str:
    """``docs/methods.md, "HEADING"`` as a link to the heading's anchor in ``target``."""

    def link(found: re.Match[str]) -> str:
        heading = " ".join(unescape(found[1]).split())
        return f'<a href="{target}#{slugify(heading, "-")}">{escape(heading)}</a>'

    def links(found: re.Match[str]) -> str:
        return f'<a href="{target}">Methods</a>,{_QUOTED.sub(link, found["headings"])}'

    return _REFERENCE.sub(links, html)
