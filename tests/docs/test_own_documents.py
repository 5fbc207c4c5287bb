"""The steps of docs/own_documents.md make a data set that can be loaded."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxrag.data.folder import Folder

PAGE = Path(__file__).parents[2] / "docs" / "own_documents.md"


def test_text_files_become_a_data_set(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    notes = Path("notes")
    notes.mkdir()
    (notes / "bees.txt").write_text("Bees live\nin hives.\n\nHoney is made in June.\n\n", "utf-8")
    (notes / "mill.txt").write_text("The mill grinds rye.\n", "utf-8")
    Path("questions.txt").write_text("When is honey made?\tJune\nWho mills?\tnobody\n", "utf-8")
    (command,) = re.findall(r"^    jaxrag (import .*)$", PAGE.read_text("utf-8"), re.M)
    assert import_module("jaxrag.experiments.import_").main(command.split()) == 0
    found = Folder("data").load(tmp_path / "cache")
    assert [(q.text, q.answers) for q in found.questions] == [
        ("When is honey made?", ("June",)),
        ("Who mills?", ("nobody",)),
    ]
    passages = found.passages.get(range(len(found.passages)))
    assert [(p.id.partition("#")[0], p.title, p.text) for p in passages] == [
        ("bees.txt", "bees", "Bees live in hives. Honey is made in June."),
        ("mill.txt", "mill", "The mill grinds rye."),
    ]
