"""Cost and seconds of runs whose tokens and log are known."""

import json
from pathlib import Path

import pytest

from jaxrag.reproduction.measures import JOB, Results, total_cost, wall_seconds
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.types import InputError
from tests.reproduction.small_runs import write_run


def write(path: Path, costs: list[dict[str, int]], generator: str = "gpt-3.5-turbo") -> Results:
    write_run(path, ({"cost": cost} for cost in costs))
    return Results({JOB: path}, PrintedRow("m", "M", generator, None, None, {}, {}, {}, {}))


def test_total_cost_by_hand(tmp_path: Path) -> None:
    """A helper's tokens are free; 0.5 and 1.5 dollars for a million tokens read and written."""
    helped = {"helper_prompt_tokens": 400, "helper_new_tokens": 20}
    results = write(
        tmp_path / "run",
        [
            {"prompt_tokens": 1000, "new_tokens": 100},
            {"prompt_tokens": 2400, "new_tokens": 220, **helped},
        ],
    )
    # 0.0005 + 0.00015, and of 2,000 and 200 tokens 0.001 + 0.0003
    found = total_cost(results).interval
    assert found.mean == pytest.approx(0.00195) and found.n == 2
    assert found.low == pytest.approx(2 * 0.00065) and found.high == pytest.approx(2 * 0.0013)
    # a question's part of it, times n, so that the costs of two methods are paired
    values = list(total_cost(results).values.values())
    assert values == pytest.approx([2 * 0.00065, 2 * 0.0013])


def test_a_generator_without_price_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="big has no price: add it to a JSON file"):
        total_cost(write(tmp_path / "run", [{"prompt_tokens": 1, "new_tokens": 1}], "big"))


def test_seconds_of_an_interrupted_run_are_those_of_its_parts(tmp_path: Path) -> None:
    results = write(tmp_path / "run", [{}, {}])
    events = [
        ("10:00:00.000", "loading"),
        ("10:00:05.000", "started"),
        ("10:00:07.500", "progress"),  # then killed
        ("11:00:00.000", "started"),
        ("11:00:04.000", "progress"),
        ("11:00:04.250", "finished"),
    ]
    lines = [
        json.dumps({"time": f"2026-11-24T{clock}+00:00", "level": "info", "message": message})
        for clock, message in events
    ]
    (tmp_path / "run" / "log.jsonl").write_text("\n".join(lines) + "\n")
    # 2.5 s before it was killed, and 4.25 s after it was continued
    assert wall_seconds(results).interval == (6.75, 6.75, 6.75, 2) and results.seconds == 6.75
