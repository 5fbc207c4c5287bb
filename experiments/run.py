"""Answers a data set's questions with a method, and prints the table.

    python -m experiments.answer --config configs/dtr.py:factbook \
        --config.method.gate.threshold=0.005 --workdir runs/dtr

The same command again goes on where it was stopped. With ``--dry-run`` it only says what it would
do: it loads no model, builds no index and asks nothing; it reads the data set, building that on
first use. Exit code 0: all questions answered; 1: some failed (they are recorded, and asked again
by the same command); 2: wrong input.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from experiments.configuration import parse, script, show
from jaxrag.plan import IndexPlan, ModelPlan, Plan, plan
from jaxrag.run import execute
from jaxrag.types import InputError


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "run directory", flag_values=values)
    flags.DEFINE_bool("dry-run", False, "only say what would be done", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Runs one config, or tells what that would be."""
    run, values = parse(argv, _define)
    if values["dry-run"].value:
        _tell(plan(run, values.workdir or None), values.workdir)
        return 0
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/dtr")
    found = execute(run, values.workdir)
    show([values.workdir])
    if found["errors"]:
        print(f"{found['errors']} of {found['questions']} questions failed; see answers.jsonl")
    return 1 if found["errors"] else 0


def _tell(found: Plan, workdir: str) -> None:
    """Prints a plan, one thing a line."""
    left = found.questions - found.answered
    lines = [
        ("method", f"{found.method} ({found.settings})"),
        ("data", f"{found.dataset}: {found.questions:,} questions, {found.passages:,} passages"),
        ("run", f"{workdir or 'no --workdir'}: {found.answered:,} answered, {left:,} left"),
        *((model.role, _model(model)) for model in found.models),
    ]
    if found.index is not None:
        lines.append(("index", _index(found.index)))
    held = "not there yet" if found.entries is None else f"{found.entries:,} results"
    lines.append(("store", f"{found.store}: {held}" if found.store else "in memory"))
    for calls in found.calls:
        all_ = _range(left * calls.least, left * calls.most)
        each = _range(calls.least, calls.most)
        lines.append((calls.kind.replace("_", " "), f"{each} a question, {all_} in all"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")


def _model(model: ModelPlan) -> str:
    parts = [f"{model.name} ({model.engine})"]
    if model.weights is not None:
        parts.append(f"about {_size(model.weights)} of weights in {model.dtype}")
    if model.cache is not None:
        parts.append(f"{_size(model.cache)} of keys and values for 1,024 tokens of a row")
    return ", ".join([*parts, *([model.note] if model.note else [])])


def _index(index: IndexPlan) -> str:
    parts = [f"{index.name}: {index.passages:,} passages"]
    if index.bytes is not None:
        parts.append(f"{_size(index.bytes)} of vectors in {index.directory}")
    return ", ".join([*parts, index.state])


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _size(count: int) -> str:
    """Bytes as a person says them."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count} bytes"


if __name__ == "__main__":
    script(main)
