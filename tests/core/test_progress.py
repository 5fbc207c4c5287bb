import io
import logging
import time

import pytest
from rich.console import Console

from jaxrag.core import progress as module
from jaxrag.core.progress import progress, run_log, shown_warnings


def run(console: Console, monkeypatch, *, seconds: float, done: int = 0) -> None:
    """100 steps of one item each; a clock that moves by ``seconds`` a step."""
    clock = iter(seconds * i for i in range(1000))
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress(100 + done, "encoding", done=done, console=console) as advance:
        for _ in range(100):
            now[0] = next(clock) + seconds
            advance(1)


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch) -> None:
    log = io.StringIO()
    run(Console(file=log), monkeypatch, seconds=0.5, done=1000)
    lines = log.getvalue().splitlines()
    # 50 s: at 10, 20, 30, 40 s and at the end; 2 items a second, the 1,000 done before apart
    assert lines[0] == "encoding: 1,020/1,100, 2.0/s, 40 s left"
    assert lines[-1] == "encoding: 1,100/1,100, 2.0/s, took 50 s"
    assert len(lines) == 5


def test_notes_are_shown_before_the_first_item_is_finished(monkeypatch) -> None:
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress(4, "answering", console=Console(file=log)) as advance:
        now[0] = 20.0
        advance(0, "30 searches")
        now[0] = 40.0  # one in 40 s, so three more take 120
        advance(1, "60 searches")
    assert log.getvalue().splitlines()[:2] == [
        "answering: 0/4, 20 s so far; 30 searches",
        "answering: 1/4, 40.0 s each, 120 s left; 60 searches",
    ]


def test_the_bar_moves_before_the_first_item_is_finished(monkeypatch) -> None:
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress(14, "answering", done=10, console=Console(file=log)) as advance:
        now[0] = 20.0
        advance(0, share=0.25)
    assert log.getvalue().splitlines()[0] == "answering: 10/14, 25 % of the work, 20 s so far"
    screen = io.StringIO()
    updates = []
    monkeypatch.setattr(module.Progress, "update", lambda *_, **given: updates.append(given))
    with progress(14, "answering", done=10, console=Console(file=screen, force_terminal=True)) as a:
        a(0, share=0.25)
        a(2, share=0.25)
    assert [(one["completed"], one["state"].split(",")[0]) for one in updates] == [
        (11, "10/14"),
        (12, "12/14"),
    ]


def test_the_remaining_time_leaves_out_the_first_batch(monkeypatch) -> None:
    """A first batch of 4 items takes 100 s, with its compilation; each later one 12 s."""
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress(12, "answering", console=Console(file=log)) as advance:
        for now[0] in (100.0, 112.0, 124.0):
            advance(4)
    assert log.getvalue().splitlines() == [
        "answering: 4/12, 25.0 s each, 200 s left",  # the first alone
        "answering: 8/12, 3.0 s each, 12 s left",
        "answering: 12/12, 10.3 s each, took 124 s",  # of the whole job
    ]


def test_a_short_job_writes_no_line(monkeypatch) -> None:
    log = io.StringIO()
    run(Console(file=log), monkeypatch, seconds=0.01)
    assert log.getvalue() == ""


def test_a_job_whose_first_item_takes_long_is_named_soon_and_again(monkeypatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(module, "_SOON", 0.01)
    monkeypatch.setattr(module, "_QUIET", 0.1)
    with progress(4, "scoring", console=Console(file=log)):
        for _ in range(500):
            if log.getvalue().count("\n") > 1:
                break
            time.sleep(0.01)
    assert log.getvalue() == 2 * "scoring: 0/4, 0 s so far\n"
    monkeypatch.setattr(module, "_SOON", 0.2)
    with progress(4, "scoring", console=Console(file=log)):
        pass  # over before
    time.sleep(0.4)
    assert log.getvalue().count("\n") == 2


def test_no_silence_is_longer_than_a_minute(monkeypatch) -> None:
    log, now, threads = io.StringIO(), [0.0], []

    class Ended:
        """What passes while the thread waits: at 50 s an item is finished, at 120 s all."""

        def wait(self, pause: float) -> bool:
            if now[0] < 50 < now[0] + pause:
                before, now[0] = now[0], 50.0
                advance(1)
                now[0] = before
            now[0] += pause
            return now[0] > 120

        def set(self) -> None:
            pass

    class Thread:
        def __init__(self, target, daemon) -> None:
            self.start = lambda: threads.append(target)

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.threading, "Event", Ended)
    monkeypatch.setattr(module.threading, "Thread", Thread)
    with progress(4, "scoring", console=Console(file=log)) as advance:
        threads[0]()
    shown = [line.split()[1] + " " + line.split(", ")[1] for line in log.getvalue().splitlines()]
    assert shown[:3] == ["0/4, 2 s so far", "1/4, 50.0 s each", "1/4, 110.0 s each"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (64_560_000_000, "64.6 GB")],
)
def test_sizes(count, text) -> None:
    assert module.size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (599, "599 s"), (600, "10 min"), (7199, "120 min"), (477_600, "132.7 h")],
)
def test_durations(seconds, text) -> None:
    assert module.duration_text(seconds) == text  # 477,600 / 3,600 = 132.67


def test_a_warning_is_shown_once_within_a_run_and_outside(tmp_path, monkeypatch, capsys) -> None:
    logger = logging.getLogger("jaxrag")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    with shown_warnings():
        with run_log(tmp_path / "log.jsonl"):
            logger.warning("odd")
        logger.warning("later")
    assert not logger.handlers and logger.propagate
    assert capsys.readouterr().err == "warning: odd\nwarning: later\n"
