"""docs/prompts.md has the roles, inputs and sets of the code, and files that load."""

import re
import shutil
from pathlib import Path

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.experiments import reproduce
from jaxrag.reproduction.choices import add
from jaxrag.reproduction.prompt_files import check_replacements, sets_in_use
from jaxrag.reproduction.work import Work
from jaxrag.steps import prompts
from jaxrag.steps.prompts import FIELDS, OPTIONAL

PAGE = (Path(__file__).parent.parent.parent / "docs" / "prompts.md").read_text("utf-8")
SHIPPED = sorted(Path(prompts.__file__).parent.glob("*.toml"))
PAPERS = {"PAIRS": "pairs", "DTR": "dtr", "R3": "r3", "ERRR": "errr", "ARS-RAG": "ars"}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table that begins with a heading."""
    table = PAGE[PAGE.index(f"| {heading} |") :].partition("\n\n")[0]
    _, _, *lines = table.splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_has_exactly_the_roles_of_the_code() -> None:
    named = [cells[0].strip("`") for cells in rows("role")]
    assert sorted(named) == sorted(FIELDS)


@pytest.mark.parametrize("cells", rows("role"), ids=lambda cells: cells[0])
def test_the_inputs_of_a_role_are_those_of_the_code(cells: list[str]) -> None:
    role, (needed, _, optional) = cells[0].strip("`"), cells[1].partition("; optionally ")
    assert tuple(needed.split(", ")) == FIELDS[role]
    assert tuple(optional.split(", ") if optional else ()) == OPTIONAL.get(role, ())
    assert len(cells) == 4 and all(cells)


@pytest.mark.parametrize("cells", rows("paper"), ids=lambda cells: cells[0])
def test_the_sets_of_a_papers_tables_are_those_that_its_jobs_use(cells: list[str]) -> None:
    work, paper = Work(Path()), PAPERS[cells[0].removeprefix("| ")]
    for name in dict.fromkeys([*ALL.tables, *ALL.figures]):
        if name.startswith(f"{paper}/"):
            add(reproduce.ALL, work, name, "paper")
    assert sorted(set(re.findall(r"`(\w+)`", cells[1]))) == sets_in_use(work.jobs.values())


def test_every_paper_has_its_sets_and_its_sources() -> None:
    first, second = (
        re.findall(r"^\| ([A-Z][\w-]+) \|", part, re.M)
        for part in (PAGE.partition("## Where")[0], PAGE.partition("## Where")[2])
    )
    assert first == list(PAPERS) and sorted(second) == sorted(PAPERS)


def test_the_example_of_a_file_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    file = tmp_path / "mine.toml"
    file.write_text(text, "utf-8")
    found = prompts.load(str(file))
    assert found.role("direct").demonstrations and found.role("judge")


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_copy_of_a_set_is_a_file_that_may_replace_it(file: Path, tmp_path: Path) -> None:
    copy = str(shutil.copy(file, tmp_path / file.name))
    check_replacements({file.stem: copy}, [file.stem])
    assert prompts.content_digest(copy) == prompts.content_digest(file.stem)


def test_a_python_string_is_copied_as_the_page_says(tmp_path: Path) -> None:
    q = "Which?"
    sent = f"""
        Question: {q}\n
        A word.
    """
    file = tmp_path / "mine.toml"
    body = r"""
        Question: {question}\n
        A word.
    """
    file.write_text(f'[direct]\nuser = """\n{body}"""\n', "utf-8")
    (message,) = prompts.load(str(file)).role("direct").prompt(question=q)
    assert not isinstance(message, str) and message.content == sent
