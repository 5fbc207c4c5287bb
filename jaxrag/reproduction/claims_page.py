"""The page of all claims: what the paper says and prints, and our result at each scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.printable import markdown_text
from jaxrag.reproduction.cells import read_cells
from jaxrag.reproduction.claims import Claim, as_json, compare, printed_effects
from jaxrag.reproduction.figure_claims import FigureClaim, compare_points
from jaxrag.reproduction.listing import read_result, result_file
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL
from jaxrag.reproduction.printed.models import shown_name
from jaxrag.reproduction.printed.tables import PAPERS, PrintedTable, printed_tables
from jaxrag.reproduction.tables import Scale
from jaxrag.types import InputError

Found = tuple[dict[str, Any], dict[str, Any]]
"""A claim's verdict, and the record of its table."""

_TITLES = {
    True: "# Claims of the papers, and verdicts",
    False: "# Claims of the papers: no verdict on this page is at the papers' scale",
}
"""Heading of the page: with results at the papers' scale, and without."""

_HEAD = """
Made by `python -m experiments.reproduce --claims=docs/claims.md` from the tables that were
reproduced; each comparison is tied to cells of the named table, or to points of the named figure.
At the scale small, much smaller models, such as SmolLM2-135M-Instruct, answer questions that partly
stand for other sets: a result there is on the method with such models, not on the paper. The scale
tiny tests the code and has no results here.

A result at the scale small, and the verdict at the papers' scale, are:

- same direction, replicated: for every comparison of the claim, the difference (paired over
  questions) is above zero with p < 0.05 by a sign-flip test, adjusted for the number of the claim's
  comparisons (Holm);
- opposite, contradicted: for at least one it is below zero so;
- open, undecided: otherwise. The number of questions (of each data set) is what would decide the
  last of its comparisons, at the difference that the paper prints and with a power of 80 %. There
  is none if all our differences are 0, or if the paper prints none.

The columns of a paper's first table:

- in the paper: the printed differences, better is positive, and for how many of the comparisons the
  paper's own table agrees with its claim;
- the name of a scale: our result and difference with its 95 % interval; of several comparisons the
  smallest and the largest difference, and the number of results. The table "each comparison" has
  their intervals, by the number of the claim. There "in the paper" is empty where our questions
  stand for another data set; n is the number of questions, or of seeds;
- measured with: the language models and the date, see also [records](#records).

All results are computed from the records' values of single questions when this page is written.
Where a record of an older version holds none, its means are compared as independent ones ("not
paired"), whose intervals are usually wider.
"""
_WORDS = {"replicated": "same direction", "contradicted": "opposite", "undecided": "open"}
"""Words for verdicts on small models, which do not judge the paper's."""

_SCALES: tuple[Scale, ...] = ("small", "paper")


def claims_page(
    claims: Sequence[Claim], figure_claims: Sequence[FigureClaim], workdir: Path
) -> str:
    """The page as Markdown, from the results in a working directory."""
    results: dict[Scale, dict[str, Found]] = {}
    for scale in _SCALES:
        judged = _records(claims, workdir, scale) | _of_figures(figure_claims, workdir, scale)
        if judged:
            results[scale] = judged
    scales = list(results)
    parts = [f"{_TITLES['paper' in results]}\n{_HEAD}"]
    parts += [] if scales else ["No table has been made at these scales yet.\n"]
    for paper in PAPERS:
        own = [claim for claim in claims if claim.id.startswith(f"{paper}/")]
        drawn = [claim for claim in figure_claims if claim.id.startswith(f"{paper}/")]
        if own:
            parts.append(_section(own, drawn, results, scales))
    parts += ["## Records\n"] if scales else []
    parts += [_measured_with(scale, results[scale]) for scale in scales]
    return "\n".join(parts)


def _records(claims: Sequence[Claim], workdir: Path, scale: Scale) -> dict[str, Found]:
    """What was found, by claim."""
    verdicts = {}
    for table in dict.fromkeys(claim.table for claim in claims):
        file = result_file(workdir, scale, table, "json")
        if not file.is_file():
            continue
        record = read_result(file)
        try:
            cells = read_cells(record, file)
            for claim in (claim for claim in claims if claim.table == table):
                judged = as_json(claim.id, compare(claim, printed_tables()[table], cells))
                verdicts[claim.id] = _worded(judged, scale), record
            _models(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{file} has claims that cannot be read ({error!r}): make the table again."
            ) from error
    return verdicts


def _of_figures(claims: Sequence[FigureClaim], workdir: Path, scale: Scale) -> dict[str, Found]:
    """The verdicts on claims about figures, from their records."""
    verdicts = {}
    for claim in claims:
        file = result_file(workdir, scale, claim.figure, "json")
        if not file.is_file():
            continue
        record = read_result(file)
        try:
            comparisons = compare_points(claim, record["pictures"])
            _models(record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"{file} has no points of the claim {claim.id} ({error!r}): make the figure again."
            ) from error
        verdicts[claim.id] = _worded(as_json(claim.id, comparisons), scale), record
    return verdicts


def _worded(judged: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """A claim in the words of a scale."""
    words = {} if scale == "paper" else _WORDS
    each = [{**c, "verdict": words.get(c["verdict"], c["verdict"])}
            for c in judged["comparisons"]]  # fmt: skip
    whole = words.get(judged["verdict"], judged["verdict"])
    return {**judged, "verdict": whole, "comparisons": each}


def _section(
    claims: Sequence[Claim],
    drawn: Sequence[FigureClaim],
    results: Mapping[Scale, Mapping[str, Found]],
    scales: Sequence[Scale],
) -> str:
    tables = printed_tables()
    lines = [f"## {tables[claims[0].table].paper}", ""]
    ours = [head for scale in scales for head in (scale, f"{scale}: measured with")]
    lines += _head("no.", "claim", "in the paper", *ours)
    for number, claim in enumerate(claims, 1):
        text = f"{claim.text} ({claim.source}, {_metric(claim)})"
        cells = [str(number), text, _printed(claim, tables[claim.table])]
        lines.append(_line(claim.id, cells, results, scales))
    for number, claim in enumerate(drawn, 1 + len(claims)):
        cells = [str(number), f"{claim.text} ({claim.source})", "drawn, without numbers"]
        lines.append(_line(claim.id, cells, results, scales))
    lines.append("")
    names = [claim.id for claim in (*claims, *drawn)]
    for scale in scales:
        lines += _each_comparison(tables[claims[0].table].paper, scale, names, results[scale])
    return "\n".join(lines)


def _head(*cells: str) -> list[str]:
    """The head of a table."""
    return [f"| {' | '.join(cells)} |", "|" + " --- |" * len(cells)]


def _metric(claim: Claim) -> str:
    if claim.metric == MEAN_OF_ALL and claim.over == "each":
        return "each column"
    return claim.metric.replace("_", " ")


def _line(
    claim: str,
    cells: Sequence[str],
    results: Mapping[Scale, Mapping[str, Found]],
    scales: Sequence[Scale],
) -> str:
    ours = []
    for scale in scales:
        result = results[scale].get(claim)
        verdict = _verdict(result[0]) if result else _NOT_MEASURED
        ours += [verdict, "" if result is None or verdict == _NOT_MEASURED else _with(result[1])]
    return f"| {' | '.join([*cells, *ours])} |"


def _with(record: Mapping[str, Any]) -> str:
    """The language models of a record, if known, and its date."""
    models = map(shown_name, record.get("models", ()))
    return ", ".join(map(markdown_text, [*models, record["date"]]))


def _each_comparison(
    paper: str, scale: Scale, names: Sequence[str], results: Mapping[str, Found]
) -> list[str]:
    """The comparisons of all claims that have several, as a table below a heading."""
    lines = []
    for number, name in enumerate(names, 1):
        if name in results:
            table = _comparisons(number, results[name][0])
            lines += table if len(table) > 1 else []
    if not lines:
        return []
    head = _head("no.", "comparison", "in the paper", "ours", "n", "result", "n that decides")
    return [f"### {paper}, scale {scale}: each comparison", "", *head, *lines, ""]


def _printed(claim: Claim, printed: PrintedTable) -> str:
    effects = printed_effects(claim, printed)
    if not effects:
        return "nothing printed"
    digits = 3 if printed.units[claim.metric] == "fraction" else 2
    holds = sum(effect > 0 for effect in effects)
    return f"{_range(min(effects), max(effects), digits)}; holds for {holds} of {len(effects)}"


_NOT_MEASURED = "not measured"
_VERDICTS = (*(word for pair in _WORDS.items() for word in pair), _NOT_MEASURED)


def _verdict(judged: Mapping[str, Any]) -> str:
    """A verdict in a cell: of one comparison with its interval, of more with range and counts."""
    comparisons = [c for c in judged["comparisons"] if c["ours"] is not None]
    if not comparisons:
        return _NOT_MEASURED
    if len(judged["comparisons"]) == 1:
        (c,) = comparisons
        text = _difference(c) + (f", n = {c['ours']['n']:,}" if c["ours"]["n"] else "")
    else:
        means, digits = [c["ours"]["mean"] for c in comparisons], _digits(comparisons[0])
        counts = Counter(c["verdict"] for c in judged["comparisons"])
        parts = (f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])
        text = f"{_range(min(means), max(means), digits)}; {', '.join(parts)}"
    parts = [f"**{markdown_text(judged['verdict'])}**: {text}"]
    if needed := max(c["needed"] or 0 for c in comparisons):
        parts.append(f"{needed:,} questions would decide")
    return "; ".join([*parts, *_notes(comparisons)])


def _comparisons(number: int, judged: Mapping[str, Any]) -> list[str]:
    """Lines of the table of comparisons, of those that were measured."""
    lines = []
    for c in judged["comparisons"]:
        if c["ours"] is None:
            continue
        subject, verdict = markdown_text(c["subject"]), markdown_text(c["verdict"])
        printed = "" if c["printed"] is None else f"{c['printed']:+.{_digits(c)}f}"
        n = f"{c['ours']['n']:,}" if c["ours"]["n"] else ""
        needed = f"{c['needed']:,}" if c["needed"] else ""
        verdict = "; ".join([verdict, *_notes([c])])
        cells = [str(number), subject, printed, _difference(c), n, verdict, needed]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _difference(c: Mapping[str, Any]) -> str:
    """Our difference with its interval."""
    digits = _digits(c)
    mean, low, high = (f"{c['ours'][name]:+.{digits}f}" for name in ("mean", "low", "high"))
    return mean if c.get("once") else f"{mean} [{low}, {high}]"


def _notes(comparisons: Sequence[Mapping[str, Any]]) -> list[str]:
    """How differences were measured, where it was not in pairs of questions that differ."""
    notes = []
    if len(comparisons) == 1 and not comparisons[0].get("once"):
        ours = comparisons[0]["ours"]
        if not (ours["low"] or ours["high"]):
            notes.append("all differences are 0")
    if not all(c.get("paired", True) for c in comparisons):
        notes.append("not paired")
    if any(c.get("once") for c in comparisons):
        notes.append("measured once, without an interval")
    return notes


def _digits(c: Mapping[str, Any]) -> int:
    return 3 if c["unit"] == "fraction" else 2


def _range(low: float, high: float, digits: int) -> str:
    if low == high:
        return f"{low:+.{digits}f}"
    return f"{low:+.{digits}f} to {high:+.{digits}f}"


def _measured_with(scale: Scale, results: Mapping[str, Found]) -> str:
    records = {record["name"]: record for _, record in results.values()}
    lines = [f"Scale {scale}:", ""]
    for name, record in records.items():
        lines.append(f"- {markdown_text(name)}: {_models(record)}, {markdown_text(record['date'])}")
    return "\n".join([*lines, ""])


def _models(record: Mapping[str, Any]) -> str:
    """The language models of a table's runs, if known, and how many questions they were asked."""
    models = ", ".join(map(markdown_text, map(shown_name, record.get("models", ()))))
    limit = f"first {record['limit']:,} questions" if record.get("limit") else ""
    return ", ".join(part for part in (models, limit) if part) or "all questions"
