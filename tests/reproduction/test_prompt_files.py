"""Users' prompt files in the jobs of tables."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.core.hashing import canonical
from jaxrag.experiments import prompts as check_prompts
from jaxrag.experiments import reproduce
from jaxrag.reproduction.choices import add
from jaxrag.reproduction.prompt_files import (
    check_replacements,
    check_roles,
    read_replacements,
    sets_in_use,
    with_prompts,
)
from jaxrag.reproduction.work import Work
from jaxrag.runs.loading import describe_job
from jaxrag.steps import prompts
from jaxrag.types import InputError

DIRECT = '[direct]\nuser = "Mine. {question}"\n'


@pytest.fixture
def own(tmp_path: Path) -> str:
    return write(tmp_path / "mine.toml", DIRECT)


def write(path: Path, text: str, extends: str = "dtr") -> str:
    path.write_text(f'extends = "{extends}"\n{text}', "utf-8")
    return str(path)


def work_of(name: str, files: dict[str, str], scale: Any = "paper") -> Work:
    work = Work(Path("runs"), change=with_prompts(files))
    add(reproduce.ALL, work, name, scale)
    return work


@pytest.mark.parametrize("name", dict.fromkeys([*ALL.tables, *ALL.figures]))
def test_no_job_of_any_table_keeps_a_replaced_set(name: str, own: str) -> None:
    before = sets_in_use(work_of(name, {}).jobs.values())
    after = work_of(name, dict.fromkeys(before, own)).jobs.values()
    assert sets_in_use(after) == ([own] if before else [])
    # the names, quoted as in JSON, occur in no other setting that holds the name of a set
    text = canonical([describe_job(job) for job in after])
    assert not any(f'"prompts":"{one}"' in text for one in before)


def test_the_contents_of_a_file_are_part_of_a_job_and_of_those_that_need_it(own: str) -> None:
    # the table's runs need trainings, these need labels: all get other directories
    def directories() -> set[str]:
        jobs = work_of("ars/table2", {"ars": own}).jobs.items()
        return {path.name for path, job in jobs if own in sets_in_use([job])}

    first, ours = directories(), {path.name for path in work_of("ars/table2", {}).jobs}
    assert len(first) > 10 and not first & ours
    write(Path(own), DIRECT.replace("Mine", "Changed"))
    changed = directories()
    assert len(changed) == len(first) and not changed & first
    write(Path(own), DIRECT)
    assert directories() == first
    trained = {job for path in work_of("ars/table2", {}).needs.values() for job in path}
    kept = {path.name for path in work_of("ars/table2", {"ars": own}).jobs}
    assert trained and not {path.name for path in trained} & kept


def test_jobs_without_a_replaced_set_are_those_of_other_tables(own: str) -> None:
    ours, mine = (
        {path.name for path in work_of("r3/table1", files).jobs} for files in ({}, {"r3": own})
    )
    plain = work_of("r3/table1", {})
    others = {
        path.name
        for path in plain.jobs
        if all("r3" not in sets_in_use([plain.jobs[one]]) for one in plain.with_needs([path]))
    }
    assert others and others <= mine & ours and ours - mine


def test_a_file_may_have_the_name_of_the_set_that_it_extends(tmp_path: Path) -> None:
    file = write(tmp_path / "dtr.toml", DIRECT)
    assert prompts.load(file).role("judge") == prompts.load("dtr").role("judge")
    with pytest.raises(InputError, match="let one of them extend another set"):
        prompts.load(write(tmp_path / "self.toml", DIRECT, str(tmp_path / "self.toml")))


def test_files_are_read_from_the_command_line() -> None:
    assert read_replacements(["dtr=my/dtr.toml", "ars=a=b.toml"]) == {
        "dtr": "my/dtr.toml",
        "ars": "a=b.toml",
    }
    for wrong in ("dtr", "dtr=", "=my.toml"):
        with pytest.raises(InputError, match="give NAME=FILE, such as"):
            read_replacements([wrong])
    with pytest.raises(InputError, match=r"replaces dtr by a\.toml and by b\.toml"):
        read_replacements(["dtr=a.toml", "dtr=b.toml"])


def test_what_does_not_fit_is_refused(tmp_path: Path, own: str) -> None:
    check_replacements({"dtr": own}, ["dtr", "small"])
    with pytest.raises(InputError, match=r"'dtrr', which none .* sets in use are dtr, small"):
        check_replacements({"dtrr": own}, ["small", "dtr"])
    with pytest.raises(InputError, match=r"No prompts named .*missing\.toml"):
        check_replacements({"dtr": str(tmp_path / "missing.toml")}, ["dtr"])
    alone = tmp_path / "alone.toml"
    alone.write_text(DIRECT)
    with pytest.raises(InputError, match=r"lacks \[context\], .*\[judge\].*extends = \"dtr\""):
        check_replacements({"dtr": str(alone)}, ["dtr"])
    words = '[relevance]\nuser = "{question} {passage}"\n'
    with pytest.raises(InputError, match=r"\[relevance\] has the words \[\]: give as many as"):
        check_replacements({"ars": write(tmp_path / "words.toml", words, "ars")}, ["ars"])


CHANGED = """
extends = "pairs"
[direct]
user = "{question}"
parse = "tags"
[context]
user = "{question} <answer> {passages}"
system = "S"
parse = "tags"
stop = ["."]
chat = false
[judge]
user = "Mine. {question}"
parse = "first_line"
words = ["yes", "no"]
[[judge.demonstrations]]
user = "u"
assistant = "a"
[pseudo_context]
user = "Mine. {question}"
[rationale]
user = "Mine, in <answer>. {question}"
[passages]
passage = "{text}"
joiner = "|"
"""


def test_a_file_is_compared_role_by_role(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(CHANGED, "utf-8")
    found = check_roles(prompts.load("pairs"), prompts.load(str(file)))
    assert found.pop("direct") == ((), ("does not ask for <answer>, and parse is 'tags'",), False)
    assert found.pop("context") == (
        (),
        (
            "question, passages in this order (ours passages, question)",
            "stop ('.',) (ours ())",
            "chat False (ours True)",
            "has a system message",
        ),
        False,
    )
    assert found.pop("judge") == (("2 words (ours 0)",), ("1 demonstrations (ours 0)",), False)
    assert found.pop("pseudo_context") == ((), (), False)
    assert found.pop("rationale").form == ("asks for <answer>, and parse is 'text'",)
    assert found.pop("passages") == (("lacks {title}",), ("joiner '|' (ours '\\n\\n')",), False)
    assert found and all(one == ((), (), True) for one in found.values())  # as in pairs
    rewrites = tmp_path / "rewrites.toml"
    rewrites.write_text('[rewrite]\nuser = "{question}"\n', "utf-8")
    found = check_roles(prompts.load("ars"), prompts.load(str(rewrites)))
    assert found["rewrite"].inputs == ("lacks {count}",)
    assert found["context"].inputs == ("the role is missing",)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ('[judge]\nuser = "Mine. {question}"\n', 0, "[judge] format: parse 'text' (ours 'first_"),
        ('[passages]\npassage = "{text}"\n', 1, "[passages] inputs: lacks {number}; lacks {title}"),
    ],
)
def test_the_command_says_what_differs_and_its_exit_code_whether_inputs_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, line: str
) -> None:
    file = write(tmp_path / "mine.toml", text)
    assert check_prompts.main(["prompts", "check", file, "--like=dtr"]) == code
    said = capsys.readouterr().out.splitlines()
    assert any(one.startswith(line) for one in said) and "[direct] as shipped" in said
    assert check_prompts.main(["prompts", "check", "dtr"]) == 0


def main(*arguments: str) -> int:
    return reproduce.main(["reproduce", *arguments])


def test_the_command_checks_files_before_any_work(tmp_path: Path, own: str) -> None:
    for wrong, message in {
        f"dtr={own}": "'dtr', which none of these jobs uses: sets in use are small",  # at tiny
        f"small={tmp_path}/none.toml": "No prompts named",
        f"small={own}": r"lacks .*\[rewrite\]",
    }.items():
        for more in ([], ["--check"]):
            with pytest.raises(InputError, match=message):
                main("dtr/table3", "--scale=tiny", f"--prompts={wrong}",
                     f"--workdir={tmp_path / 'work'}", *more)  # fmt: skip
    assert not (tmp_path / "work").exists()


def test_the_requirements_name_the_sets(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="set hotpotqa is not built"):
        main("dtr/figure3", "--check", "--only=hotpotqa")
    assert "Prompts: dtr\n" in capsys.readouterr().out
    with pytest.raises(InputError, match="set hotpotqa is not built"):
        main("dtr/figure3", "--check", "--only=hotpotqa", f"--prompts=dtr={own}")
    assert f"Prompts: {own}" in capsys.readouterr().out.replace("\n", "")
