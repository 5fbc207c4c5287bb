"""A page's figures as SVG files, in literal light colours: converters know no CSS variables."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path

from jaxrag.core.durable_files import write_text
from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.document import part
from jaxrag.types import InputError

_SECTION = re.compile(r"<section><h2>(.*?)</h2>", re.DOTALL)
_LEGEND = re.compile(r'<div class="legend"[^>]*>(.*?)</div>', re.DOTALL)
_ENTRY = re.compile(r"<span><svg [^>]*>(.*?)</svg>(.*?)</span>", re.DOTALL)
_FIGURE = re.compile(
    r'<figure><figcaption>(?P<title>.*?)</figcaption><svg viewBox="0 0 (?P<width>\d+) '
    r'(?P<height>\d+)"[^>]*>(?P<drawn>.*?)</svg>',
    re.DOTALL,
)
_BY_RUN = re.compile(r'class="(?:mark|curve) c\d')
_MARGIN, _HEAD, _LINE = 14, 36, 20
_NAME = 80  # characters of a file's name; the title may be a question


def write_figures(page: str | Path, directory: str | Path) -> list[Path]:
    """Writes a page's figures, named by section and title; InputError if it has none."""
    figures = list(figures_of(Path(page).read_text("utf-8")))
    if not figures:
        raise InputError(f"{page} has no figures that could be written to {directory}.")
    files: list[Path] = []
    Path(directory).mkdir(parents=True, exist_ok=True)
    for title, drawn in figures:
        stem = "-".join(re.findall(r"[^\W_]+", title.lower()))[:_NAME]
        file = Path(directory) / f"{stem}.svg"
        for number in range(2, len(figures) + 1):
            if file not in files:
                break
            file = file.with_name(f"{stem}-{number}.svg")
        write_text(file, drawn)
        files.append(file)
    return files


def figures_of(page: str) -> Iterator[tuple[str, str]]:
    """Title and whole SVG of each figure of a report page, given as HTML."""
    _, *parts = _SECTION.split(page)
    for section, content in zip(parts[::2], parts[1::2], strict=True):
        legend = [entry for row in _LEGEND.findall(content) for entry in _ENTRY.findall(row)]
        for match in _FIGURE.finditer(content):
            marks = legend if _BY_RUN.search(match["drawn"]) else []
            yield unescape(f"{section}: {match['title']}"), _alone(match, marks)


def _alone(figure: re.Match[str], legend: Sequence[tuple[str, str]]) -> str:
    """A whole SVG file: title, drawing, and the legend's marks and names."""
    drawn_width, drawn_height = int(figure["width"]), int(figure["height"])
    columns = 2 if len(legend) > 3 else 1
    below = _LINE * -(-len(legend) // columns)
    parts = [f'<text x="0" y="{_HEAD - 14}" class="name title">{figure["title"]}</text>']
    parts.append(f'<g transform="translate(0 {_HEAD})">{figure["drawn"]}</g>')
    for place, (mark, name) in enumerate(legend):
        x = svg.LEFT + place % columns * (drawn_width - svg.LEFT) // columns
        y = _HEAD + drawn_height + _LINE * (place // columns)
        entry = f'{mark}<text x="20" y="11" class="name">{name}</text>'
        parts.append(f'<g transform="translate({x} {y})">{entry}</g>')
    width = drawn_width + 2 * _MARGIN
    height = _HEAD + drawn_height + below + _MARGIN
    box = f'x="{-_MARGIN}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{_style()}</style>'
        f'<rect {box} class="paper"/>{"".join(parts)}</svg>\n'
    )


@functools.cache
def _style() -> str:
    """The rules of figures.css with literal light colours; one rule for each run's colour."""
    css = part("figures.css")
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", css[: css.index("}")]))
    runs = dict(re.findall(r"svg \.(\w+) \{ --c: var\(--(\w+)\); \}", css))
    rules = ["text.title { font-size: 15px; }", f".paper {{ fill: {values['paper']}; }}"]
    for selector, body in re.findall(r"svg ([.\w]+) \{ ((?!--c:)[^}]*) \}", css):
        names = runs if "var(--c)" in body else [""]
        for name in names:
            resolved = body.replace("var(--c)", f"var(--{runs.get(name, '')})")
            resolved = re.sub(r"var\(--([\w-]+)\)", lambda match: values[match[1]], resolved)
            rules.append(f"{selector}{'.' * bool(name)}{name} {{ {resolved} }}")
    return " ".join(rules)
