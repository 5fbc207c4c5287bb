"""Answers one question and prints how the answer was found.

    jaxrag ask --config configs/dtr.py:dtr@quickstart "What is the capital of Peru?"

prints what the model answered directly, its uncertainty u and the threshold, what was found by the
question and by the pseudo-context, which passages were given to the reader (marked with *) and why,
and the answer. Settings are changed as for `jaxrag run`. Several questions are answered in one
batch; ``--json`` prints for each one line with ``question``, ``answer``, ``trace``, ``cost`` and
``passages``. Models and index are loaded or built first; results are kept in the store. A server
that does not answer ends it after ten seconds, unless ``--config.model.patience`` is given.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console

from jaxrag.api.rag import Rag
from jaxrag.engines.server import Server
from jaxrag.experiments.configuration import parse_job, script
from jaxrag.runs.run import Run
from jaxrag.types import InputError

_PATIENCE = 10.0  # seconds; a run, which nobody watches, waits longer


def main(argv: Sequence[str]) -> int:
    """Answers the questions and prints their traces."""
    run, questions, values = parse_job(argv, "ask", kind=Run)
    if not questions:
        raise InputError('give a question in quotes, such as "What is the capital of Peru?"')
    chosen = any(word.startswith("--config.model.patience") for word in argv)
    if isinstance(run.model, Server) and not chosen:
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, patience=_PATIENCE))
    console = Console()
    for answer in Rag(run).answers(questions):
        if values.json:
            passages = {name: dataclasses.asdict(p) for name, p in answer.passages.items()}
            record = {"question": answer.question.text, "answer": answer.text}
            record |= {"trace": answer.trace, "cost": answer.cost, "passages": passages}
            print(json.dumps(record))
        else:
            console.print(answer)
    return 0


if __name__ == "__main__":
    script(main)
