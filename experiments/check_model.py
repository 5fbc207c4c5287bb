"""Checks a model before its numbers count: prompts, ends, answers, scores, speed.

    jaxrag check-model --config configs/dtr.py:dtr@nq+vllm \\
        --config.model.checkpoint=/models/Qwen2.5-7B-Instruct

shows the prompt of each role as the model sees it, with its special tokens (of some roles:
``direct context``, after the settings), asks twelve easy questions, and prints a line for each
check: OK, WARN or FAIL with the way out. The exit code is 1 if one fails. Data and index are not
used. Each run asks the first three questions by itself (``--config.check_model=False`` does not).
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from jaxrag.core.printable import terminal_text
from jaxrag.core.progress import duration_text
from jaxrag.experiments.configuration import parse_job, script
from jaxrag.runs import model_check
from jaxrag.runs.loading import load_model
from jaxrag.runs.run import Run
from jaxrag.steps import prompts
from jaxrag.steps.reader import Reader, mean_nll
from jaxrag.types import InputError

_STYLES = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def _print_replies(console: Console, replies: model_check.Replies, reader: Reader) -> None:
    console.print(terminal_text("\nanswers: raw text, answer, finish reason, u in nats", "bold"))
    for g, answer in zip(replies.generations, replies.answers, strict=True):
        u = f"{mean_nll(g, reader):.3f}"
        line = f"{g.reasoning!r} " if g.reasoning else ""
        console.print(terminal_text(f"{line}{g.text!r}  {answer!r}  {g.finish_reason}  {u}"))
    console.print()


def main(argv: Sequence[str]) -> int:
    """Checks the model of a run's config."""
    run, roles, _ = parse_job(argv, "check-model", kind=Run)
    console, reader, failed = Console(), model_check.reader_of(run.method), False
    layout = prompts.load(reader.prompts)
    for role in roles:
        if role not in layout.roles:
            near, *_ = difflib.get_close_matches(role[:100], layout.roles, 1, 0)
            raise InputError(f"{layout.path} has no role {role!r}; nearest: {near}.")
    start = time.perf_counter()
    model = load_model(run.model, Path(run.cache))
    console.print(f"{run.model.name}: loaded in {duration_text(time.perf_counter() - start)}")
    for role, text in model_check.shown_prompts(model, reader, roles):
        console.print(terminal_text(f"\nprompt {role}", "bold"))
        console.print(terminal_text(text))
    for result in model_check.run_checks(model, reader):
        if isinstance(result, model_check.Replies):
            replies = result
            _print_replies(console, result, reader)
        else:
            console.print(terminal_text(str(result), _STYLES[result.level]))
            failed |= result.level == "FAIL"
    speed = model_check.measure_speed(model, replies, reader.answer_tokens)
    console.print(f"speed: {speed}")
    return int(failed)


if __name__ == "__main__":
    script(main)
