"""Small directories of everything that jaxrag reads and writes, and the scripts that read them."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import experiments.report
import experiments.run
import experiments.status
import experiments.sweep
from tests.experiments.small_run import write_small_run
from tests.faults.damage import DAMAGES, Outcome, call, copy, files, files_with_keys, shows_key
from tests.methods.ars.bandit import small_table
from tests.methods.ars.ranker import small_ranker, test_job

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
    """

    root: Path
    pristine: Path
    results: str
    inputs: tuple[str, ...]
    readers: dict[str, tuple[Any, tuple[str, ...]]]

    @property
    def arguments(self) -> tuple[str, str]:
        """The arguments of `experiments.run`."""
        return f"--config={self.root / 'config.py'}", f"--workdir={self.root / 'run'}"


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
    def problem(self) -> str:
        """What is wrong with it; "" for nothing."""
        if not self.outcome.clear:
            return "no clear error"
        if self.leaks or shows_key(self.outcome.shown.encode("utf-8", "replace")):
            return f"shows a key {self.leaks}"
        if self.changed:
            return "another result"
        return "too late" if self.outcome.seconds > SECONDS and self.outcome.code else ""

    def __str__(self) -> str:
        said = f"{self.outcome.code} after {self.outcome.seconds:.1f} s, {self.outcome.said[:300]}"
        return f"{self.script}, {self.file}, {self.fault}: {self.problem or 'fine'}: {said}"


def _finished(root: Path, results: str, inputs: tuple[str, ...]) -> World:
    work, page = str(root / "run"), f"--out={root.parent / 'page' / 'report.html'}"
    readers: dict[str, tuple[Any, tuple[str, ...]]] = {
        "experiments.report": (experiments.report, (f"--runs={work}", page)),
        "experiments.status": (experiments.status, (work,)),
    }
    world = World(root, root.with_name("pristine"), results, inputs, readers)
    done = call(experiments.run, *world.arguments)
    assert done.code == 0, done
    copy(root, world.pristine)
    return world


def run(directory: Path) -> World:
    """A run of DTR with a data folder, a model, an encoder, an index and a store."""
    root = directory / "run-world"
    root.mkdir()
    write_small_run(root, questions=8)
    own = ("config.py", "data", "encoder", "model", "prompts.toml")
    return _finished(root, "run/answers.jsonl", own)


RANKER = """
from jaxrag.methods.ars.ranker.job import TrainRanker
from jaxrag.methods.ars.ranker.training import RankerTraining


def get_config():
    how = RankerTraining(
        steps=4,
        unit="questions",
        batch=8,
        microbatch=2,
        learning_rate=5e-3,
        evaluate_every=2,
        save_every=2,
    )
    return TrainRanker({labels!r}, {start!r}, max_length=16, held_out=0.25, training=how)
"""


def training(directory: Path) -> World:
    """A training of ARS-RAG's ranker: labels, checkpoints, metrics.jsonl."""
    root = directory / "training-world"
    root.mkdir()
    test_job.write(root / "labels", test_job.lines())
    start = small_ranker.write(root)
    config = RANKER.format(labels=str(root / "labels"), start=str(start))
    (root / "config.py").write_text(config)
    return _finished(root, "run/ranker/model.safetensors", ("config.py", "labels", "bert"))


BANDIT = """
from jaxrag.methods.ars.bandit.job import TrainBandit
from jaxrag.methods.ars.bandit.settings import BanditTraining, LinUcb, NeuralUcb


def get_config():
    return TrainBandit(
        ({table!r},),
        arms=3,
        learner=NeuralUcb(width=8, beta=1.0, learning_rate=0.1),
        others=(LinUcb(),),
        training=BanditTraining(epochs=3, batch=7),
        seeds=1,
        workers=1,
    )
"""


def bandit(directory: Path) -> World:
    """Trainings of bandits from a reward table."""
    root = directory / "bandit-world"
    root.mkdir()
    table = small_table.write(root / "boolq")
    (root / "config.py").write_text(BANDIT.format(table=str(table)))
    return _finished(root, "run/curves.jsonl", ("config.py", "boolq"))


WORLDS: dict[str, Callable[[Path], World]] = {"run": run, "training": training, "bandit": bandit}


def cases(world: World, wanted: Callable[[Path, str], bool] | None = None) -> Iterator[Case]:
    """Tries every script on every damaged file, or on those that are wanted."""
    whole = (world.pristine / world.results).read_bytes()
    for file in files(world.pristine):
        of_results = file.parts[0] == "run"
        for fault, damage in DAMAGES.items():
            if wanted is not None and not wanted(file, fault):
                continue
            own = file.parts[0] in world.inputs
            for name, (script, arguments) in world.readers.items() if of_results else ():
                _begin(world, file, damage)
                told = call(script, *arguments)
                yield Case(name, file, fault, told, leaks=files_with_keys(world.root.parent))
            _begin(world, file, damage)
            if not of_results:
                shutil.rmtree(world.root / "run")
            done = call(experiments.run, *world.arguments)
            result = world.root / world.results
            same = result.is_file() and result.read_bytes() == whole
            changed = done.code == 0 and not own and not same
            leaks = files_with_keys(world.root)
            yield Case("experiments.run", file, fault, done, changed, leaks)


def _begin(world: World, file: Path, damage: Callable[[Path], None]) -> None:
    copy(world.pristine, world.root)
    damage(world.root / file)
