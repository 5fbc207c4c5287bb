"""Calls and tokens of a question by method, from small runs that were recorded.

``calls.json`` beside this file has the rows: means over the answered questions of one run. Tokens
are those of that run's model (docs/reproduce.md). A method without a row is unknown.

    python -m jaxrag.runs.calls RUN...

writes the rows of finished runs into the table, each in place of an older one of the same name.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from jaxrag.core.durable_files import write_text
from jaxrag.core.json_text import parse_json
from jaxrag.evaluation.records import read_run
from jaxrag.runs.settings import RunSettings

TABLE = Path(__file__).with_name("calls.json")
RECORD_CALLS = "run a few questions with these settings, then python -m jaxrag.runs.calls RUN"
"""How an unknown method becomes known."""


class CostRow(NamedTuple):
    """Mean costs of a method's questions, of one ``kind`` such as "yes_no" and one prompt set.

    ``method`` is the run's name, without settings such as "u=0.001"; ``k`` that of a method that
    searches, or of its selection, else 0; ``costs`` are means of a question by name, as a run
    records them ("llm_calls" and others), and "passages" read.
    """

    method: str
    prompts: str
    kind: str
    k: int
    questions: int
    costs: Mapping[str, float]


def expected_costs(run: RunSettings, kinds: Mapping[str, int]) -> dict[str, float] | None:
    """Expected costs of a question, averaged over kinds, by name or method; None if unknown."""
    table, names = read_table(TABLE), (_bare(run.name), run.method.name)
    k = _kept(run.method) if run.needs.search else 0
    keys = [(run.method.reader.prompts, kind, k) for kind in kinds]
    rows = [table.get((names[0], *key)) or table.get((names[1], *key)) for key in keys]
    if not rows or None in rows:
        return None
    weights = [count / sum(kinds.values()) for count in kinds.values()]
    costs = [row.costs for row in rows if row is not None]
    names = sorted({name for cost in costs for name in cost})
    return {n: sum(w * c.get(n, 0) for w, c in zip(weights, costs, strict=True)) for n in names}


def _bare(name: str) -> str:
    return " ".join(word for word in name.split() if "=" not in word)


def _kept(method: Any) -> int:
    """``k`` of a method or of its selection, of settings or their record; 0 if there is none."""
    if isinstance(method, Mapping):
        method = SimpleNamespace(**method)
    return getattr(method, "k", None) or (_kept(method.select) if hasattr(method, "select") else 0)


@functools.cache
def read_table(file: Path) -> dict[tuple[str, str, str, int], CostRow]:
    """The rows of a table, by method, prompt set, kind of question and ``k``."""
    return {row[:4]: row for row in (CostRow(**fields) for fields in parse_json(file.read_bytes()))}


def rows_of(path: str | Path) -> Iterator[CostRow]:
    """The rows of a recorded run, one for each kind of its questions."""
    run = read_run(path)
    method: Any = run.config["method"]
    costs: dict[str, list[dict[str, float]]] = {}
    for record in run.records:
        if "error" not in record:
            trace = record["trace"]
            passages = len(trace.get("selected", {}).get("ids", ()))
            costs.setdefault(trace["task"], []).append({**record["cost"], "passages": passages})
    for kind, each in costs.items():
        names = sorted({name for cost in each for name in cost})
        means = {n: round(sum(cost.get(n, 0) for cost in each) / len(each), 2) for n in names}
        k = _kept(method) if run.config["retriever"] else 0
        name, prompts = _bare(method["name"]), method["reader"]["prompts"]
        yield CostRow(name, prompts, kind, k, len(each), means)


def main(paths: Sequence[str]) -> None:
    """Writes the rows of runs into the table."""
    rows = read_table(TABLE) | {row[:4]: row for path in paths for row in rows_of(path)}
    lines = (json.dumps(rows[key]._asdict()) for key in sorted(rows))
    write_text(TABLE, "[\n" + ",\n".join(lines) + "\n]\n")
    read_table.cache_clear()
    print(f"{TABLE}: {len(rows)} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
