"""Bars of retrievers on the same questions, from rankings that are written here."""

import json
from pathlib import Path

from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.retriever_figures import metric_bars


def write(directory: Path, number: int, found: dict[str, dict[str, float]]) -> None:
    directory.mkdir(exist_ok=True)
    lines = [{"question_id": name, "metrics": metrics} for name, metrics in found.items()]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / f"rankings-{number}.jsonl").write_text(text)


def test_means_and_values_of_questions(tmp_path: Path) -> None:
    """Of four questions the first retriever answers two, the second one of three that count."""
    hit, miss = {"answer@1": 1.0, "mrr@5": 0.5}, {"answer@1": 0.0, "mrr@5": 0.1}
    write(tmp_path / "nq", 0, {"a": hit, "b": hit, "c": miss, "d": miss})
    write(tmp_path / "nq", 1, {"a": miss, "b": hit, "c": miss, "d": {"mrr@5": 1.0}})
    results = {"nq": Results({"searches": tmp_path / "nq"})}
    names = ("late", "full")
    [picture] = metric_bars("r3/x", "t", "searches", names, "answer@1", "answer@1, %", results)
    assert picture.name == "r3/x" and "n = 4, 3" in picture.svg and "nq" in picture.svg
    numbers: dict = picture.numbers["nq"]  # type: ignore[index,type-arg]
    assert numbers["late"]["mean"] == 0.5 and numbers["late"]["n"] == 4
    assert numbers["late"]["values"] == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert numbers["full"]["n"] == 3 and numbers["full"]["values"] == {"a": 0, "b": 1, "c": 0}
    assert 0 <= numbers["full"]["low"] < 1 / 3 < numbers["full"]["high"] <= 1
