"""The page of all claims: what the paper says and prints, and our verdicts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.printable import html_text
from jaxrag.evaluation.summary import shown_name
from jaxrag.reproduction import page
from jaxrag.reproduction.cells import read_cells
from jaxrag.reproduction.claims import (
    Claim,
    Comparison,
    FigureClaim,
    compare,
    compare_points,
    overall,
    printed_effects,
)
from jaxrag.reproduction.listing import read_result, result_files
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL
from jaxrag.reproduction.printed.tables import PAPERS, printed_tables
from jaxrag.types import InputError

LEAST = 1.0
"""Parameters, in billions, of a reader whose table judges claims."""

_HEAD = """# Claims of the papers

Made by `jaxrag reproduce --claims=docs/claims.md` from the records of tables and figures whose
readers have at least one billion parameters; claims about others are not listed, nor those about
the share of questions that retrieve where `--thresholds` sets it. Each comparison is computed from
the records' values of single questions when this page is written: paired over the questions that
both sides answered, with a 95 % interval and a sign-flip test whose p-value is adjusted for the
number of the claim's comparisons that were made (Holm). Where trainings have seeds, both are over
seeds and questions, by Student's distribution. Where the sides share no questions, they are
compared as independent means ("not paired").

With the paper's models and data, a claim is **replicated** if the difference is above zero with
p < 0.05 for every comparison, **contradicted** if it is below zero so for at least one, else
**undecided**, or **incomplete** while comparisons lack. With any substitute the words are **same
direction**, **opposite** and **open**: such a result is on the method with these models and data,
not on the paper. Where p decides nothing, the page says how many questions of each data set would
decide it at the difference that the paper prints, with a power of 80 %. "In the paper" has the
printed differences, better is positive, and how many of them agree with the claim.
"""

NONE = "No table of a reader with at least one billion parameters has been made yet.\n"

_WORDS = {"replicated": "same direction", "contradicted": "opposite", "undecided": "open"}
"""Words for verdicts on other models or data, which do not judge the paper's."""

_ORDER = ("replicated", "contradicted", "undecided", "not measured")


class JudgedClaim(NamedTuple):
    """A claim's comparisons by the record of its table or figure, and that record's file."""

    claim: Claim | FigureClaim
    comparisons: Sequence[Comparison]
    record: Mapping[str, Any]
    file: Path


def judge(
    claims: Sequence[Claim | FigureClaim], record: Mapping[str, Any], file: Path
) -> list[JudgedClaim]:
    """A record's claims; none if a reader is small or unknown; InputError if it is damaged."""
    sizes = record.get("parameters") or {"": None}
    if not all(size is not None and size >= LEAST for size in sizes.values()):
        return []
    name, judged = record["name"], list[JudgedClaim]()
    cells, shares_set = read_cells(record, file), record.get("thresholds")
    for claim in claims:
        if shares_set and isinstance(claim, Claim) and claim.metric.endswith("_ratio"):
            continue
        try:
            if isinstance(claim, Claim) and claim.table == name:
                compared = compare(claim, printed_tables()[name], cells)
            elif isinstance(claim, FigureClaim) and claim.figure == name:
                compared = compare_points(claim, record["pictures"])
            else:
                continue
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"{file} does not fit the claim {claim.id} ({error!r}): make {name} again."
            ) from error
        if any(c.ours for c in compared):
            judged.append(JudgedClaim(claim, compared, record, file))
    return judged


def word(verdict: str, record: Mapping[str, Any]) -> str:
    """A verdict in the words of a record: of the paper's models and data, or of others."""
    return verdict if _is_paper_setting(record) else _WORDS.get(verdict, verdict)


def _is_paper_setting(record: Mapping[str, Any]) -> bool:
    return record["scale"] == "paper" and not record.get("substitutes")


def claims_page(claims: Sequence[Claim | FigureClaim], workdir: Path, own: Path) -> str:
    """The page as Markdown, from the records in the folders of ``workdir``; it lies in ``own``."""
    names = dict.fromkeys(c.table if isinstance(c, Claim) else c.figure for c in claims)
    files = [file for name in names for file in result_files([workdir], name).values()]
    judged = [item for file in files for item in judge(claims, read_result(file), file)]
    judged.sort(key=lambda item: claims.index(item.claim))
    parts = [_HEAD, *([] if judged else [NONE])]
    for paper in PAPERS:
        lines = [_line(item, own) for item in judged if item.claim.id.startswith(f"{paper}/")]
        if lines:
            name = next(t.paper for i, t in printed_tables().items() if i.startswith(paper))
            heads = ("claim", "in the paper", "result", "measured with")
            parts += [f"## {name}\n", page.html_table(heads, lines)]
    return "\n".join(parts)


def _line(judged: JudgedClaim, own: Path) -> tuple[str, str, str, str]:
    claim, record = judged.claim, judged.record
    printed, metric = "drawn, without numbers", ""
    if isinstance(claim, Claim):
        printed = _printed(claim)
        each = claim.metric == MEAN_OF_ALL and claim.over == "each"
        metric = ", each column" if each else f", {claim.metric.replace('_', ' ')}"
    models = ", ".join(map(shown_name, record.get("models", ())))
    facts = (models, f"scale {record['scale']}", *record.get("settings", ()), record["date"])
    texts = [comparison_text(c, record) for c in judged.comparisons if c.ours]
    return (
        html_text(f"{claim.text} ({claim.source}{metric})"),
        printed,
        page.opening(_summary(judged), texts),
        page.link(", ".join(filter(None, facts)), os.path.relpath(judged.file, own)),
    )


def _printed(claim: Claim) -> str:
    effects = printed_effects(claim, printed_tables()[claim.table])
    if not effects:
        return "nothing printed"
    digits = _digits(printed_tables()[claim.table].units[claim.metric])
    holds = sum(effect > 0 for effect in effects)
    return f"{_range(effects, digits)}; holds for {holds} of {len(effects)}"


def _summary(judged: JudgedClaim) -> str:
    """Verdict, difference or their range, and how many questions would decide it."""
    comparisons, record = judged.comparisons, judged.record
    measured = [c for c in comparisons if c.ours is not None]
    verdict = overall(comparisons)
    text = f"{'incomplete' if verdict == 'not measured' else word(verdict, record)}: "
    if len(comparisons) == 1:
        text += _difference(comparisons[0])
    else:
        means = [c.ours.mean for c in measured if c.ours]
        counts = Counter(c.verdict for c in comparisons)
        words = (f"{counts[v]} {word(v, record)}" for v in _ORDER if counts[v])
        text += f"{_range(means, _digits(measured[0].unit))}; {', '.join(words)}"
    if needed := max(c.needed or 0 for c in measured):
        text += f"; {needed:,} questions would decide"
    return text


def comparison_text(c: Comparison, record: Mapping[str, Any]) -> str:
    """A measured comparison in one line: difference, n, p, that of the paper, and the verdict."""
    assert c.ours is not None
    parts = [f"{c.subject}: {_difference(c)}"]
    parts += [f"n = {c.ours.n:,}"] if c.ours.n else []
    parts += [] if c.once else [f"p = {c.p:.2g}"]
    parts += ["measured once"] if c.once else [] if c.paired else ["not paired"]
    if c.printed is not None and _is_paper_setting(record):
        parts.append(f"printed {c.printed:+.{_digits(c.unit)}f}")
    parts += [f"{c.needed:,} questions would decide"] if c.needed else []
    return html_text(f"{', '.join(parts)}: {word(c.verdict, record)}")


def _difference(c: Comparison) -> str:
    """Our difference with its interval."""
    assert c.ours is not None
    digits = _digits(c.unit)
    mean, low, high = (f"{value:+.{digits}f}" for value in c.ours[:3])
    return mean if c.once else f"{mean} [{low}, {high}]"


def _digits(unit: str) -> int:
    return 3 if unit == "fraction" else 2


def _range(values: Sequence[float], digits: int) -> str:
    ends = dict.fromkeys(f"{value:+.{digits}f}" for value in (min(values), max(values)))
    return " to ".join(ends)
