"""Figures of the bandit report: learning curves and choices of K."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.report import plots, svg
from jaxrag.evaluation.report.document import colours
from jaxrag.evaluation.report.figures import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REFERENCES = {"best fixed K": "--", "oracle": ":", "random K": "-."}
"""Policies to compare with, and the styles of their lines."""

Table = Mapping[str, Any]
Line = Mapping[str, Any]


def figures(table: Table, lines: Sequence[Line]) -> list[str]:
    """All figures of a reward table of bandit.json, as HTML; lines are those of curves.jsonl."""
    learner, test = _learner(table), dict[str, list[Sequence[float]]]()
    weighted = [line for line in lines if line["scheme"] == "weighted"]
    for line in weighted:
        test.setdefault(line["policy"], []).append(line["test"])
    drawn, band = [], "band: one standard deviation. Lines: the "
    if seeds := test.get(learner):
        train = [line["train"] for line in weighted if line["policy"] == learner]
        note = f"{learner}: mean of {len(seeds)} seeds, {band}test "
        values = {"train": np.array(train), "test": np.array(seeds)}
        drawn.append(_rewards(table, values, f"Reward by epoch, {learner}", note))
    if len(test) > 1:
        values = {name: np.array(rewards) for name, rewards in test.items()}
        note = f"Test questions; mean over seeds, {band}"
        drawn.append(_rewards(table, values, "Policies by epoch", note))
    return [*drawn, choices(table)]


def _rewards(
    table: Table, values: Mapping[str, Float[np.ndarray, "s e"]], title: str, note: str
) -> str:
    def draw(axes: Axes, values: Mapping[str, Float[np.ndarray, "s e"]]) -> None:
        plots.draw_curves(axes, dict(enumerate(map(over_seeds, values.values()))))
        axes.set(xlabel="epoch", ylabel="reward")
        for name, style in _REFERENCES.items():
            row = next(r for r in table["results"] if r["policy"] == name and r["penalty"] is None)
            reward = row["means"]["reward"]["mean"]
            axes.axhline(reward, label=name, color=colours()[0]["soft"], linewidth=1.2, ls=style)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=10)

    return _figure(
        title, f"{note}rewards of {', '.join(_REFERENCES)}.", draw, [values], list(values)
    )


def over_seeds(values: Float[np.ndarray, "s e"]) -> plots.Curve:
    """Mean over seeds by epoch, with a band of one standard deviation on either side."""
    mean, std = values.mean(0), seeds_std(values)
    return plots.Curve(np.arange(1, len(mean) + 1), mean, mean - std, mean + std)


def seeds_std(values: Float[np.ndarray, "s e"]) -> Float[np.ndarray, " e"]:
    """Sample standard deviation over the seeds; 0 for a single one."""
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def choices(table: Table) -> str:
    """Histograms of the K that the learner chose for the test questions, by reward scheme."""
    learner = _learner(table)
    rows = [row for row in table["results"] if row["policy"] == learner]
    top = 150 * max(max(row["share_of_k"]) for row in rows)

    def draw(axes: Axes, number: int) -> None:
        row = rows[number]
        shares = 100 * np.array(row["share_of_k"])
        bars = axes.bar(np.arange(1, len(shares) + 1), shares, color=f"C{number + 1}")
        texts = [f"{share:.0f}" if share >= 0.5 else "" for share in shares]
        axes.bar_label(bars, texts, fontsize=9)
        mean = row["means"]["k"]["mean"]
        axes.set(title=f"{row['scheme']}: mean K {mean:.1f}", ylabel="%", ylim=(0, top))
        axes.set_xticks(np.arange(1, len(shares) + 1))
        if number == len(rows) - 1:
            axes.set_xlabel("K")

    note = f"Percent of the test questions for which {learner} chose each K, over all seeds."
    return _figure("Chosen K", note, draw, range(len(rows)), height=110)


def _figure(
    title: str,
    note: str,
    draw: Callable[[Axes, Any], None],
    panels: Sequence[Any],
    legend: Sequence[str] = (),
    height: int = plots.HEIGHT,
) -> str:
    width, full, drawn = plots.elements(draw, panels, legend, height=height)
    return figure(title, svg.drawing([drawn], alt=title, width=width, height=full), note)


def _learner(table: Table) -> str:
    """The policy that is trained under all schemes, which is the first of the first scheme."""
    return table["results"][0]["policy"]
