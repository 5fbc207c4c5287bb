"""The frame of report pages: one self-contained HTML file that needs no network."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from jaxrag.core.printable import html_text


def part(name: str) -> str:
    """Contents of a file of the folder ``templates``."""
    return (
        resources.files("jaxrag.evaluation.report").joinpath("templates", name).read_text("utf-8")
    )


@functools.cache
def colours() -> tuple[dict[str, str], dict[str, str]]:
    """The light and the dark colours of figures.css, by name."""
    blocks = re.findall(r":root \{(.*?)\}", part("figures.css"), re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", block)) for block in blocks)
    return light, dark


def document(
    *,
    title: str,
    lede: str,
    facts: Sequence[tuple[str, str]],
    sections: str,
    reading: Sequence[str],
    markdown: str,
    configs: str,
    script: str = "",
    data: str = "",
) -> str:
    """HTML of a whole page. ``sections`` and ``configs`` are HTML; other texts are escaped.

    ``lede`` is the sentence below the heading, ``facts`` are names and values there, ``reading``
    are paragraphs on how to read the page, ``markdown`` are its tables as text, and ``data`` is
    base64 that ``script`` reads. The page's policy lets the browser run this script and no other,
    and load nothing.
    """
    scripts = Template(part("scripts.html")).substitute(data=data, script=script) if script else ""
    return Template(part("page.html")).substitute(
        title=html_text(title),
        lede=html_text(lede),
        facts="".join(
            f"<div><dt>{html_text(name)}</dt><dd>{html_text(text)}</dd></div>"
            for name, text in facts
        ),
        sections=sections,
        reading="".join(f"<p>{html_text(paragraph)}</p>" for paragraph in reading),
        markdown=html_text(markdown),
        configs=configs,
        allowed=_allowed(script),
        scripts=scripts,
        style=part("figures.css") + part("style.css"),
    )


def _allowed(script: str) -> str:
    """The source in a Content-Security-Policy that allows one inline script, by its hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'" if script else "'none'"


def configs(
    runs: Iterable[tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]],
) -> str:
    """HTML of settings that open on a click; ``runs`` are names, configs and environments."""
    parts = []
    for name, config, environments in runs:
        text = json.dumps({"config": config, "environments": environments}, indent=2)
        head = f"<summary>Settings of {html_text(name)}</summary>"
        parts.append(f"<details>{head}<pre>{html_text(text)}</pre></details>")
    return "".join(parts)


def machines(environments: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Facts for a page's head: devices, software versions and commits."""
    return once(
        {
            "Device": [_device(machine) for machine in environments],
            "Software": [_software(machine) for machine in environments],
            "Commit": [str(machine.get("commit") or "none")[:12] for machine in environments],
        }
    )


def once(facts: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Facts without repeated values; facts without a value are left out."""
    distinct = {name: [v for v in dict.fromkeys(values) if v] for name, values in facts.items()}
    return [(name, "; ".join(values)) for name, values in distinct.items() if values]


def _device(environment: Mapping[str, Any]) -> str:
    devices = environment.get("devices", {})
    return ", ".join(
        [*(f"{n} × {kind}" for kind, n in devices.items()), environment.get("system", "")]
    )


def _software(environment: Mapping[str, Any]) -> str:
    packages = {"jaxrag": environment.get("jaxrag", ""), **environment.get("packages", {})}
    return ", ".join(f"{name} {packages[name]}" for name in ("jaxrag", "jax") if name in packages)
