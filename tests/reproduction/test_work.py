"""Jobs of tables: shared, in order, resumed."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.engines.local.engine import Local
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.reproduction import work as module
from jaxrag.reproduction.printed.tables import PrintedRow, printed_tables
from jaxrag.reproduction.tables import Line, Setting, Table
from jaxrag.reproduction.work import Work, add_figure, add_row, chosen, kinds_of
from jaxrag.runs.config_file import load
from jaxrag.runs.job import Job, Outcome
from jaxrag.types import InputError

EXECUTED: list[str] = []


@dataclasses.dataclass(frozen=True)
class Count:
    """A job that notes its execution."""

    name: str
    source: str = ""
    errors: int = 0
    model: Local = Local("a")
    judge: Local | None = None

    def execute(self, workdir: str | Path) -> Outcome:
        EXECUTED.append(self.name)
        Path(workdir).mkdir(parents=True, exist_ok=True)
        return Outcome((), Path(workdir) / "result", self.errors)


def test_a_job_comes_after_those_that_it_needs_and_is_executed_once(tmp_path: Path) -> None:
    EXECUTED.clear()
    work = Work(tmp_path)
    first = work.add(lambda made: Count("run", str(made(Count("training")))))
    second = work.add(lambda made: Count("other", str(made(Count("training")))))
    assert work.execute([second, first]) == 0
    assert EXECUTED == ["training", "run", "other"]
    again = Work(tmp_path)
    assert again.add(lambda made: Count("run", str(made(Count("training"))))) == first
    assert again.execute([first]) == 0 and len(EXECUTED) == 3


def test_only_what_is_wanted_is_executed(tmp_path: Path) -> None:
    EXECUTED.clear()
    work = Work(tmp_path)
    work.add(lambda made: Count("run", str(made(Count("training")))))
    work.execute([work.add(lambda made: Count("alone"))])
    assert EXECUTED == ["alone"]


def test_a_job_with_errors_is_executed_again(tmp_path: Path) -> None:
    EXECUTED.clear()
    work = Work(tmp_path)
    path = work.add(lambda made: Count("run", errors=2))
    assert work.execute([path]) == 2 and work.execute([path]) == 2
    assert EXECUTED == ["run", "run"]


@dataclasses.dataclass(frozen=True)
class Refused(Count):
    """A job whose settings do not fit."""

    def execute(self, workdir: str | Path) -> Outcome:
        EXECUTED.append(self.name)
        raise InputError("no such file")


def test_a_job_that_cannot_be_done_ends_only_those_that_need_it(tmp_path: Path) -> None:
    EXECUTED.clear()
    work = Work(tmp_path)
    refused = work.add(lambda made: Refused("training"))
    needing = work.add(lambda made: Count("run", str(made(Refused("training")))))
    other = work.add(lambda made: Count("other"))
    assert work.execute([needing, other]) == 0 and EXECUTED == ["training", "other"]
    assert work.failed == {
        refused: f"{refused}: no such file",
        needing: f"{needing}: it needs {refused.name}, which could not be done",
    }
    assert work.finished(other) and not work.finished(needing)
    with pytest.raises(InputError, match=f"{refused.name}: no such file"):  # and nothing else
        work.execute([refused])


def test_names_of_directories_do_not_depend_on_the_parent(tmp_path: Path) -> None:
    names = []
    for root in (tmp_path / "a", tmp_path / "b"):
        work = Work(root)
        names.append(work.add(lambda made: Count("run", f"{made(Count('training'))}/x")).name)
    assert names[0] == names[1]
    assert Work(tmp_path).add(lambda made: Count("run", "elsewhere")).name != names[0]


def test_names_of_directories_do_not_depend_on_the_place_of_the_default_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(cache: str, default: str) -> str:
        monkeypatch.setattr(module, "CACHE", default)
        run = load("configs/dtr.py:dtr@tiny")
        return Work(tmp_path).add(lambda made: dataclasses.replace(run, cache=cache)).name

    assert name("/home/a/jaxrag", "/home/a/jaxrag") == name("runs/cache", "runs/cache")
    assert name("/other", "/home/a/jaxrag") != name("runs/cache", "runs/cache")


@dataclasses.dataclass(frozen=True)
class Training(Count):
    """A training with a seed."""

    training: RankerTraining = RankerTraining()
    head_seed: int = 0


def test_what_needs_a_training_is_made_for_each_seed_and_the_rest_once(tmp_path: Path) -> None:
    def run(row: PrintedRow, setting: Setting) -> Count:
        labels = setting.directory(Count("labels"))
        training = Training("training", source=str(labels))
        return Count("run", source=str(setting.directory(training)))

    lines = {"ours": Line(run), "base": Line(lambda row, setting: Count("base"))}
    table = Table(lambda scale, dataset: dataset, lines)
    rows = [PrintedRow(name, name, "", "", 3, {"nq": {"EM": 1.0}}, {}, {}, {}) for name in lines]
    work, one = Work(tmp_path, seeds=3), Work(tmp_path)
    ours, base = (add_row(work, table, row, "small", "nq", "nq") for row in rows)
    jobs = [job.name for job in list[Any](work.jobs.values())]
    assert sorted(jobs) == ["base", "labels", *["run"] * 3, *["training"] * 3]
    trainings: Any = [job for job in work.jobs.values() if isinstance(job, Training)]
    assert [(job.training.seed, job.head_seed) for job in trainings] == [(0, 0), (1, 1), (2, 2)]
    assert len(set(ours.paths)) == 3 and len(base.paths) == 1
    # the first seed is that of a command without seeds
    assert add_row(one, table, rows[0], "small", "nq", "nq").paths == ours.paths[:1]
    EXECUTED.clear()
    assert work.execute(ours.paths) == 0 and EXECUTED.count("labels") == 1 and ours.there
    shutil.rmtree(ours.paths[2])
    assert not ours.there


def test_only() -> None:
    table = printed_tables()["dtr/table2"]

    def left(*only: str) -> list[list[str]]:
        return chosen(table.id, kinds_of(table), only)[:2]

    assert left("nq", "dtr") == [["dtr_u0.001", "dtr_u0.005", "dtr_u0.01"], ["nq"]]
    methods, datasets = left("-dtr", "-nq")
    assert len(left()[0]) == 10 and len(methods) == 7 and "nq" not in datasets
    assert left("dtr", "-dtr_u0.001")[0] == ["dtr_u0.005", "dtr_u0.01"]
    with pytest.raises(InputError, match="has no 'dtrr': its methods are no_retrieval"):
        left("dtrr")
    table = printed_tables()["r3/table1"]  # a retriever is "SiDR (MS; NQ: SiDR trained on NQ)"
    with pytest.raises(InputError, match="has no 'NQ'"):
        left("NQ")


def test_the_limit_is_of_runs_and_measurements_but_not_of_training_data(tmp_path: Path) -> None:
    work = Work(tmp_path, limit=3)

    def added(config: str) -> Any:
        return work.jobs[work.add(lambda made: load(config))]

    assert added("configs/pairs.py:standard_rag@tiny").limit == 3
    assert added("configs/pairs.py:gold_geometry@tiny").run.limit == 3
    assert added("configs/retrieval.py:bm25@tiny").limit == 3
    assert added("configs/ars.py:make_rewards@tiny").run.limit == 0
    work.limit = 100
    assert added("configs/pairs.py:gold_geometry@tiny").run.limit == 8  # the config's own


def test_a_part_of_a_figure(tmp_path: Path) -> None:
    def jobs(*only: str) -> dict[str, list[str]]:
        found = add_figure(Work(tmp_path), "dtr/figure5", ALL.figures["dtr/figure5"], "paper", only)
        return {heading: [*one.directories] for heading, one in found.items()}

    assert jobs("nq", "7B", "HyDE") == {"nq": ["7B", "7B, retrieved", "HyDE"]}
    assert len(jobs("-nq")["hotpotqa"]) == 11 and set(jobs()) == {"hotpotqa", "nq"}
    with pytest.raises(InputError, match="dtr/figure5 has no 'webq': its series are 7B, 32B"):
        jobs("webq")
    with pytest.raises(InputError, match="nothing of dtr/figure5 is left by --only=-nq,-hotpotqa"):
        jobs("-nq", "-hotpotqa")
    figure = ALL.figures["pairs/figure3"]
    with pytest.raises(InputError, match="pairs/figure3 has no 'pairs': its data sets are hotpot"):
        add_figure(Work(tmp_path), "pairs/figure3", figure, "paper", ["pairs"])


@pytest.mark.parametrize("name", ALL.figures)
def test_series_name_jobs_of_their_figure(name: str) -> None:
    figure = ALL.figures[name]
    used = {job for jobs in figure.series.values() for job in jobs}
    assert used == (set(figure.jobs) if figure.series else set())


A, B = Local("a"), Local("b")


def test_jobs_of_a_model_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that also needs b comes between those of a and those of b; a stays for it."""

    def release(keep: set[Any]) -> None:
        EXECUTED.append(f"kept {sorted(model.name for model in keep)}")

    EXECUTED.clear()
    monkeypatch.setattr(module, "release", release)
    work = Work(tmp_path)
    made = [work.add(lambda made, i=i: Count(f"run{i}", model=(A, B)[i % 2])) for i in range(4)]
    judged = work.add(lambda made: Count("judged", model=A, judge=B))
    needs = Count("needs a", source="later", model=B)
    last = work.add(lambda made: Count("last", str(made(needs)), model=A))
    work.execute([*made, judged, last])
    assert EXECUTED == [
        "run0", "run2", "judged", "kept ['b']", "run1", "run3", "needs a", "kept ['a']", "last",
    ]  # fmt: skip


def test_programs_of_trainings_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answers(Count):
        pass

    EXECUTED.clear()
    monkeypatch.setattr(module, "Run", Answers)
    monkeypatch.setattr(module, "release_programs", lambda: EXECUTED.append("released"))
    work = Work(tmp_path)
    jobs = [Answers("run"), Count("training"), Answers("another run")]
    work.execute([work.add(lambda made, job=job: job) for job in jobs])
    assert EXECUTED == ["run", "training", "released", "another run"]


def test_what_a_job_asks_for_comes_in_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training needs the start, though both are asked for by the run alone."""
    EXECUTED.clear()
    monkeypatch.setattr(module, "release", lambda keep: None)
    work = Work(tmp_path)

    def run(made: Callable[[Job], Path]) -> Count:
        start = made(Count("start", model=B))
        return Count("run", source=str(made(Count("training", source=f"{start}/retriever"))))

    work.execute([work.add(lambda made: Count("other")), work.add(run)])
    assert EXECUTED == ["other", "start", "training", "run"]
