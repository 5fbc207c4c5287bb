"""Trainings' directories as a page and tables."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.training_page import changed, losses, progress, write_training_report
from jaxrag.evaluation.training_log import alike, changes, is_share, read_training
from jaxrag.experiments import report
from jaxrag.types import InputError
from tests.evaluation import fabricate
from tests.evaluation.report.test_page import outline


def training(path: Path, *, seed: int = 0, steps: int = 4, rate: float = 1e-5, **each: Any) -> Path:
    """A training's directory; ``each``: of a figure, its values before and after."""
    path.mkdir(parents=True)
    config = {"training": {"training": {"seed": seed, "update": {"rate": rate}}}}
    head = {"config": config, "environments": [fabricate.ENVIRONMENT]}
    (path / "config.json").write_text(json.dumps(head))
    lines: list[Mapping[str, Any]] = [{"step": 0, "each": {n: v[0] for n, v in each.items()}}]
    for step in range(1, steps + 1):
        online = step > steps / 2
        parts = {"search_seconds": 1.0, "scoring_seconds": 4.0} if online else {}
        lines.append({"step": step, "loss": 8.0 / step, "online": online, "update_seconds": 2.0,
                      "asked": 0.5 * step, "seconds": 10.0, **parts})  # fmt: skip
    lines[-1] = {**lines[-1], "each": {name: values[1] for name, values in each.items()}}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_changes_by_hand(tmp_path: Path) -> None:
    # one: 1 0 0 | -  ->  1 1 0 | -: from 1/3 to 2/3; two: 0 0 0 -> 1 1 0: from 0 to 2/3.
    # Both: .5 0 0 -> 1 1 0: from 1/6 to 2/3, differences .5 1 0, mean 1/2.
    one = training(tmp_path / "one", right=([1, 0, 0, None], [1, 1, 0, None]))
    two = training(tmp_path / "two", right=([0, 0, 0, None], [1, 1, 0, None]), seed=1)
    found = changes([read_training(one), read_training(two)])
    assert [(c.label, c.name, c.difference.n) for c in found] == [
        ("one", "right", 3), ("two", "right", 3), ("2 seeds", "right", 3),
    ]  # fmt: skip
    means = [(c.before.mean, c.after.mean, c.difference.mean) for c in found]
    assert means[0] == pytest.approx((1 / 3, 2 / 3, 1 / 3))
    assert means[1] == pytest.approx((0, 2 / 3, 2 / 3))
    assert means[2] == pytest.approx((1 / 6, 2 / 3, 1 / 2))


def test_only_seeds_are_taken_together(tmp_path: Path) -> None:
    paths = [
        training(tmp_path / "a", seed=0),
        training(tmp_path / "b", seed=1),
        training(tmp_path / "c", seed=0, rate=2e-5),
    ]
    groups = alike([read_training(path) for path in paths])
    assert [[one.label for one in group] for group in groups] == [["a", "b"], ["c"]]


def test_steps_and_losses(tmp_path: Path) -> None:
    headings, (row,) = losses([read_training(training(tmp_path / "a"))])
    headings = [heading.replace("\n", " ") for heading in headings]
    assert dict(zip(headings, row, strict=True)) == {
        "training": "a", "steps": "4", "loss": "8 → 2", "scored": "2.00", "s per step": "10.0",
    }  # fmt: skip


def test_the_page_and_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "set <b>&|</b> recall@1"
    values = {name: ([0, 1, 0, 1], [1, 1, 0, 1]), "f": ([0.5] * 4, [0.5] * 4)}
    paths = [training(tmp_path / f"s{seed}", seed=seed, **values) for seed in range(3)]
    out = tmp_path / "deep" / "out.html"
    words = [word for path in paths for word in ("--runs", str(path))]
    assert report.main(["report", *words, f"--out={out}"]) == 0
    assert "75.0 [25.0, 100.0]" in capsys.readouterr().out
    page = outline(out.read_text())
    tags, text = [tag for tag, _ in page.tags], "".join(page.text)
    assert tags.count("figure") == 3  # loss, two evaluated metrics
    assert "b" not in tags and name in text and "3 seeds" in text
    table = out.with_suffix(".md").read_text()
    assert r"| 3 seeds | set &lt;b>&amp;\|&lt;/b> recall@1 | 4 | 50.0 [0.0, 100.0] |" in table
    ElementTree.fromstring(progress([read_training(path) for path in paths], name))


@pytest.mark.parametrize(
    ("name", "values", "share"),
    [
        ("exact", ([0.0, 0.25], [1.0, None]), True),
        ("exact", ([0.0, 0.5], [1.0, 1.5]), False),  # words, say
        ("exact", ([-0.5, 0.5], [1.0, 1.0]), False),
        ("loss", ([0.5, 0.5], [0.25, 0.0]), False),  # nats, however few
        ("reward", ([0.0, 0.0], [1.0, 0.0]), False),
    ],
)
def test_what_is_shown_in_percent(tmp_path: Path, name: str, values: Any, share: bool) -> None:
    assert is_share(name, [read_training(training(tmp_path / "a", **{name: values}))]) == share


def test_rewards_are_shown_as_they_are_and_may_be_negative(tmp_path: Path) -> None:
    # mean -1/2 before and 1/2 after; each of four questions gains 1
    evaluations = {"reward": ([-1.0, -1, 0, 0], [0.0, 0, 1, 1]), "words": ([2, 2], [3, 2])}
    path = training(tmp_path / "a", **evaluations)
    row, words = changed([read_training(path)]).rows
    assert words[3].startswith("2.00 [") and words[5].startswith("+0.50 [+0.00, +1.00]")
    assert row[3].startswith("-0.50 [-1.00, ") and row[4].startswith("0.50 [")
    assert row[5].startswith("+1.00 [+1.00, +1.00]")
    figure = progress([read_training(path)], "reward")
    drawn = ElementTree.fromstring(figure)
    heights = [
        float(line.get(end, "nan"))
        for line in drawn.iter("line")
        if line.get("class", "").startswith("bar")
        for end in ("y1", "y2")
    ]
    lines = (path / "metrics.jsonl").read_text().splitlines()
    told = [{**json.loads(line), "reward": -0.5} for line in lines if "loss" in line]
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told))
    write_training_report([path], tmp_path / "drawn.html")
    assert "Reward in training" in (tmp_path / "drawn.html").read_text()
    # nothing below the drawing's lower end, and 0 lies between the two rewards
    zero = svg.y_scale(-1, 1)(0)
    assert svg.TOP <= min(heights) < zero < max(heights) <= svg.BOTTOM
    assert "step 0: -0.5  [-1, " in figure


def test_a_training_that_has_just_begun(tmp_path: Path) -> None:
    path = training(tmp_path / "new", right=([1, 0], [1, 1]))
    first = (path / "metrics.jsonl").read_text().split("\n")[0]
    (path / "metrics.jsonl").write_text(first + '\n{"step": 1, "lo')  # a line is being written
    tables = write_training_report([path], tmp_path / "out.html")
    assert [table.rows[0][1] for table in tables] == ["0"]
    assert not changed([read_training(path)]).rows


def test_invalid_training_directories(tmp_path: Path) -> None:
    run = fabricate.run(tmp_path / "run", "dtr", n=3)
    path = training(tmp_path / "a")
    with pytest.raises(InputError, match="one or the other"):
        report.main(["report", f"--runs={run}", f"--runs={path}", f"--out={tmp_path / 'x.html'}"])
    with pytest.raises(InputError, match=r"holds no metrics\.jsonl"):
        read_training(run)
    with pytest.raises(InputError, match="different names"):
        write_training_report([path, path], tmp_path / "x.html")
    (path / "metrics.jsonl").write_text('{"step": 1}\nno\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: not a step"):
        read_training(path)
    (path / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match="no step yet"):
        read_training(path)
