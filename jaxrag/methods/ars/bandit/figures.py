"""Figures of the bandit report: learning curves, policies, choices of K, effect of lambda."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.figures import figure

_POINTS = 160
_REFERENCES = ("best fixed K", "oracle", "random K")
_LABEL = 11  # pixels that a label is high
Table = Mapping[str, Any]
Line = Mapping[str, Any]


def learning(table: Table, lines: Sequence[Line]) -> str:
    """Mean reward of the learner by epoch, on training and test questions."""
    learner = _learner(table)
    mine = [one for one in lines if one["scheme"] == "weighted" and one["policy"] == learner]
    if not mine:
        return ""
    curves = {part: _curve(mine, part) for part in ("train", "test")}
    note = f"{learner}: mean of {len(mine)} seeds, band: one standard deviation. "
    note += "Dotted: oracle, best fixed K and random K on the test questions."
    return _curves_figure(table, curves, f"Reward by epoch, {learner}", note)


def side_by_side(table: Table, lines: Sequence[Line]) -> str:
    """Mean test reward by epoch of every trained policy; empty for a single one."""
    mine = [one for one in lines if one["scheme"] == "weighted"]
    names = list(dict.fromkeys(one["policy"] for one in mine))
    if len(names) < 2:
        return ""
    curves = {name: _curve([o for o in mine if o["policy"] == name], "test") for name in names}
    note = "Test questions; mean over seeds, band: one standard deviation. Dotted: oracle, best "
    return _curves_figure(table, curves, "Policies by epoch", note + "fixed K and random K.")


def _curve(lines: Sequence[Line], part: str) -> Float[np.ndarray, "s e"]:
    return np.array([one[part] for one in lines], np.float64)


def _curves_figure(
    table: Table, curves: Mapping[str, Float[np.ndarray, "s e"]], title: str, note: str
) -> str:
    references = [_row(table, name)["means"]["reward"]["mean"] for name in _REFERENCES]
    bands = {name: (values.mean(0), _std(values)) for name, values in curves.items()}
    low = min(*references, *((mean - std).min() for mean, std in bands.values()))
    high = max(*references, *((mean + std).max() for mean, std in bands.values()))
    epochs = max(values.shape[1] for values in curves.values())
    x = svg.x_scale(0, max(epochs, 2))
    y = svg.y_scale(math.floor(low * 10) / 10, math.ceil(high * 10 + 1e-6) / 10)
    parts = [svg.axes(x, y, x_title="epoch", y_title="reward")]
    for value in references:
        parts.append(svg.line(svg.LEFT, y(value), svg.RIGHT, y(value), kind="rule"))
    for i, (mean, std) in enumerate(bands.values()):
        at = np.unique(np.linspace(0, len(mean) - 1, _POINTS).astype(int))
        upper = [(x(e + 1), y(mean[e] + std[e])) for e in at]
        lower = [(x(e + 1), y(mean[e] - std[e])) for e in at[::-1]]
        kind = f"c{(i + 1) % svg.COLOURS}"
        parts.append(svg.path(upper + lower, kind=f"band {kind}", closed=True))
        parts.append(svg.path([(x(e + 1), y(mean[e])) for e in at], kind=f"curve {kind}"))
    for at, text in labels({n: y(v) for n, v in zip(_REFERENCES, references, strict=True)}).items():
        parts.append(svg.text(svg.RIGHT, at - 4, text, anchor="end", kind="tick halo"))
    parts += _key(list(bands))
    return figure(title, svg.drawing(parts, alt=title), note)


def labels(heights: Mapping[str, float]) -> dict[float, str]:
    """Labels of horizontal lines by height, from the top; lines close together share one."""
    found: dict[float, str] = {}
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        last = next(reversed(found), -math.inf)
        if height - last < _LABEL:
            found[last] += f", {name}"
        else:
            found[height] = name
    return found


def _key(names: Sequence[str]) -> list[str]:
    """The legend, in two columns above the plot."""
    parts = []
    for i, name in enumerate(names):
        left, base = svg.LEFT + 80 + 135 * (i % 2), 10 + 14 * (i // 2)
        parts.append(svg.rect(left, base - 9, 10, 10, kind=f"win c{(i + 1) % svg.COLOURS}"))
        parts.append(svg.text(left + 14, base, name, kind="name"))
    return parts


def _std(values: Float[np.ndarray, "s e"]) -> Float[np.ndarray, " e"]:
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def policy_bars(table: Table) -> str:
    """Mean test reward of every policy under the weights, with intervals."""
    rows = [row for row in table["results"] if row["penalty"] is None]
    top = svg.nice_top(max(row["means"]["reward"]["high"] for row in rows))
    x = svg.Scale(0, top, 138, svg.RIGHT)
    step, thick = 21, 13
    parts = []
    for i, row in enumerate(rows):
        one, base = row["means"]["reward"], svg.TOP + i * step
        middle = base + thick / 2
        kind = "win c1" if row["seeds"] else "wrong"
        tip = f"{row['policy']}: {one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
        parts.append(svg.text(130, middle + 4, row["policy"], anchor="end", kind="name"))
        parts.append(svg.rect(x(0), base, x(one["mean"]) - x(0), thick, kind=kind, tip=tip))
        parts.append(svg.line(x(one["low"]), middle, x(one["high"]), middle, kind="whisker"))
    bottom = svg.TOP + step * len(rows)
    for name, anchor, aside in zip(_REFERENCES[:2], ("end", "start"), (3, -3), strict=True):
        at = x(_row(table, name)["means"]["reward"]["mean"])
        parts.append(svg.line(at, svg.TOP - 6, at, bottom, kind="rule"))
        parts.append(svg.text(at + aside, svg.TOP - 11, name, anchor=anchor, kind="tick"))
    for tick in svg.nice_ticks(0, top):
        parts.append(svg.text(x(tick), bottom + 12, svg.brief(tick), anchor="middle", kind="tick"))
    drawing = svg.drawing(parts, alt="Mean test reward by policy", height=bottom + 20)
    note = "Mean reward on the test questions after the last epoch, 95 % intervals over questions. "
    return figure("Policies", drawing, note + "Grey: not trained.")


def choices(table: Table) -> str:
    """Histograms of the K that the learner chose for the test questions, by reward scheme."""
    learner = _learner(table)
    rows = [row for row in table["results"] if row["policy"] == learner]
    arms, height, gap = table["arms"], 46, 26
    top = svg.nice_top(max(max(row["share_of_k"]) for row in rows))
    left, wide = 100, (svg.RIGHT - 100) / arms
    parts = []
    for i, row in enumerate(rows):
        floor = svg.TOP + (i + 1) * height + i * gap
        y = svg.Scale(0, top, floor, floor - height)
        parts.append(
            svg.text(left - 8, floor - height / 2, row["scheme"], anchor="end", kind="name")
        )
        mean = f"mean {row['means']['k']['mean']:.1f}"
        parts.append(svg.text(left - 8, floor - height / 2 + 14, mean, anchor="end", kind="tick"))
        parts.append(svg.line(left, floor, svg.RIGHT, floor, kind="axis"))
        for a, share in enumerate(row["share_of_k"]):
            at, tip = left + a * wide, f"K = {a + 1}: {100 * share:.1f} %"
            kind = f"win c{(i + 1) % svg.COLOURS}"
            parts.append(svg.rect(at + 2, y(share), wide - 4, floor - y(share), kind=kind, tip=tip))
            if share >= 0.005:
                percent = f"{100 * share:.0f}"
                parts.append(
                    svg.text(at + wide / 2, y(share) - 3, percent, anchor="middle", kind="tick")
                )
    bottom = svg.TOP + len(rows) * height + (len(rows) - 1) * gap
    for a in range(arms):
        where = left + (a + 0.5) * wide
        parts.append(svg.text(where, bottom + 16, str(a + 1), anchor="middle", kind="tick"))
    parts.append(svg.text((left + svg.RIGHT) / 2, bottom + 34, "K", anchor="middle", kind="label"))
    drawing = svg.drawing(parts, alt="Chosen K by reward scheme", height=bottom + 42)
    note = f"Percent of the test questions for which {learner} chose each K, over all seeds."
    return figure("Chosen K", drawing, note)


def penalties(table: Table) -> str:
    """Accuracy of the learner against its mean K, a point for each lambda, with intervals."""
    learner = _learner(table)
    rows = [r for r in table["results"] if r["policy"] == learner and r["penalty"] is not None]
    if len(rows) < 2:
        return ""
    found = [(row["penalty"], row["means"]["k"], row["means"]["correct"]) for row in rows]
    low = 100 * min(one["low"] for *_, one in found)
    high = 100 * max(one["high"] for *_, one in found)
    x = svg.x_scale(0, table["arms"])
    y = svg.y_scale(math.floor(low / 10) * 10, max(math.ceil(high / 10), low // 10 + 1) * 10)
    parts = [svg.axes(x, y, x_title="mean K", y_title="accuracy %")]
    for i, (penalty, k, right) in enumerate(found):
        px, py, kind = x(k["mean"]), y(100 * right["mean"]), f"bar c{(i + 2) % svg.COLOURS}"
        parts.append(svg.line(px, y(100 * right["low"]), px, y(100 * right["high"]), kind=kind))
        parts.append(svg.line(x(k["low"]), py, x(k["high"]), py, kind=kind))
        tip = f"lambda {penalty:g}: {100 * right['mean']:.1f} %, mean K {k['mean']:.1f}"
        parts.append(svg.marker(px, py, i + 2, tip=tip))
        at = svg.BOTTOM - 14 - 17 * (len(found) - 1 - i)
        parts.append(svg.marker(svg.LEFT + 14, at, i + 2, size=4))
        parts.append(svg.text(svg.LEFT + 24, at + 4, f"lambda {penalty:g}", kind="name halo"))
    drawing = svg.drawing(parts, alt="Accuracy against mean K by lambda")
    return figure("Lambda", drawing, "The learner's test questions; 95 % intervals of both.")


def _learner(table: Table) -> str:
    """The policy that is trained under all schemes, which is the first of the first scheme."""
    return table["results"][0]["policy"]


def _row(table: Table, policy: str) -> Mapping[str, Any]:
    """A policy's row under the weights."""
    return next(r for r in table["results"] if r["policy"] == policy and r["penalty"] is None)
