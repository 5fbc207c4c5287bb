"""Makes a data set of documents: text, Markdown, HTML, JSONL and CSV files.

    jaxrag import notes --out data --questions questions.csv

writes ``data/corpus.jsonl``, and ``data/queries.jsonl`` if there are questions. Any config takes
them by ``--config.data=Folder --config.data.path=data``. `jaxrag.data.documents` has the rule by
which documents become passages with titles and ids. The same command after a change of the
documents keeps the ids of unchanged passages.

``--questions`` is a file of lines with a question and its answers between tabs, a .csv with the
columns ``question`` and ``answer``, or a .jsonl with ``question`` and ``answers``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrag.data.documents import documents, passages, questions, write_folder
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Writes the data set, and says what to do with it."""
    folder, values = read_command(argv)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: jaxrag import FOLDER --out=DIRECTORY")
    parsed = list(documents(folder, leave=Path(values.out)))
    corpus = (passage for document in parsed for passage in passages(document, values.words))
    asked = list(questions(Path(values.questions))) if values.questions else []
    count, number = write_folder(Path(values.out), corpus, asked)
    unanswered = sum(not q.answers for q in asked)
    more = f", {unanswered:,} of them without an answer" if unanswered else ""
    texts = f"{count:,} passages of {len(parsed):,} documents"
    print(f"{values.out}: {texts}, {number:,} questions{more}")
    data = f"--config.data=Folder {shlex.quote(f'--config.data.path={values.out}')}"
    if asked:
        print(f"next: jaxrag run --config configs/dtr.py:standard_rag {data} --workdir runs/own")
    else:
        print(f'next: jaxrag ask --config configs/dtr.py:standard_rag {data} "QUESTION"')
    return 0


def read_command(argv: Sequence[str]) -> tuple[Path, Any]:
    """The folder of documents, and the options; InputError if no folder is named."""
    names, values = parse_named(argv, "import")
    if len(names) != 1 or not values.out:
        raise InputError("give one folder and a place: jaxrag import FOLDER --out=DIRECTORY")
    return Path(names[0]), values


if __name__ == "__main__":
    script(main)
