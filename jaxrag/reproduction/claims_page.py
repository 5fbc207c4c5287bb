"""The page of all claims: what the paper says and prints, and our verdict at each scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.evaluation.printed import PAPERS, PrintedTable, printed_tables
from jaxrag.reproduction.cells import read_cells
from jaxrag.reproduction.claims import Claim, as_json, compare, printed_effects
from jaxrag.reproduction.figure_claims import FigureClaim, compare_points
from jaxrag.reproduction.listing import read_result, result_file
from jaxrag.reproduction.tables import Scale
from jaxrag.text.printable import markdown_text
from jaxrag.types import InputError

Found = tuple[dict[str, Any], dict[str, Any]]
"""A claim's verdict, and the record of its table."""

_HEAD = """# Claims of the papers, and verdicts

Made by `python -m experiments.reproduce --claims=docs/claims.md` from the tables that were
reproduced; each verdict is tied to cells of the named table, or to points of the named figure.

- replicated: for every comparison of the claim, the 95 % interval of the difference (paired over
  questions) is above zero;
- contradicted: for at least one it is below zero;
- undecided: otherwise. The number of questions (of each data set) is what would decide the last of
  its comparisons, at the difference that the paper prints and with a power of 80 %.

Claims that are younger than a table's record are judged by the means in its cells, and those about
figures by their points, unless the record holds the values of questions: such means are compared as
independent ones ("not paired"), so these intervals are usually wider than paired ones.

"In the paper": the printed differences, better is positive, and for how many of the comparisons
the paper's own table agrees with its claim. At the scale small other, much smaller models answer
questions that partly stand for other sets: a verdict there is on the method with such models, not
on the paper. The scale tiny tests the code and gives no verdicts.
"""

_SCALES: tuple[Scale, ...] = ("small", "paper")


def claims_page(
    claims: Sequence[Claim], figure_claims: Sequence[FigureClaim], workdir: Path
) -> str:
    """The page as Markdown, from the results in a working directory."""
    results: dict[Scale, dict[str, Found]] = {}
    for scale in _SCALES:
        found = _records(claims, workdir, scale) | _of_figures(figure_claims, workdir, scale)
        if found:
            results[scale] = found
    shown = list(results)
    parts = [_HEAD] if shown else [_HEAD, "No table has been made at these scales yet.\n"]
    for paper in PAPERS:
        own = [claim for claim in claims if claim.id.startswith(f"{paper}/")]
        drawn = [claim for claim in figure_claims if claim.id.startswith(f"{paper}/")]
        if own:
            parts.append(_section(own, drawn, results, shown))
    parts += [_measured_with(scale, results[scale]) for scale in shown]
    return "\n".join(parts)


def _records(claims: Sequence[Claim], workdir: Path, scale: Scale) -> dict[str, Found]:
    """What was found, by claim."""
    found = {}
    for table in dict.fromkeys(claim.table for claim in claims):
        file = result_file(workdir, scale, table, "json")
        if not file.is_file():
            continue
        record = read_result(file)
        try:
            judged = {one["id"]: one for one in record.get("claims", ())}
            judged |= {
                claim.id: _by_cells(claim, record, file)
                for claim in claims
                if claim.table == table and claim.id not in judged
            }
            for name, one in judged.items():
                _verdict(one)
                found[name] = one, record
            _models(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{file} has claims that cannot be read ({error!r}): make the table again."
            ) from error
    return found


def _by_cells(claim: Claim, record: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """A claim judged by the means in a record, which was made before the claim."""
    comparisons = compare(claim, printed_tables()[claim.table], read_cells(record, file))
    return as_json(claim.id, comparisons)


def _of_figures(claims: Sequence[FigureClaim], workdir: Path, scale: Scale) -> dict[str, Found]:
    """The verdicts on claims about figures, from their records."""
    found = {}
    for claim in claims:
        file = result_file(workdir, scale, claim.figure, "json")
        if not file.is_file():
            continue
        record = read_result(file)
        try:
            comparisons = compare_points(claim, record["pictures"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"{file} has no points of the claim {claim.id} ({error!r}): make the figure again."
            ) from error
        found[claim.id] = as_json(claim.id, comparisons), record
    return found


def _section(
    claims: Sequence[Claim],
    drawn: Sequence[FigureClaim],
    results: Mapping[Scale, Mapping[str, Found]],
    shown: Sequence[Scale],
) -> str:
    tables = printed_tables()
    lines = [f"## {tables[claims[0].table].paper}", ""]
    lines.append(f"| {' | '.join(['claim', 'in the paper', *shown])} |")
    lines.append("|" + " --- |" * (2 + len(shown)))
    for claim in claims:
        cells = [f"{claim.text} ({claim.source}, {claim.metric.replace('_', ' ')})"]
        cells.append(_printed(claim, tables[claim.table]))
        lines.append(_line(claim.id, cells, results, shown))
    for claim in drawn:
        cells = [f"{claim.text} ({claim.source})", "drawn, without numbers"]
        lines.append(_line(claim.id, cells, results, shown))
    return "\n".join([*lines, ""])


def _line(
    claim: str,
    cells: Sequence[str],
    results: Mapping[Scale, Mapping[str, Found]],
    shown: Sequence[Scale],
) -> str:
    known = (results[scale].get(claim) for scale in shown)
    verdicts = (_verdict(one[0]) if one else "not measured" for one in known)
    return f"| {' | '.join([*cells, *verdicts])} |"


def _printed(claim: Claim, printed: PrintedTable) -> str:
    effects = printed_effects(claim, printed)
    if not effects:
        return "nothing printed"
    digits = 3 if printed.units[claim.metric] == "fraction" else 2
    low, high = min(effects), max(effects)
    text = f"{low:+.{digits}f}" if low == high else f"{low:+.{digits}f} to {high:+.{digits}f}"
    holds = sum(effect > 0 for effect in effects)
    return f"{text}; holds for {holds} of {len(effects)}"


def _verdict(found: Mapping[str, Any]) -> str:
    """A verdict in a cell: of one comparison with its interval, of more with their counts."""
    comparisons = [one for one in found["comparisons"] if one["ours"] is not None]
    if not comparisons:
        return "not measured"
    digits = 3 if comparisons[0]["unit"] == "fraction" else 2
    needed = max((one["needed"] or 0 for one in comparisons), default=0)
    decide = f"; {needed:,} questions would decide" if needed else ""
    if len(comparisons) == 1:
        ours = comparisons[0]["ours"]
        mean, low, high = (f"{ours[name]:+.{digits}f}" for name in ("mean", "low", "high"))
        text = f"{mean} [{low}, {high}]" + (f", n = {ours['n']:,}" if ours["n"] else "")
        if not (ours["low"] or ours["high"] or comparisons[0].get("once")):
            text += "; all differences are 0, so no number of questions follows"
    else:
        counts = Counter(one["verdict"] for one in comparisons)
        text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    if not all(one.get("paired", True) for one in comparisons):
        decide += "; not paired"
    if any(one.get("once") for one in comparisons):
        decide += "; measured once, without an interval"
    return f"**{markdown_text(found['verdict'])}**: {text}{decide}"


def _measured_with(scale: Scale, results: Mapping[str, Found]) -> str:
    records = {record["name"]: record for _, record in results.values()}
    lines = [f"Scale {scale}:", ""]
    for name, record in records.items():
        lines.append(f"- {markdown_text(name)}: {_models(record)}, {markdown_text(record['date'])}")
    return "\n".join([*lines, ""])


def _models(record: Mapping[str, Any]) -> str:
    """The language models of a table's runs, if known, and how many questions they were asked."""
    models = ", ".join(map(markdown_text, record.get("models", ())))
    limit = f"first {record['limit']:,} questions" if record.get("limit") else ""
    return ", ".join(part for part in (models, limit) if part) or "all questions"
