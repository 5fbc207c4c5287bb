"""What the papers print for a method on a data set, to stand beside a run's numbers.

``paper_numbers.json`` holds the cells of the main comparisons of PAIRS (arXiv 2508.04057, table 2),
DTR (Decide Then Retrieve, table 2), ARS-RAG (table 1, and the ablations of table 2) and ERRR (table
2, the web, and table 3, a dense index): exact match (of closed questions accuracy), F1, precision
and trigger ratio in percent, with the generator, the retriever and the number of passages that they
belong to.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import NamedTuple


class PaperNumber(NamedTuple):
    """One printed row; scores in percent, None where the table has none.

    ``questions`` is the size of the paper's test set; None where it only says "the entire" one.
    """

    paper: str
    table: str
    dataset: str
    method: str
    generator: str
    retriever: str | None
    passages: int
    questions: int | None
    exact_match: float | None
    f1: float | None
    trigger: float | None
    precision: float | None


def printed(dataset: str, method: str) -> list[PaperNumber]:
    """The rows of a method on a data set, by the names that paper_numbers.json uses.

    "dtr" and "llm_judge" stand for all their printed thresholds and judges; a method that no
    paper prints on that data set has no rows.
    """
    family = f"{method}_" if method in ("dtr", "llm_judge") else None
    return [
        number
        for number in _numbers()
        if number.dataset == dataset
        and (number.method == method or (family and number.method.startswith(family)))
    ]


@functools.cache
def _numbers() -> tuple[PaperNumber, ...]:
    file = resources.files("jaxrag.evaluation").joinpath("paper_numbers.json")
    content = json.loads(file.read_text("utf-8"))
    return tuple(
        PaperNumber(
            paper=content["papers"][cell["paper"]]["name"],
            table=content["papers"][cell["paper"]]["table"],
            dataset=cell["dataset"],
            method=cell["method"],
            generator=cell["generator"],
            retriever=cell["retriever"],
            passages=cell["passages"],
            questions=cell.get(
                "questions", content["papers"][cell["paper"]]["questions"][cell["dataset"]]
            ),
            exact_match=cell.get("exact_match"),
            f1=cell.get("f1"),
            trigger=cell.get("trigger"),
            precision=cell.get("precision"),
        )
        for cell in content["cells"]
    )
