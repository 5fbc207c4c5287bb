"""The threshold explorer: a table of all thresholds, of which a script shows a row at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxrag.core.printable import html_text
from jaxrag.evaluation.policy import COSTS, Arms, GateSetting, cheapest
from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.tables import HEADINGS, Grid, number, with_interval


def explorer(arms: Arms, found: Sequence[GateSetting], labels: Sequence[str], figure: str) -> str:
    """HTML of the explorer of ``found``, the `settings` of ``arms``; ``labels`` are of all runs."""
    headings = ("threshold", "EM %", f"ΔEM vs {labels[arms.always]}", "retrieves %")
    grid = Grid((*headings, *(HEADINGS[name] for name in COSTS)), [*map(_cells, found)])
    x = svg.x_scale(0, 100)
    places = [f"{x(100 * (1 - gate.retrieves)):.1f}" for gate in found]
    # the setting at which the source was run, or the first one without a gate
    accepted = -math.inf if arms.accepted is None else arms.accepted
    start = max((i for i, gate in enumerate(found) if gate.accepted <= accepted), default=0)
    least = cheapest(found)
    buttons = {"Cheapest threshold within 1 point": least, "Always retrieve": 0}
    if start:
        buttons[f"As {labels[arms.source]} was run"] = start
    pressed = "".join(
        f'<button type="button" value="{at}">{html_text(name)}</button>'
        for name, at in buttons.items()
    )
    values = "".join(
        f'<div><dt>{html_text(heading)}</dt><dd data-column="{place}">{html_text(cell)}</dd></div>'
        for place, (heading, cell) in enumerate(zip(grid.headings, grid.rows[start], strict=True))
    )
    copied = ""
    if arms.accepted is not None and arms.same:  # there is a gate to set
        span = f'<span data-column="0">{html_text(grid.rows[start][0])}</span>'
        copied = f"<pre>--config.method.gate.threshold={span}</pre>"
    return (
        f'<div class="explorer" data-places="{" ".join(places)}"><h3>Other thresholds</h3>'
        f"<div>{figure}</div><div>"
        f'<div class="controls" hidden><input type="range" max="{len(found) - 1}" value="{start}"'
        f' autocomplete="off" aria-label="Threshold of u">{pressed}</div>'
        f'<dl class="facts" aria-live="polite">{values}</dl>'
        f"{copied}"
        f'<p class="note">{html_text(_runs_used(arms, labels))}</p></div>'
        f"<details><summary>All {len(found)} thresholds</summary>{grid.html()}</details></div>"
    )


def _cells(gate: GateSetting) -> tuple[str, ...]:
    return (
        repr(gate.threshold).removesuffix(".0"),
        " ".join(with_interval("exact_match", gate.exact_match)),
        "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * value for value in gate.difference[:3])),
        number("trigger", gate.retrieves),
        *(number(name, gate.costs[name]) for name in COSTS),
    )


def _runs_used(arms: Arms, labels: Sequence[str]) -> str:
    """Which runs the values are made of, and what is assumed."""
    source, always = labels[arms.source], labels[arms.always]
    n = f"{len(arms.u):,} questions"
    if arms.same and arms.accepted is not None:
        reference = f"{always}, the same method retrieving for all"
    else:
        reference = f"{always}: the values are those of a gate before it"
        if arms.accepted is not None:
            reference += f", not those of {source}, for which a run at threshold 0 is missing"
    return (
        f"From stored answers to {n}, nothing is asked again. Up to the threshold: the direct "
        f"answers of {source}; above it, and where these are empty: the answers of {reference}. A "
        "question that retrieves costs its direct answer, too. Cheapest: fewest tokens with an EM "
        "at most 1 point below always retrieving. A threshold chosen on these questions looks "
        "better on them than on others: confirm it there."
    )
