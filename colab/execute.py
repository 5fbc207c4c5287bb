"""Executes the notebooks' sources and checks their outputs.

    python -m colab.execute --write            every notebook, at the size of a test
    python -m colab.execute --full 1_quickstart

Each ``NAME.py`` is run from top to bottom in a kernel of its own, which has only the packages that
its install cell asks for (`colab.environment`). An error, or a path of this machine in an output,
ends the command with exit code 1. ``--write`` saves ``NAME.ipynb`` with its outputs, without
progress and warnings. ``--full`` runs with ``TINY = False``. ``--jobs=2`` executes two at once.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from colab import environment

HERE = Path(__file__).parent
ROOT = HERE.parent
TIMEOUT = 1_800  # seconds for a cell


def main(argv: Sequence[str]) -> int:
    """Executes the named notebooks, or all."""
    parser = argparse.ArgumentParser(prog="python -m colab.execute", description=__doc__)
    parser.add_argument("names", nargs="*", help="such as 1_quickstart; default: all")
    parser.add_argument("--full", action="store_true", help="run with TINY = False")
    parser.add_argument("--write", action="store_true", help="save the notebooks with outputs")
    parser.add_argument("--workdir", default="", help="directory of runs; default: a temporary one")
    parser.add_argument(
        "--jobs", type=int, default=1, help="notebooks executed at once; default: 1"
    )
    values = parser.parse_args(argv[1:])
    sources = [HERE / f"{name}.py" for name in values.names] or sorted(HERE.glob("[0-9]*.py"))
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(values.workdir or temporary)
        work.mkdir(parents=True, exist_ok=True)
        for folder in ("configs", "experiments"):
            if not (work / folder).exists():
                (work / folder).symlink_to(ROOT / folder)
        run = functools.partial(execute, work=work, tiny=not values.full, write=values.write)
        with ProcessPoolExecutor(values.jobs) as pool:
            return max(pool.map(run, sources))


def execute(source: Path, work: Path, *, tiny: bool, write: bool) -> int:
    """Runs one notebook in ``work``; 1 if it fails or its outputs are not fit to publish."""
    notebook, started = jupytext.read(source), time.monotonic()
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3", "language": "python", "name": "python3",
    }  # fmt: skip
    os.environ["JAXRAG_TINY"] = "1" if tiny else ""
    absent = environment.absent_modules(environment.extras_of(source.read_text("utf-8")))
    hiding = environment.hide(absent, work / "absent" / source.stem)
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{hiding.resolve()}"
    # kernels, and the processes that they start, compile each program once
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str((work / "compiled").resolve()))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    client = NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": work}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"{source.name}: {error}", file=sys.stderr)
        return 1
    tidy(notebook)
    found = [name for name in machine_paths(work) if name in jupytext.writes(notebook, "ipynb")]
    if found:
        print(f"{source.name}: its outputs contain {', '.join(found)}", file=sys.stderr)
        return 1
    if write:
        jupytext.write(notebook, source.with_suffix(".ipynb"))
    took = time.monotonic() - started
    print(f"{source.name}: {len(notebook.cells)} cells, {took:.0f} s", flush=True)
    return 0


def tidy(notebook: Any) -> None:
    """Removes progress, warnings, widgets and times of execution."""
    for number, cell in enumerate(notebook.cells, start=1):
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if _is_kept(one)]


def _is_kept(output: Any) -> bool:
    if output.output_type == "stream":
        return output.name == "stdout"
    shown = output.get("data", {})
    return "application/vnd.jupyter.widget-view+json" not in shown and bool(
        "".join(str(part) for part in shown.values()).strip()
    )


def machine_paths(work: Path) -> Iterator[str]:
    """Parts of paths of this machine."""
    yield "site-packages"
    for path in (ROOT, work, Path.home(), Path(sys.prefix), Path(tempfile.gettempdir())):
        yield f"{path.resolve()}{os.sep}"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
