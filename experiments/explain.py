"""Shows how one answer of a run was found; or explains scores of SiDR by their tokens.

    jaxrag explain runs/dtr "currency of the Bahamas"

prints the trace of a question of a run, which is named by its id or a part of its text: what was
decided, searched and read.

    jaxrag explain --config configs/r3.py:r3@factbook \\
        --question "What is the currency of the Bahamas?"

prints the best passages and their tokens; ``--passages ID``, repeated, chooses other passages.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxrag.api.rag import TracedAnswer
from jaxrag.core.printable import printable, terminal_text
from jaxrag.evaluation.records import read_passages, read_run
from jaxrag.experiments.configuration import parse, parse_named, script
from jaxrag.retrieval.sidr.explain import Match, explain
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.parts import open_index
from jaxrag.runs.run import Run
from jaxrag.types import InputError, Passage, Question


def main(argv: Sequence[str]) -> int:
    """Prints a question's trace, or the tokens of its matches."""
    if not any(arg.startswith("--config") for arg in argv):
        names, _ = parse_named(argv, "explain")
        if len(names) != 2:
            raise InputError("give a run and a question: jaxrag explain RUN QUESTION")
        answer = _answer(Path(names[0]), names[1])
        Console().print(answer)
        if right := answer.question.answers:
            print(printable(f"right answers: {', '.join(right)}"))
        return 0
    run, values = parse(argv, "explain", kind=Run)
    if not values.question:
        raise InputError("give --question=TEXT.")
    index = _index(run)
    rows = [_row(index, name) for name in values.passages]
    rows = rows or index.search_texts([values.question], values.k)[0].ids
    console = Console(width=max(Console().width, 104))
    console.print(terminal_text(f"\n{values.question}", "italic"))
    for match in explain(index, values.question, rows):
        console.print(table(match, index.search, values.tokens))
    return 0


def _answer(path: Path, wanted: str) -> TracedAnswer:
    """The answer of a run to the first question with an id, or with some words."""
    records = [r for r in read_run(path).records if "error" not in r]
    texts = {r["question"]: r for r in records if wanted.lower() in r["question"].lower()}
    match = next((r for r in records if r["question_id"] == wanted), None)
    if match is None and not texts:
        near = difflib.get_close_matches(wanted, [r["question"] for r in records], 1, 0)
        raise InputError(f"{path} has no answer to {wanted!r}. Nearest: {''.join(near)!r}.")
    match = match or texts.get(wanted)
    if not match and len(texts) > 1:
        print(f"The first of {len(texts)} questions with these words; an id or more words choose.")
    record = match or next(iter(texts.values()))
    question = Question(record["question_id"], record["question"], tuple(record["gold_answers"]))
    passages = {name: Passage(**row) for name, row in read_passages(path).items()}
    return TracedAnswer(question, record["prediction"], record["trace"], record["cost"], passages)


def _index(run: Run) -> SidrIndex:
    if not isinstance(run.index, Sidr):
        name = run.index.name if run.index else "None"
        raise InputError(
            f"config.index is {name}, no index of SiDR: only SiDR's scores are sums over tokens."
        )
    index = open_index(run, Path(run.cache))
    assert isinstance(index, SidrIndex)
    return index


def _row(index: SidrIndex, name: str) -> int:
    try:
        return index.passages.rows_of([name])[name]
    except KeyError:
        raise InputError(f"The corpus has no passage {name!r}.") from None


def table(match: Match, search: str, most: int) -> Table:
    """The ``most`` largest terms of a score, and the share of the score that they make up."""
    passage, terms = match.passage, match.terms[:most]
    carried, rest = sum(term.share for term in terms), len(match.terms) - len(terms)
    others = f"; the rest from {rest:,} others" if rest else ""
    note = f"Score {match.score:,.1f} ({search} search): {100 * carried:.0f} % of it comes from "
    title = terminal_text(passage.title or passage.id, "bold")
    grid = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        title=Text.assemble(title, terminal_text(f" ({passage.id})")),
        title_justify="left",
        caption=terminal_text(f"{note}these {len(terms)} tokens{others}."),
        caption_justify="left",
    )
    grid.add_column("token")
    for heading in ("in question", "in passage"):
        grid.add_column(heading, justify="center")
    for heading in ("weight in question", "weight in passage", "share %"):
        grid.add_column(heading, justify="right")
    for term in terms:
        marks = ("yes" if present else "" for present in (term.in_query, term.in_passage))
        weights = (f"{weight:.4g}" for weight in (term.query, term.passage))
        grid.add_row(terminal_text(term.token), *marks, *weights, f"{100 * term.share:.2f}")
    return grid


if __name__ == "__main__":
    script(main)
