"""Small directories of everything that jaxrag reads and writes, and the scripts that read them."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import experiments.report
import experiments.reproduce
import experiments.run
import experiments.status
import experiments.sweep
from configs.papers.claims import CLAIMS
from jaxrag.reproduction.listing import result_file
from tests.experiments.small_run import write_small_run
from tests.faults.damage import DAMAGES, Outcome, call, copy, files, files_with_keys, shows_key
from tests.methods.ars.bandit import small_table
from tests.methods.ars.ranker import small_ranker, test_job
from tests.models.t5 import small_t5
from tests.retrieval.sidr import small_sidr

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
    """

    root: Path
    pristine: Path
    results: str
    inputs: tuple[str, ...]
    readers: dict[str, tuple[Any, tuple[str, ...]]]
    command: tuple[Any, ...] = ()
    only: tuple[str, ...] = ()

    def make(self) -> Outcome:
        """Runs the script that makes the results."""
        own = f"--config={self.root / 'config.py'}", f"--workdir={self.root / 'run'}"
        script, *arguments = self.command or (experiments.run, *own)
        return call(script, *arguments)


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


def _finished(root: Path, results: str, inputs: tuple[str, ...]) -> World:
    work, page = str(root / "run"), f"--out={root.parent / 'page' / 'report.html'}"
    readers: dict[str, tuple[Any, tuple[str, ...]]] = {
        "experiments.report": (experiments.report, (f"--runs={work}", page)),
        "experiments.status": (experiments.status, (work,)),
    }
    world = World(root, root.with_name("pristine"), results, inputs, readers)
    return _kept(world)


def _kept(world: World) -> World:
    """The world after its job, with a copy."""
    done = world.make()
    assert done.code == 0, done
    copy(world.root, world.pristine)
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


OTHER = """
import dataclasses
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.r3 import r3
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL, STANDARD_RAG
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top

HERE = {here!r}


def get_config():
    reader = Reader(prompts=HERE + "/prompts.toml", answer_tokens=4, passage_tokens=12)
    parts = dict(candidates=OnePath(n=3), select=Top(k=2), reader=reader)
    model, index = Local(HERE + "/model"), None
    {choice}
    return Run(method, Folder(HERE + "/data"), model, index, cache=HERE + "/cache")
"""


def _another(root: Path, choice: str, only: tuple[str, ...]) -> World:
    """A run whose method, model or index another statement chooses."""
    (root / "config.py").write_text(OTHER.format(here=str(root), choice=choice))
    own = ("config.py", "data", "encoder", "model", "prompts.toml", "sidr-0", "bert-0", "t5")
    return dataclasses.replace(_finished(root, "run/answers.jsonl", own), only=only)


def _small(root: Path) -> Path:
    root.mkdir()
    write_small_run(root, questions=8)
    return root


def bm25(directory: Path) -> World:
    """A run over BM25: its index is tried."""
    chosen = "method, index = dataclasses.replace(STANDARD_RAG, **parts), Bm25()"
    return _another(_small(directory / "bm25-world"), chosen, ("cache/indexes",))


def sidr(directory: Path) -> World:
    """A run of R3 over SiDR: its checkpoint and index are tried."""
    root = _small(directory / "sidr-world")
    small_sidr.write(root)
    shape = "m=5, top=6, query_length=16, passage_length=24"
    chosen = f"method, index = r3.Config(**parts), Sidr(HERE + '/sidr-0', {shape})"
    return _another(root, chosen, ("cache/indexes", "sidr-0"))


def t5(directory: Path) -> World:
    """A run that a T5 answers: its checkpoint, of two files of weights, is tried."""
    root = _small(directory / "t5-world")
    small_t5.write(root / "t5", small_t5.CONFIGS["1.1"], shards=2)
    replaced = "dataclasses.replace(NO_RETRIEVAL, reader=reader)"
    return _another(root, f"method, model = {replaced}, Seq2Seq(HERE + '/t5')", ("t5",))


def tables(directory: Path) -> World:
    """Two reproduced tables and the page of claims that is made of them."""
    root = directory / "tables-world"
    (root / "made" / "small").mkdir(parents=True)
    ours = {"mean": 1.5, "low": 0.5, "high": 2.5, "n": 40}
    one = {"ours": ours, "unit": "percent", "needed": 0, "verdict": "replicated"}
    for name in ("pairs/table4", "dtr/table2"):
        claims = [
            {"id": claim.id, "verdict": "replicated", "comparisons": [one]}
            for claim in CLAIMS
            if claim.table == name
        ]
        record = {"name": name, "date": "2026-11-24", "limit": 40, "models": ["m"]}
        file = result_file(root / "made", "small", name, "json")
        file.write_text(json.dumps({**record, "claims": claims}, indent=1))
    work = f"--workdir={root / 'made'}"
    command = (experiments.reproduce, f"--claims={root / 'claims.md'}", work)
    listed = {"experiments.reproduce --list": (experiments.reproduce, ("--list", work))}
    own = ("made",)
    return _kept(World(root, root.with_name("pristine"), "claims.md", own, listed, command))


WORLDS: dict[str, Callable[[Path], World]] = {
    "run": run,
    "training": training,
    "bandit": bandit,
    "bm25": bm25,
    "sidr": sidr,
    "t5": t5,
    "tables": tables,
}


def cases(
    world: World, wanted: Callable[[Path, str], bool] | None = None, *, every: int = 1
) -> Iterator[Case]:
    """Tries every script on every damaged file, or on those that are wanted.

    Args:
      world: the job.
      wanted: whether a fault of a file is tried; None for all.
      every: tries each N-th of the pairs of file and fault.
    """
    pairs = [(file, fault) for file in files(world.pristine) for fault in DAMAGES]
    pairs = [pair for pair in pairs if str(pair[0]).startswith(world.only or "")]
    for file, fault in pairs[::every]:
        if wanted is None or wanted(file, fault):
            yield from _after(world, file, fault)


def _after(world: World, file: Path, fault: str) -> Iterator[Case]:
    """Every script after a fault; each begins with the undamaged files."""
    whole = (world.pristine / world.results).read_bytes()
    of_results = file.parts[0] in ("run", "made")
    own = file.parts[0] in world.inputs
    for name, (script, arguments) in world.readers.items() if of_results else ():
        told = _attempt(world, file, fault, functools.partial(call, script, *arguments))
        yield Case(name, file, fault, told, leaks=files_with_keys(world.root.parent))
    done = _attempt(world, file, fault, world.make, afresh=not of_results)
    result = world.root / world.results
    same = result.is_file() and result.read_bytes() == whole
    changed = done.code == 0 and not own and not same
    made_by = world.command[0].__name__ if world.command else "experiments.run"
    yield Case(made_by, file, fault, done, changed, files_with_keys(world.root))


def _attempt(
    world: World, file: Path, fault: str, act: Callable[[], Outcome], *, afresh: bool = False
) -> Outcome:
    """What a script did after a fault; a late one is tried again, since the machine may stall."""
    for _ in range(2):
        copy(world.pristine, world.root)
        DAMAGES[fault](world.root / file)
        if afresh:
            shutil.rmtree(world.root / "run", ignore_errors=True)
        done = act()
        if done.seconds <= SECONDS:
            break
    return done
