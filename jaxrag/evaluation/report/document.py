"""The frame of report pages: one self-contained HTML file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any


def part(name: str) -> str:
    """Contents of a file of the folder ``templates``."""
    return (
        resources.files("jaxrag.evaluation.report").joinpath("templates", name).read_text("utf-8")
    )


def document(
    *,
    title: str,
    lede: str,
    facts: Sequence[tuple[str, str]],
    sections: str,
    reading: Sequence[str],
    markdown: str,
    configs: str,
    scripts: str = "",
) -> str:
    """The whole page. ``sections``, ``configs`` and ``scripts`` are HTML; other texts are escaped.

    Args:
      title: the heading.
      lede: the sentence below the heading.
      facts: names and values in the page's head.
      sections: figures and tables.
      reading: paragraphs on how to read the page.
      markdown: the tables as text.
      configs: settings, see `configs`.
      scripts: scripts at the end.
    """
    return Template(part("page.html")).substitute(
        title=escape(title),
        lede=escape(lede),
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts),
        sections=sections,
        reading="".join(f"<p>{escape(paragraph)}</p>" for paragraph in reading),
        markdown=escape(markdown),
        configs=configs,
        scripts=scripts,
        style=part("figures.css") + part("style.css"),
    )


def configs(
    runs: Iterable[tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]],
) -> str:
    """HTML of settings that open on a click; ``runs`` are names, configs and environments."""
    parts = []
    for name, config, environments in runs:
        text = json.dumps({"config": config, "environments": environments}, indent=2)
        head = f"<summary>Settings of {escape(name)}</summary>"
        parts.append(f"<details>{head}<pre>{escape(text)}</pre></details>")
    return "".join(parts)


def machines(environments: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Facts for a page's head: devices, software versions and commits."""
    return once(
        {
            "Device": [_device(environment) for environment in environments],
            "Software": [_software(environment) for environment in environments],
            "Commit": [
                str(environment.get("commit") or "none")[:12] for environment in environments
            ],
        }
    )


def once(found: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Facts without repeated values; facts without a value are left out."""
    known = {name: [v for v in dict.fromkeys(values) if v] for name, values in found.items()}
    return [(name, "; ".join(values)) for name, values in known.items() if values]


def _device(environment: Mapping[str, Any]) -> str:
    devices = environment.get("devices", {})
    return ", ".join(
        [*(f"{n} × {kind}" for kind, n in devices.items()), environment.get("system", "")]
    )


def _software(environment: Mapping[str, Any]) -> str:
    packages = {"jaxrag": environment.get("jaxrag", ""), **environment.get("packages", {})}
    return ", ".join(f"{name} {packages[name]}" for name in ("jaxrag", "jax") if name in packages)
