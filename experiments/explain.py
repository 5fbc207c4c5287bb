"""Shows how one answer of a run was found; or explains scores of SiDR by their tokens.

    jaxrag explain runs/dtr "currency of the Bahamas"

prints the trace of a question of a run, which is named by its id or a part of its text: what was
decided, searched and read.

    jaxrag explain --config configs/r3.py:r3@factbook \\
        --question "What is the currency of the Bahamas?"

prints the best passages and their tokens; ``--passages ID``, repeated, chooses other passages. With
``--workdir runs/r3`` instead of a question it explains some questions of that run, each with the
first passage that was read, and writes them into the run directory, for `jaxrag report`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxrag.api.rag import TracedAnswer
from jaxrag.core.printable import printable, terminal_text
from jaxrag.evaluation.records import differences, read_passages, read_run
from jaxrag.evaluation.report import explanations
from jaxrag.experiments.configuration import parse, parse_named, script
from jaxrag.retrieval.sidr.explain import explain
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.parts import open_index
from jaxrag.runs.run import Run
from jaxrag.types import InputError, Passage, Question


def main(argv: Sequence[str]) -> int:
    """Prints a question's trace, or explains a question, or some of a run."""
    if not any(one.startswith("--config") for one in argv):
        names, _ = parse_named(argv, "explain")
        if len(names) != 2:
            raise InputError("give a run and a question: jaxrag explain RUN QUESTION")
        answer = _answer(Path(names[0]), names[1])
        Console().print(answer)
        if right := answer.question.answers:
            print(printable(f"right answers: {', '.join(right)}"))
        return 0
    run, values = parse(argv, "explain", kind=Run)
    if bool(values.question) == bool(values.workdir):
        raise InputError("give one of the two: --question=TEXT or --workdir=DIRECTORY of a run.")
    index = _index(run)
    if values.workdir:
        lines = _of_run(Path(values.workdir), index, values)
        explanations.write(Path(values.workdir), lines)
    else:
        lines = _of_question(index, values)
    console = Console(width=max(Console().width, 104))
    for line in lines:
        console.print(terminal_text(f"\n{line['question']}", "italic"))
        console.print(explanations.table(line))
    if values.workdir:
        print(f"wrote {Path(values.workdir) / explanations.NAME}")
    return 0


def _answer(path: Path, wanted: str) -> TracedAnswer:
    """The answer of a run to the first question with an id, or with some words."""
    records = [one for one in read_run(path).records if "error" not in one]
    texts = {one["question"]: one for one in records if wanted.lower() in one["question"].lower()}
    found = next((one for one in records if one["question_id"] == wanted), None)
    if found is None and not texts:
        near = difflib.get_close_matches(wanted, [one["question"] for one in records], 1, 0)
        raise InputError(f"{path} has no answer to {wanted!r}. Nearest: {''.join(near)!r}.")
    one = found or next(iter(texts.values()))
    question = Question(one["question_id"], one["question"], tuple(one["gold_answers"]))
    passages = {name: Passage(**row) for name, row in read_passages(path).items()}
    return TracedAnswer(question, one["prediction"], one["trace"], one["cost"], passages)


def _index(run: Run) -> SidrIndex:
    if not isinstance(run.index, Sidr):
        name = run.index.name if run.index else "None"
        raise InputError(
            f"config.index is {name}, no index of SiDR: only SiDR's scores are sums over tokens."
        )
    index = open_index(run, Path(run.cache))
    assert isinstance(index, SidrIndex)
    return index


def _of_question(index: SidrIndex, values: Any) -> list[dict[str, Any]]:
    if values.passages:
        rows = [_row(index, name) for name in values.passages]
    else:
        rows = index.search_texts([values.question], values.k)[0].ids
    matches = explain(index, values.question, rows)
    return [explanations.line("", index.search, match, most=values.tokens) for match in matches]


def _row(index: SidrIndex, name: str) -> int:
    try:
        return index.passages.rows_of([name])[name]
    except KeyError:
        raise InputError(f"The corpus has no passage {name!r}.") from None


def _of_run(workdir: Path, index: SidrIndex, values: Any) -> list[dict[str, Any]]:
    run = read_run(workdir)
    recorded = {k: v for k, v in (run.config.get("retriever") or {}).items() if k != "name"}
    if changed := differences(recorded, json.loads(index.identity), "retriever"):
        listed = "\n".join(f"  {line}" for line in changed)
        raise InputError(f"{workdir} searched another index:\n{listed}")
    lines = []
    for record in run.records:
        found = record.get("trace", {}).get("selected", {}).get("ids", ())
        if found and len(lines) < values.questions:
            (match,) = explain(index, record["question"], [_row(index, found[0])])
            name = record["question_id"]
            lines.append(explanations.line(name, index.search, match, most=values.tokens))
    if not lines:
        raise InputError(f"{workdir} has no answered question for which passages were read.")
    return lines


if __name__ == "__main__":
    script(main)
