"""The bandit report's figures and page: hand-worked numbers, the paper's beside them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.evaluation.report import plots
from jaxrag.methods.ars.bandit import figures
from jaxrag.methods.ars.bandit.report import lambdas, policies, write_bandit_report
from jaxrag.methods.ars.bandit.reward_table import RewardTable
from jaxrag.methods.ars.bandit.settings import RewardScheme
from jaxrag.methods.ars.bandit.summary import summarise
from jaxrag.types import InputError

SCHEMES = (
    RewardScheme(first=2.0, slope=0.5),
    RewardScheme(penalty=0.0),
    RewardScheme(penalty=0.04),
)
# Two training questions and three test questions under K = 1, 2; the first test question is open.
BASE = np.array([[1, 1], [0, 1], [0.4, 1], [1, 0], [0, 1]], float)
EXACT = np.array([[1, 1], [0, 1], [0, 1], [1, 0], [0, 1]], float)
CURVES = {"played": [0.5, 0.7, 0.9], "train": [0.4, 0.6, 0.8], "test": [0.2, 0.5, 0.7]}


def line(scheme: str, policy: str, seed: int, chosen: list[int]) -> dict[str, Any]:
    name = f"boolq/{scheme}/{policy}/{seed}"
    return {"training": name, "table": "boolq", "scheme": scheme, "policy": policy, "seed": seed,
            **CURVES, "chosen": chosen}  # fmt: skip


LINES = [
    line("weighted", "NeuralUCB", 0, [2, 1, 1]),
    line("weighted", "NeuralUCB", 1, [2, 1, 2]),
    line("weighted", "<b>Lin", 0, [1, 1, 1]),
    line("lambda 0", "NeuralUCB", 0, [2, 2, 2]),
    line("lambda 0.04", "NeuralUCB", 0, [1, 1, 1]),
]


@pytest.fixture
def table() -> RewardTable:
    train = np.array([True, True, False, False, False])
    config = {"encoder": "A", "dataset": {"name": "boolq"}}
    ids = tuple("abcde")
    f1 = np.maximum(BASE, EXACT)
    contexts = np.zeros((5, 2), np.float32)
    return RewardTable(Path("boolq"), config, ids, train, contexts, BASE, EXACT, EXACT, f1)


@pytest.fixture
def directory(table: RewardTable, tmp_path: Path) -> Path:
    head = {"config": {"bandit": {"learner": {"beta": 1.0}}},
            "environments": [{"jaxrag": "0", "started": "2026-01-01"}]}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(head))
    (tmp_path / "curves.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LINES))
    found = {"tables": [summarise(table, SCHEMES, LINES)]}
    (tmp_path / "bandit.json").write_text(json.dumps(found, allow_nan=False))
    return tmp_path


def rows_of(table: RewardTable) -> dict[tuple[str, str], Any]:
    found = summarise(table, SCHEMES, LINES)
    return {(row["scheme"], row["policy"]): row for row in found["results"]}


def test_weighted_metrics_by_hand(table: RewardTable) -> None:
    # Weights 1.5 and 1: test rewards (0.6, 1), (1.5, 0), (0, 1); training (1.5, 1), (0, 1).
    rows = rows_of(table)
    row = rows["weighted", "NeuralUCB"]
    # Seed 0 is paid 1, 1.5, 0 and seed 1 is paid 1, 1.5, 1: by question 1, 1.5, 0.5.
    assert row["means"]["reward"]["mean"] == pytest.approx(1.0)
    assert row["means"]["reward"]["n"] == 3
    # The seeds' means are 2.5/3 and 3.5/3, and sqrt(2 * (1/6)^2) = 0.2357.
    assert row["std"]["reward"] == pytest.approx(0.2357, abs=1e-4)
    assert row["means"]["regret"]["mean"] == pytest.approx(3.5 / 3 - 1)
    assert row["means"]["correct"]["mean"] == pytest.approx(2.5 / 3)
    assert row["means"]["k"]["mean"] == pytest.approx((2 + 1 + 1.5) / 3)
    assert row["share_of_k"] == [0.5, 0.5]
    # In training K = 2 has a mean of 1 and K = 1 of 0.75: 2/3 on the test questions.
    assert row["best_fixed"] == 2
    assert rows["weighted", "best fixed K"]["means"]["reward"]["mean"] == pytest.approx(2 / 3)
    assert row["over_best_fixed"]["mean"] == pytest.approx(1 / 3)
    assert rows["weighted", "K = 1"]["means"]["reward"]["mean"] == pytest.approx(0.7)
    assert rows["weighted", "oracle"]["share_of_k"] == pytest.approx([1 / 3, 2 / 3])
    assert rows["weighted", "oracle"]["means"]["regret"] == {
        "mean": 0, "low": 0, "high": 0, "n": 3}  # fmt: skip
    # Random K: by question 0.8, 0.75 and 0.5.
    assert rows["weighted", "random K"]["means"]["reward"]["mean"] == pytest.approx(2.05 / 3)
    assert rows["weighted", "random K"]["means"]["k"]["mean"] == 1.5


def test_penalised_metrics_by_hand(table: RewardTable) -> None:
    rows = rows_of(table)
    assert rows["lambda 0", "NeuralUCB"]["means"]["reward"]["mean"] == pytest.approx(2 / 3)
    # K = 1 of base rewards 0.4, 1, 0 less 0.04.
    dear = rows["lambda 0.04", "NeuralUCB"]
    assert dear["means"]["reward"]["mean"] == pytest.approx(1.4 / 3 - 0.04)
    assert dear["penalty"] == 0.04 and dear["std"] is None and dear["seeds"] == 1


def test_penalties_have_no_printed_numbers(table: RewardTable) -> None:
    """ARS-RAG's Table 3 (BoolQ, as here) does not say which model answered."""
    found = summarise(table, SCHEMES, LINES)
    grid = lambdas(found)
    assert [row[0] for row in grid.rows] == ["0", "0.04"]
    assert not any("printed" in heading for heading in grid.headings)
    open_heads = policies(found).headings
    assert "F1 %" in open_heads and "EM %" not in open_heads  # EM says what accuracy says


def test_the_page_has_figures_and_tables_and_escapes_markup(directory: Path) -> None:
    grids = write_bandit_report(directory, directory / "report.html")
    page, told = (directory / "report.html").read_text(), (directory / "report.md").read_text()
    assert len(grids) == 2
    titles = ("Reward by epoch, NeuralUCB", "Policies by epoch", "Chosen K")
    for title in titles:
        assert title in page, title
    assert "<b>Lin" not in page and "&lt;b&gt;Lin" in page
    assert not re.search(r"https?://", page)  # nothing is asked of the network
    assert "best fixed K (= 2)" in told and "beta 1.0" in page
    assert "nan" not in re.sub(r"<[^>]*style.*?</style>", "", page, flags=re.S).lower()


def test_figures_show_the_values(table: RewardTable) -> None:
    found = summarise(table, SCHEMES, LINES)
    texts = re.findall(r">(\d+)</text>", figures.choices(found))
    assert texts.count("50") >= 2 and texts.count("100") >= 2  # half and half; all K = 2, all K = 1
    alone = [one for one in LINES if one["policy"] == "NeuralUCB"]
    assert "Policies" not in "".join(figures.figures(found, alone))


def test_without_matplotlib_the_page_says_how_figures_are_drawn(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "has_matplotlib", lambda: False)
    write_bandit_report(directory, directory / "report.html")
    page = (directory / "report.html").read_text()
    assert "jaxrag[figures]" in page and "<figure>" not in page


def test_an_unfinished_or_foreign_directory_is_refused(directory: Path) -> None:
    (directory / "bandit.json").write_text("{")
    with pytest.raises(InputError, match=r"bandit\.json is not a bandit\.json"):
        write_bandit_report(directory, directory / "report.html")
    (directory / "bandit.json").unlink()
    with pytest.raises(InputError, match=r"holds no bandit\.json: run the bandit job"):
        write_bandit_report(directory, directory / "report.html")
