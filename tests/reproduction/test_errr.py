"""Trainings in ERRR's tables."""

from pathlib import Path
from typing import Any

from configs.papers import ALL
from jaxrag.methods.errr.student import TrainQueryOptimizer
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.work import Work, add_table
from jaxrag.runs.run import Run


def test_rewriters_learn_as_many_tokens_as_they_write(tmp_path: Path) -> None:
    """RRR's 50 and ERRR's 128 at paper scale: the student's training, and the run that uses it."""
    work = Work(tmp_path)
    table, printed = ALL.tables["errr/table3"], printed_tables()["errr/table3"]
    add_table(work, table, printed, "paper", ["popqa", "trainable_rrr", "trainable_errr"])
    students = [one for one in work.jobs.values() if isinstance(one, TrainQueryOptimizer)]
    runs: list[Any] = [one for one in work.jobs.values() if isinstance(one, Run)]
    writers = [getattr(run.method, "rewriter", None) or run.method.optimizer for run in runs]
    assert sorted(one.max_target for one in students) == [50, 128]
    assert sorted(one.tokens for one in writers) == [50, 128]
