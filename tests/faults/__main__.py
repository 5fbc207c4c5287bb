"""Tries every fault of every file and writes the table of docs/faults.md.

    python -m tests.faults run bandit

tries the named worlds (`tests/faults/worlds.py`), or all; ``--every=4`` tries each fourth case.
Cases with a problem are printed. Counts are kept in ``tests/faults/recorded.json``, from which the
table is made; results of worlds that are not named stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import write_text
from tests.faults.damage import KEYS
from tests.faults.world import Case, cases
from tests.faults.worlds import WORLDS

RECORDED = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parent.parent.parent / "docs" / "faults.md"
START, END = "<!-- table of tests.faults -->\n", "<!-- end of the table -->\n"
HEADINGS = (
    "job", "cases", "ended well", "one clear error", "not finished", "tracebacks",
    "changed answers", "keys shown", "seconds to the error: median, longest", "date",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Tries the faults; exit code 1 if a case has a problem."""
    parser = argparse.ArgumentParser(prog="tests.faults", description=__doc__)
    parser.add_argument("worlds", nargs="*", choices=[*WORLDS, []], help="default: all")
    parser.add_argument("--every", type=int, default=1, help="try each N-th case")
    given = parser.parse_args(argv)
    os.environ.update(KEYS)
    problems = 0
    for name in given.worlds or WORLDS:
        with tempfile.TemporaryDirectory() as directory:
            tried = list(_printed(cases(WORLDS[name](Path(directory)), every=given.every)))
        problems += sum(bool(case.problem) for case in tried)
        write_text(
            RECORDED,
            json.dumps(recorded() | {name: {"every": given.every, **counts(tried)}}, indent=1)
            + "\n",
        )
        write_text(PAGE, with_table(PAGE.read_text("utf-8"), recorded()))
    return 1 if problems else 0


def _printed(tried: Iterable[Case]) -> Iterable[Case]:
    for number, case in enumerate(tried, 1):
        if case.problem or number % 100 == 0:
            print(f"{number}: {case}", flush=True)
        yield case


def counts(tried: Sequence[Case]) -> dict[str, Any]:
    """How cases ended, and the seconds until errors."""
    codes = [case.outcome.code for case in tried]
    seconds = [case.outcome.seconds for case in tried if case.outcome.code == 2] or [0.0]
    return {
        "cases": len(tried),
        "ended well": codes.count(0),
        "one clear error": sum(case.outcome.code == 2 and not case.problem for case in tried),
        "not finished": codes.count(1),
        "tracebacks": codes.count(None),
        "changed answers": sum(case.changed for case in tried),
        "keys shown": sum(case.shows_key for case in tried),
        "seconds": [round(statistics.median(seconds), 2), round(max(seconds), 1)],
        "date": datetime.date.today().isoformat(),
    }


def recorded() -> dict[str, Any]:
    """The counts of each world that has been tried."""
    return json.loads(RECORDED.read_text()) if RECORDED.is_file() else {}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The counts as Markdown, a row for each world and one of sums."""
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1))]
    numbers = HEADINGS[1:8]
    for name, one in found.items():
        about = (WORLDS[name].__doc__ or "").partition(".")[0]
        part = "" if one["every"] == 1 else f" (one pair of file and fault in {one['every']})"
        median, longest = one["seconds"]
        cells = (f"{one[column]:,}" for column in numbers)
        lines.append((f"{name}: {about}{part}", *cells, f"{median:g}, {longest:g}", one["date"]))
    sums = (f"{sum(one[column] for one in found.values()):,}" for column in numbers)
    longest = max((one["seconds"][1] for one in found.values()), default=0)
    lines.append(("all", *sums, f"longest {longest:g}", ""))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(page: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with the table between its marks."""
    before, rest = page.split(START)
    return f"{before}{START}\n{table(found)}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    raise SystemExit(main())
