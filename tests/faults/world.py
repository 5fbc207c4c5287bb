"""A finished job, and what every script says after each fault of each of its files."""

import contextlib
import dataclasses
import functools
import itertools
import math
import random
import shutil
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jaxrag.experiments.run
from tests.faults.damage import (
    DAMAGES,
    Outcome,
    allow,
    call,
    copy,
    files,
    files_with_keys,
    limited,
    shows_key,
)
from tests.interruptions import interrupted

SECONDS = 30.0  # until an error must have come


@dataclasses.dataclass(frozen=True)
class World:
    """A job that has been executed, with its inputs, cache and results below ``root``.

    Attributes:
      root: its directory, in which cases are tried.
      pristine: a copy, from which each case begins.
      results: the file, relative to ``root``, that must not change; its bytes are compared.
      inputs: the first parts of paths that are the user's: another content is another result.
      readers: further scripts that read the job's directory, with their arguments.
      command: the script that makes the results, with its arguments; () for `experiments.run`.
      only: beginnings of the paths of the files that are damaged; () for all.
      reads: first parts of the paths that the readers read.
      whole: the bytes of its results.
      writes: how many writes the job does, see `interrupted`.
    """

    root: Path
    pristine: Path
    results: str
    inputs: tuple[str, ...]
    readers: dict[str, tuple[Any, tuple[str, ...]]]
    command: tuple[Any, ...] = ()
    only: tuple[str, ...] = ()
    reads: tuple[str, ...] = ("run", "made")
    whole: bytes = b""
    writes: int = 0

    def make(self) -> Outcome:
        """Runs the script that makes the results."""
        own = f"--config={self.root / 'config.py'}", f"--workdir={self.root / 'run'}"
        script, *arguments = self.command or (jaxrag.experiments.run, *own)
        return call(script, *arguments)

    def kept(self) -> "World":
        """The world after its job, with a copy from which each case begins."""
        with interrupted(math.inf, KeyboardInterrupt()) as writes:
            done = self.make()
        assert done.code == 0, done
        whole = (self.root / self.results).read_bytes()
        copy(self.root, self.pristine)
        return dataclasses.replace(self, whole=whole, writes=writes[0])

    @property
    def made_by(self) -> str:
        """The name of the script that makes the results."""
        return (
            self.command[0].__name__.removeprefix("jaxrag.") if self.command else "experiments.run"
        )

    def same(self) -> bool:
        """Whether the results are there and unchanged, but for a byte-order mark."""
        file = self.root / self.results
        return file.is_file() and file.read_bytes().removeprefix(BOM_UTF8) == self.whole


@dataclasses.dataclass(frozen=True)
class Case:
    """One script after one fault.

    Attributes:
      script: its name.
      file: the damaged file.
      fault: what was done to it.
      outcome: what the script did.
      changed: whether it ended well with another result.
      leaks: files with a key of the environment.
    """

    script: str
    file: Path
    fault: str
    outcome: Outcome
    changed: bool = False
    leaks: Sequence[str] = ()

    @property
    def shows_key(self) -> bool:
        """Whether a key of the environment was printed or written."""
        return bool(self.leaks) or shows_key(self.outcome.shown.encode("utf-8", "replace"))

    @property
    def problem(self) -> str:
        """What is wrong with it; "" for nothing."""
        if not self.outcome.clear:
            return "no clear error"
        if self.shows_key:
            return f"shows a key {self.leaks}"
        if self.changed:
            return "another result"
        return "too late" if self.outcome.seconds > SECONDS and self.outcome.code else ""

    def __str__(self) -> str:
        said = f"{self.outcome.code} after {self.outcome.seconds:.1f} s, {self.outcome.said[:300]}"
        return f"{self.script}, {self.file}, {self.fault}: {self.problem or 'fine'}: {said}"


LIMITS = (0, 1_000, 30_000, 300_000)
"""Bytes beyond which no file grows."""


def cases(world: World, wanted: Callable[[Path, str], bool]) -> Iterator[Case]:
    """Tries every script after each fault of a file that is wanted."""
    for file, fault in itertools.product(files(world.pristine), DAMAGES):
        if wanted(file, fault):
            yield from _after(world, file, fault)


def sample(world: World, chance: random.Random, count: int) -> set[tuple[Path, str]]:
    """Some faults of the files of the world that may be damaged."""
    own = [file for file in files(world.pristine) if str(file).startswith(world.only or "")]
    return set(chance.sample([*itertools.product(own, DAMAGES)], count))


def _after(world: World, file: Path, fault: str) -> Iterator[Case]:
    """Every script after a fault; each begins with the undamaged files."""
    first, own = file.parts[0], file.parts[0] in world.inputs
    for name, (script, arguments) in world.readers.items() if first in world.reads else ():
        told = _attempt(world, file, fault, functools.partial(call, script, *arguments))
        yield Case(name, file, fault, told, leaks=files_with_keys(world.root.parent))
    done = _attempt(world, file, fault, world.make, afresh=first not in ("run", "made"))
    changed = done.code == 0 and not own and not world.same()
    yield Case(world.made_by, file, fault, done, changed, files_with_keys(world.root))


def _attempt(
    world: World, file: Path, fault: str, act: Callable[[], Outcome], *, afresh: bool = False
) -> Outcome:
    """What a script did after a fault; a late one is tried again, since the machine may stall."""
    for _ in range(2):
        copy(world.pristine, world.root)
        if afresh:
            shutil.rmtree(world.root / "run", ignore_errors=True)
        DAMAGES[fault](world.root / file)
        done = act()
        allow(world.root)
        if done.seconds <= SECONDS:
            break
    return done


def without_room(world: World, size: int) -> Case:
    """The job from its inputs, with files of at most ``size`` bytes, and again if it ends."""
    _remove_results(world)
    with limited(size):
        done = world.make()
    return _again(world, done, f"no file grows beyond {size:,} bytes")


def killed(world: World, at: int) -> Case:
    """The job from its inputs, killed at its write number ``at``, and again."""
    _remove_results(world)
    with contextlib.suppress(KeyboardInterrupt), interrupted(at, KeyboardInterrupt()):
        world.make()
    return _again(world, world.make(), f"killed at write {at}")


def _remove_results(world: World) -> None:
    copy(world.pristine, world.root)
    for name in {"run", "cache", Path(world.results).parts[0]} - set(world.inputs):
        one = world.root / name
        shutil.rmtree(one) if one.is_dir() else one.unlink(missing_ok=True)


def _again(world: World, done: Outcome, fault: str) -> Case:
    """The case of a job that ended so; another result of a second attempt is a changed answer."""
    again = world.make() if done.code else done
    changed = again.code != 0 or not world.same()
    where = Path(world.results)
    return Case(world.made_by, where, fault, done, changed, files_with_keys(world.root))
