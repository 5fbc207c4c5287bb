"""Ways to damage a file, and what a script says then: its exit code, or a traceback."""

import contextlib
import ctypes
import dataclasses
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from jaxrag.experiments.configuration import script
from jaxrag.runs import loading

SECONDS = 30.0  # until an error must have come
DEEP = b"[" * 100_000
CANARY = "canary7f3a9c"
KEYS = {
    "OPENAI_API_KEY": f"sk-proj-{CANARY}/openai+x",
    "BRAVE_API_KEY": f"BSA-{CANARY}-brave",
    "SEARXNG_KEY": f"{CANARY}-searxng",
    "HF_TOKEN": f"hf_{CANARY}_hub",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}/aws",
}
"""Environment variables with keys, which nothing may show."""
_WRITTEN = tuple(
    form.encode()
    for form in (
        CANARY,
        "".join(f"\\u{ord(c):04x}" for c in CANARY),
        "".join(f"%{ord(c):02x}" for c in CANARY),
    )
)


def shows_key(data: bytes) -> bool:
    """Whether a key can be read in some bytes: as it is, or escaped."""
    return any(form in data for form in _WRITTEN)


def files_with_keys(directory: Path) -> list[str]:
    """The files below a directory in whose name or content a key can be read."""
    found = (Path(at) / name for at, _, names in os.walk(directory) for name in names)
    return [
        str(one)
        for one in found
        if shows_key(str(one).encode("utf-8", "replace"))
        or (one.is_file() and shows_key(one.read_bytes()))
    ]


def replaced(data: bytes) -> Callable[[Path], None]:
    return lambda file: void(file.write_bytes(data))


def void(_: object) -> None:
    """Drops a result."""


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda file: void(file.write_bytes(change(file.read_bytes())))


def flipped(share: float) -> Callable[[Path], None]:
    """Inverts one bit of the byte at a share of the file's length."""

    def flip(data: bytes) -> bytes:
        at = min(int(share * len(data)), len(data) - 1)
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] if data else b"\x10"

    return edited(flip)


def moved(file: Path) -> None:
    file.unlink()


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("no-such-file")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": moved,
    "empty": replaced(b""),
    "first half": edited(lambda data: data[: len(data) // 2]),
    "last byte gone": edited(lambda data: data[:-1]),
    "a bit at the start": flipped(0.0),
    "a bit at a third": flipped(0.33),
    "a bit at two thirds": flipped(0.67),
    "a bit at the end": flipped(0.999),
    "garbage": replaced(b"garbage that is no JSON\n"),
    "a line of garbage": edited(lambda data: data + b"garbage\n"),
    "invalid UTF-8": edited(lambda data: b"\xff\xfe\x80" + data),
    "byte-order mark": edited(lambda data: b"\xef\xbb\xbf" + data),
    "NUL bytes": edited(lambda data: data[: len(data) // 2] + b"\0" * 64 + data[len(data) // 2 :]),
    "a 5 MB line": edited(lambda data: data + b"x" * 5_000_000 + b"\n"),
    "deep JSON": replaced(DEEP),
    "a deep line": edited(lambda data: data + DEEP + b"\n"),
    "null": replaced(b"null\n"),
    "a list": replaced(b"[1, [], {}]\n"),
    "an empty object": replaced(b"{}\n"),
    "NaN": replaced(b'{"config": NaN, "step": NaN, "question_id": NaN}\n'),
    "a directory": directory,
    "a symbolic link to itself": loop,
    "a symbolic link to nothing": dangling,
    "no permission": lambda file: file.chmod(0),
    "a read-only directory": lambda file: file.parent.chmod(0o500),
}

_CAPABILITIES = 0x20080522  # the version of Linux's structures
_ALL_FILES = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def overwrite(file: Path, data: bytes) -> None:
    """As ``cp -p`` of a file: its inode, time and, of as many bytes, its size stay."""
    time.sleep(0.02)  # as long as the clock of files may stand still
    stat = file.stat()
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@contextlib.contextmanager
def as_a_user() -> Iterator[None]:
    """Takes from this thread root's right to use files without permission; nothing elsewhere."""
    if not sys.platform.startswith("linux") or os.geteuid():
        yield
        return
    system = ctypes.CDLL(None, use_errno=True)
    thread = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    if system.capget(thread, rights):
        raise OSError(ctypes.get_errno(), "capget failed")
    effective = rights[0]
    try:
        rights[0] = effective & ~_ALL_FILES
        if system.capset(thread, rights):
            raise OSError(ctypes.get_errno(), "capset failed")
        yield
    finally:
        rights[0] = effective
        system.capset(thread, rights)


def allow(directory: Path) -> None:
    """Gives the owner permission for all directories and files."""
    if not directory.is_dir():
        return
    directory.chmod(0o700)
    for one in directory.iterdir():
        if one.is_symlink():
            continue
        if one.is_dir():
            allow(one)
        elif one.stat().st_mode & 0o600 != 0o600:
            one.chmod(0o600)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a script did.

    Attributes:
      code: its exit code; None where an exception left it.
      said: its error, or the exception.
      seconds: until it ended.
      shown: all that it printed.
    """

    code: int | None
    said: str
    seconds: float
    shown: str = ""

    @property
    def clear(self) -> bool:
        """Whether it ended well, or with one error of a few lines."""
        if self.code in (0, 1):  # 1: questions failed or, of a status, are left
            return len(self.said.splitlines()) <= 12
        return self.code == 2 and 0 < len(self.said.splitlines()) <= 12


def call(module: Any, *arguments: str, keep: Collection[str] = ()) -> Outcome:
    """Runs a script in this process, with nothing kept of earlier calls but what ``keep`` names."""
    for name in {"load_model", "open_index_over"} - set(keep):
        getattr(loading, name).cache_clear()
    before, handler, hook = sys.argv, signal.getsignal(signal.SIGTERM), sys.unraisablehook
    errors, output, began = io.StringIO(), io.StringIO(), time.monotonic()

    def ended(code: int | None, said: str) -> Outcome:
        shown = f"{output.getvalue()}\n{errors.getvalue()}\n{said}"
        return Outcome(code, said, time.monotonic() - began, shown)

    sys.argv = [module.__name__, *arguments]
    try:
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(output),
            as_a_user(),
        ):
            script(module.main)
        return ended(0, "")
    except SystemExit as stop:
        lines = errors.getvalue().splitlines()
        starts = ("error:", "stopped:", "warning:")  # before them stands what is being done
        first = next((i for i, one in enumerate(lines) if one.startswith(starts)), 0)
        said = "\n".join(lines[first:]) if stop.code else ""
        return ended(int(stop.code or 0), said)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
        return ended(None, f"{type(error).__name__}: {error} ({place})")
    finally:
        sys.argv, sys.unraisablehook = before, hook
        signal.signal(signal.SIGTERM, handler)


def copy(source: Path, target: Path) -> None:
    """Replaces a directory by a copy of another."""
    allow(target)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)


def files(directory: Path) -> list[Path]:
    """The files below a directory, relative to it, but for locks."""
    found = (Path(at) / name for at, _, names in os.walk(directory) for name in names)
    return sorted(one.relative_to(directory) for one in found if ".lock" not in one.name)
