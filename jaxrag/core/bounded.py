"""Functions on data that may be anyone's, such as a chat template, in a process with limits.

Run as a module, this file answers the calls of one function, a line of JSON each, until its
standard input is closed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from jaxrag.types import EngineDown, InputError

_PACKAGES = Path(__file__).parents[2]
_WALL = 60.0  # seconds; the limit where the machine is so busy that a call hardly runs
_QUOTED = 500  # characters of an error


class LimitError(EngineDown, InputError):
    """Somebody's data takes more time or memory than it may; stops the run."""


def start_module(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a module of this package in a process of its own that reads from a pipe."""
    paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen[bytes](
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        **options,
    )


class Bounded:
    """A function of JSON values, called in a process that stays open; thread-safe.

    A call takes at most ``seconds`` of processor time, and the process ``memory`` bytes.
    """

    def __init__(
        self, module: str, function: str, *, seconds: float = 1.0, memory: int = 1 << 29
    ) -> None:
        self._command, self._limits = (module, function), (seconds, memory)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, **values: Any) -> Any:
        """The function's value; InputError with its error's message, LimitError beyond limits."""
        line = json.dumps(values, default=str).encode() + b"\n"
        with self._lock:
            process = self._process = self._process or self._start()
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line)
                process.stdin.flush()
            answer = process.stdout.readline()
            if not answer.endswith(b"\n"):
                self._process = None
                raise LimitError(self._end(process))
        kind, value = json.loads(answer)
        if kind != "value":
            raise (LimitError if kind == "limit" else InputError)(value)
        return value

    def _start(self) -> subprocess.Popen[bytes]:
        process = start_module(
            __name__,
            *self._command,
            *map(str, self._limits),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the other process
        )
        weakref.finalize(self, _close, process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> str:
        """Why a process has ended."""
        _close(process)
        if process.returncode in (-signal.SIGPROF, -signal.SIGALRM):
            return f"it takes over {self._limits[0]:g} s"
        return f"it ends its process ({process.returncode})"


def _close(process: subprocess.Popen[bytes]) -> None:
    with process, contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Answers calls; SIGPROF and SIGALRM, whose default is to end the process, limit each."""
    module, name, seconds, memory = sys.argv[1:]
    function = getattr(importlib.import_module(module), name)
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, float(seconds))
        signal.setitimer(signal.ITIMER_REAL, _WALL)
        try:
            answer = ("value", function(**json.loads(line)))
        except MemoryError as failure:
            answer = ("limit", str(failure) or f"it takes over {int(memory) >> 20} MB of memory")
        except Exception as failure:
            answer = ("error", (str(failure) or type(failure).__name__)[:_QUOTED])
        except BaseException as failure:  # a panic in Rust
            answer = ("limit", f"it fails in an unforeseen way ({str(failure)[:_QUOTED]})")
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
