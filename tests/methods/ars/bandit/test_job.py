"""The bandit job: every training is kept, resuming is bit-identical, other jobs are refused."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from jaxrag.data.leakage import TRAINED_ON, question_set
from jaxrag.experiments import report
from jaxrag.methods.ars.bandit import job as bandit_job
from jaxrag.methods.ars.bandit.reward_table import read_table
from jaxrag.methods.ars.bandit.settings import BanditTraining, LinUcb, NeuralUcb, RewardScheme
from jaxrag.methods.ars.bandit.trained import load_bandit
from jaxrag.types import InputError
from tests.methods.ars.bandit import small_table

NAMES = [
    f"{table}/{scheme}/{policy}/{seed}"
    for table in ("boolq", "hotpotqa")
    for scheme, policies in (
        ("weighted", ("NeuralUCB", "LinUCB")),
        ("lambda 0", ("NeuralUCB",)),
        ("lambda 1", ("NeuralUCB",)),
    )
    for policy in policies
    for seed in (0, 1)
]


def made(here: Path) -> bandit_job.TrainBandit:
    """Trainings on two tables."""
    tables = [
        small_table.write(here / "boolq"),
        small_table.write(here / "hotpotqa", seed=1, dataset="hotpotqa"),
    ]
    return bandit_job.TrainBandit(
        tuple(map(str, tables)),
        arms=3,
        learner=NeuralUcb(width=16, beta=1.0, learning_rate=0.1),
        others=(LinUcb(),),
        training=BanditTraining(epochs=30, batch=7),
        penalties=(0.0, 1.0),
        seeds=2,
        workers=2,
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> bandit_job.TrainBandit:
    return made(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def whole(job: bandit_job.TrainBandit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("whole")
    job.execute(workdir)
    return workdir


def lines_of(workdir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workdir / "curves.jsonl").read_text().splitlines()]


def test_every_table_scheme_policy_and_seed_is_trained(whole: Path) -> None:
    lines = lines_of(whole)
    assert [line["training"] for line in lines] == NAMES
    for line in lines:
        assert len(line["played"]) == len(line["train"]) == len(line["test"]) == 30
        assert len(line["chosen"]) == 12 and set(line["chosen"]) <= {1, 2, 3}
    for name in ("config.json", "bandit.json", "report.html", "report.md"):
        assert (whole / name).is_file(), name


def test_saved_bandits_choose_the_recorded_arms(job: bandit_job.TrainBandit, whole: Path) -> None:
    table = read_table(job.tables[1])
    for scheme, seed in ((RewardScheme(), 0), (RewardScheme(), 1), (RewardScheme(penalty=1), 1)):
        place = bandit_job.bandit_of(whole, "hotpotqa", scheme, seed)
        found = load_bandit(place, encoder="encoder A")
        name = f"hotpotqa/{scheme.name}/NeuralUCB/{seed}"
        line = next(line for line in lines_of(whole) if line["training"] == name)
        np.testing.assert_array_equal(found.choose(table.contexts[~table.train]), line["chosen"])


def test_a_checkpoint_has_the_questions_that_it_was_trained_on(
    whole: Path, job: bandit_job.TrainBandit, tmp_path: Path
) -> None:
    trained = question_set("", (f"Question {i}?" for i in range(28))).hashes  # of 40, 12 to test
    for path in (whole / "bandits" / "boolq").iterdir():
        np.testing.assert_array_equal(np.load(path / TRAINED_ON), trained)
    assert read_table(job.tables[0]).trained_on[:2] == ("Question 0?", "Question 1?")
    table = shutil.copytree(job.tables[0], tmp_path / "without")
    lines = [json.loads(line) for line in (table / "rewards.jsonl").read_text().splitlines()]
    del lines[3]["question"]
    (table / "rewards.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_table(table).trained_on == ()


def test_another_table_is_refused(job: bandit_job.TrainBandit, whole: Path, tmp_path: Path) -> None:
    other = small_table.write(tmp_path / "boolq", seed=5)
    with pytest.raises(InputError, match=r"tables\.boolq\.content: .* recorded"):
        dataclasses.replace(job, tables=(str(other), job.tables[1])).execute(whole)


def test_incompatible_settings_are_refused(job: bandit_job.TrainBandit, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rewards for 3 rewrites, .*set to 10 arms"):
        dataclasses.replace(job, arms=10).execute(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"tables": ()}, "give directories of reward tables"),
        ({"tables": ("a/boolq", "b/boolq")}, "names differ"),
        ({"penalties": (0.1, 0.1)}, "hold one twice"),
        ({"others": (LinUcb(), LinUcb(2.0))}, "hold one twice"),
        ({"seeds": 0}, "seeds is 0"),
    ]
    for changes, message in bad:
        with pytest.raises(InputError, match=message):
            dataclasses.replace(job, **changes)


def test_the_outcome_shows_the_tables(
    job: bandit_job.TrainBandit, whole: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(bandit_job, "train", None)  # nothing is left to train
    outcome = job.execute(whole)
    assert outcome.path == whole / "report.html" and not outcome.errors
    for shown in outcome.shown:
        Console(width=outcome.width).print(shown)
    told = capsys.readouterr().out
    for word in ("NeuralUCB", "LinUCB", "best fixed K (= 1)", "oracle", "boolq: lambda"):
        assert word in told, word


def test_a_report_of_a_bandit_names_its_own_page(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"its own report is {whole / 'report.html'}"):
        report.main(["report", f"--runs={whole}", f"--out={tmp_path / 'page.html'}"])


def test_tables_of_another_order_or_reader_are_refused(
    job: bandit_job.TrainBandit, tmp_path: Path
) -> None:
    """Those of other rankers are not: every data set has a ranker of its own."""

    def table(name: str, ranker: str, **source: Any) -> str:
        path = small_table.write(tmp_path / name)
        head = json.loads((path / "config.json").read_text())
        order = {"is": "Ranked", "ranker": ranker}
        head["config"]["source"] = {"order": order, "reader": {"tokens": 4}} | source
        (path / "config.json").write_text(json.dumps(head))
        return str(path)

    ranked, generated = table("a", "A"), table("b", "B", order={"is": "Generated"})
    with pytest.raises(InputError, match=r'order\.is: "Ranked" recorded, "Generated" now') as told:
        dataclasses.replace(job, tables=(ranked, generated)).execute(tmp_path / "work")
    assert ranked in str(told.value) and generated in str(told.value)
    read = table("c", "A", reader={"tokens": 8})
    with pytest.raises(InputError, match=r"reader\.tokens: 4 recorded, 8 now"):
        dataclasses.replace(job, tables=(ranked, read)).execute(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    small = {"penalties": (), "others": (), "seeds": 1, "training": BanditTraining(epochs=1)}
    both = dataclasses.replace(job, tables=(ranked, table("d", "D")), **small)
    both.execute(tmp_path / "work")
    kept = load_bandit(tmp_path / "work" / "bandits" / "d" / "weighted")
    assert kept.source["order"] == {"is": "Ranked", "ranker": "D"}


def test_checkpoints_of_selectors_are_read(whole: Path, tmp_path: Path) -> None:
    """As bandits were called once."""
    old = tmp_path / "old"
    shutil.copytree(whole / "bandits" / "boolq" / "weighted", old)
    config = json.loads((old / "config.json").read_text()) | {"model_type": "ars-selector"}
    del config["source"]
    (old / "config.json").write_text(json.dumps(config))
    new = load_bandit(whole / "bandits" / "boolq" / "weighted")
    assert load_bandit(old).identity == new.identity
