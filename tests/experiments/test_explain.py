"""`experiments.explain` on a question and on passages."""

from typing import Any

import pytest
from rich.console import Console

from jaxrag.experiments import explain
from jaxrag.experiments.configuration import parse
from jaxrag.retrieval.sidr.explain import Match, Term
from jaxrag.types import InputError, Passage
from tests.evaluation import fabricate
from tests.experiments.small_run import write_small_run
from tests.retrieval.sidr import small_sidr


@pytest.fixture(scope="module")
def config(tmp_path_factory: Any) -> list[str]:
    """Arguments of a run over SiDR; the first alone is one over vectors."""
    here = tmp_path_factory.mktemp("explain")
    sizes = {"top": 6, "query_length": 16, "passage_length": 24}
    index = {"checkpoint": small_sidr.write(here), **sizes}
    return [
        f"--config={write_small_run(here, questions=6)}",
        "--config.method.select=Top",
        "--config.index=Sidr",
        *(f"--config.index.{name}={value}" for name, value in index.items()),
    ]


def call(config: list[str], *arguments: str) -> int:
    return explain.main(["explain", *config, *arguments])


def test_a_question(config: list[str], capsys: Any) -> None:
    assert call(config, "--question=is paris in france", "--k=2", "--tokens=3") == 0
    text = capsys.readouterr().out
    assert text.count("is paris in france") == 1 and text.count("comes from these 3 tokens") == 2
    index: Any = explain._index(parse(["run", *config], "run")[0])
    best = index.search_texts(["is paris in france"], 2)[0]
    ids = [passage.id for passage in index.passages.get(list(best.ids))]
    assert text.index(f"({ids[0]})") < text.index(f"({ids[1]})")
    assert f"Score {best.scores[0]:,.1f}" in text


def test_passages_by_name(config: list[str], capsys: Any) -> None:
    assert call(config, "--question=rome", "--passages=p7", "--passages=p3") == 0
    text = capsys.readouterr().out
    assert text.index("(p7)") < text.index("(p3)") and text.count("Score ") == 2
    with pytest.raises(InputError, match="no passage 'nowhere'"):
        call(config, "--question=rome", "--passages=nowhere")


def test_a_question_of_a_run_by_its_words(tmp_path: Any, capsys: Any) -> None:
    path = str(fabricate.run(tmp_path / "dtr", "dtr", n=12))
    for words, first, of in (("country", 0, 11), ("country 11,", 11, 0)):
        assert explain.main(["explain", path, words]) == 0
        text = capsys.readouterr().out
        assert fabricate.question(first)["question"] in text.replace("\n", " ")
        assert (f"The first of {of} questions with these words" in text) == bool(of)


def test_another_index_is_refused(config: list[str]) -> None:
    with pytest.raises(InputError, match=r"config.index is encoder, exact, no index of SiDR"):
        call(config[:1], "--question=a")


def test_the_table_has_marks_weights_and_shares() -> None:
    terms = (  # products 6, 4, 1.5 and 0.5 of 12
        Term("river", 2.0, 3.0, 0.5, True, True),
        Term("##s[/b]", 4.0, 1.0, 1 / 3, False, True),
        Term("stream", 1.0, 1.5, 0.125, False, False),
        Term("which", 0.5, 1.0, 1 / 24, True, False),
    )
    match = Match("Which river?", Passage("p1", "[b]Rivers", "The Nile."), 12.0, terms)
    console = Console(width=110)
    with console.capture() as capture:
        console.print(explain.table(match, "late", 2))
    text = capture.get()
    assert "[b]Rivers (p1)" in text
    cells = next(row for row in text.split("\n") if "##s" in row).split()
    assert cells == ["##s[/b]", "yes", "4", "1", "33.33"]
    note = "Score 12.0 (late search): 83 % of it comes from these 2 tokens; the rest from 2 others."
    assert note in text
