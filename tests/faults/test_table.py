"""The table of docs/faults.md: counts by hand, and that it is the recorded one."""

from pathlib import Path

from tests.faults.__main__ import PAGE, counts, recorded, table, with_table
from tests.faults.damage import CANARY, Outcome
from tests.faults.world import Case
from tests.faults.worlds import WORLDS


def case(code: int | None, said: str = "", seconds: float = 1.0, **more: object) -> Case:
    outcome = Outcome(code, said, seconds, said)
    return Case("run", Path("file"), "missing", outcome, **more)  # type: ignore[arg-type]


def test_counts_by_hand() -> None:
    found = counts(
        [
            case(0),
            case(0, changed=True),
            case(1, "warning: a question failed"),
            case(2, "error: no file", 0.25),
            case(2, "error: late", 31.0),
            case(2, f"error: the key {CANARY} is wrong", 0.5),
            case(None, "ValueError: x"),
        ]
    )
    found.pop("date")
    assert found == {
        "cases": 7, "ended well": 2, "one clear error": 1, "not finished": 1, "tracebacks": 1,
        "changed answers": 1, "keys shown": 1, "seconds": [0.5, 31.0],
    }  # fmt: skip


def test_the_page_has_the_recorded_table_without_problems() -> None:
    found, page = recorded(), PAGE.read_text("utf-8")
    assert with_table(page, found) == page and table(found) in page
    assert set(found) == set(WORLDS)
    for one in found.values():
        assert one["tracebacks"] == one["changed answers"] == one["keys shown"] == 0
        assert one["cases"] == one["ended well"] + one["one clear error"] + one["not finished"]
