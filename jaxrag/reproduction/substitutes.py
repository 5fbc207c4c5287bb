"""Other models and data than a paper's in the jobs of its tables, with all other settings kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.data.sets import SETS, named_set
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.evaluation.summary import shown_name
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.models.checkpoint.files import short_name
from jaxrag.reproduction.printed.models import GENERATORS
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr, published_encoder
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.retrieval.wiki_dpr.index import WikiDpr
from jaxrag.runs.job import Job
from jaxrag.runs.settings import parts_in_use, replaced
from jaxrag.steps.gates import JudgeGate
from jaxrag.types import InputError

Index = Literal["", "exact", "scann", "bm25"]
INDEXES: tuple[Index, ...] = get_args(Index)

QUERY_LIKELIHOOD = "query_likelihood"
"""Instead of a reranker's checkpoint: the reader's likelihood of the query, given the passage."""

GOLD = "gold+"
"""Begins a corpus of the gold passages of a set, and a number of others."""

DRAWN = {"tiny": (8, 4), "small": (300, 100)}
"""Most questions to train on, and to evaluate, of a set drawn at random, by the sizes."""

_ROLES: Mapping[type, tuple[str, str]] = {
    JudgeGate: ("judge", "judge"),
    RelevanceJudge: ("model", "judge"),
    Rewriter: ("model", "rewriter"),
}
"""By the class of settings: the field of its language model, and that model's role."""


@dataclasses.dataclass(frozen=True)
class Substitutes:
    """Models and data that replace those of a paper; "" and empty replace nothing.

    Attributes:
      reader: checkpoint of the model that answers, in place of each generator of the paper, in
        trainings and labels, too. A method's own checkpoint, such as Self-RAG's, stays.
      judge, rewriter: checkpoints of the models that judge and that rewrite, where the paper has
        others than the generator; "" is the reader if that is given.
      encoder: checkpoint of the encoder of dense indexes.
      reranker: checkpoint, or `QUERY_LIKELIHOOD`.
      index: kind of the index of dense vectors; "bm25" needs no encoder.
      data: by the name of a published set: a folder of questions, or the name of another set.
      folders: a folder of folders, each the data of the set of its name. A table's other sets are
        left out.
      corpus: name or directory of a built corpus, or a folder with ``corpus.jsonl``, that all
        questions are searched in; "gold+N": the set's gold passages in the paper's corpus and N
        others.
      checkpoint: by the name of a checkpoint, such as the BERT that SiDR's training starts from:
        its replacement, in every field that has the name. Other settings do not change.
      sizes: "small" or "tiny" bounds the questions that are drawn at random, see `DRAWN`.
    """

    reader: str = ""
    judge: str = ""
    rewriter: str = ""
    encoder: str = ""
    reranker: str = ""
    index: Index = ""
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folders: str = ""
    corpus: str = ""
    checkpoint: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sizes: str = ""

    def __post_init__(self) -> None:
        for name in self.data:
            named_set(name)
        number = self.corpus.removeprefix(GOLD)
        if self.corpus.startswith(GOLD) and not number.isdecimal():
            raise InputError(f"--corpus is {self.corpus!r}: give a number, such as gold+100000.")

    def apply(self, job: Job) -> Job:
        """Replaces models and data in a job's settings; InputError if one does not fit."""
        return replaced(replaced(job, self._change), self._checkpoint) if self.given else job

    @property
    def given(self) -> dict[str, Any]:
        """The substitutes that are given, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}

    @property
    def descriptions(self) -> list[str]:
        """Each replacement in words, for headings of pages."""
        models = {
            "all generators": self.reader,
            "judges": self.judge,
            "rewriters": self.rewriter,
            "dense encoders": self.encoder,
            "rerankers": self.reranker,
        }
        names = {role: shown_name(short_name(name)) for role, name in models.items() if name}
        names |= {short_name(a): shown_name(short_name(b)) for a, b in self.checkpoint.items()}
        parts = [f"{name} for {role}" for role, name in names.items()]
        parts += [f"{self.index} search"] if self.index else []
        parts += [f"{Path(other).name} for {name}" for name, other in self.data.items()]
        parts += [f"folders of {Path(self.folders).name} for the sets"] if self.folders else []
        return parts + ([f"corpus {Path(self.corpus).name}"] if self.corpus else [])

    def unused(self, jobs: Iterable[Job]) -> list[str]:
        """The flags of data and checkpoints that change none of the papers' jobs."""
        named = dataclasses.replace(self, checkpoint={})
        parts = [part for job in jobs for part in parts_in_use(named.apply(job))]
        data = [part for part in parts if isinstance(part, Benchmark | Folder)]
        places = {part.path if isinstance(part, Folder) else part.name for part in data}
        flags = [f"--data={a}={b}" for a, b in self.data.items() if b not in places]
        texts = {text for part in parts for text in _texts(part).values()}
        flags += [f"--checkpoint={a}={b}" for a, b in self.checkpoint.items() if a not in texts]
        paths = {"data": self.folders, "corpus": self.corpus}
        return flags + [f"--{flag}={value}" for flag, value in paths.items() if value and not data]

    def missing(self, datasets: Collection[str]) -> list[str]:
        """The data sets that have no folder in `folders`."""
        names = datasets if self.folders else ()
        return [name for name in names if name not in self.data and not self._folder(name)]

    def _folder(self, name: str) -> str:
        folder = Path(self.folders) / name
        return str(folder) if self.folders and (folder / "queries.jsonl").is_file() else ""

    def _can_be_loaded(self, data: Any) -> bool:
        """Whether a set has a folder with a corpus, or a published set in its place."""
        if isinstance(data, Folder):
            return bool(data.corpus) or (Path(data.path) / "corpus.jsonl").is_file()
        return data.name in self.data.values()

    def _change(self, settings: Any) -> Any:
        if isinstance(settings, Benchmark | Folder):
            return self._data(settings)
        if isinstance(settings, Draw) and self.sizes in DRAWN:
            train, test = map(min, (settings.train, settings.test), DRAWN[self.sizes])
            return dataclasses.replace(settings, train=train, test=test)
        elsewhere = self.corpus or self.data or self.folders or self.encoder or self.index
        if isinstance(settings, WikiDpr) and elsewhere:
            settings = Exact(dpr(), metric=settings.metric)  # which has no other passages
        if isinstance(settings, Scann | Exact):
            return self._index(settings)
        if isinstance(settings, CrossEncoder | QueryLikelihood) and self.reranker:
            likelihood = self.reranker == QUERY_LIKELIHOOD
            return QueryLikelihood() if likelihood else CrossEncoder(self.reranker)
        if self.folders and (later := getattr(settings, "evaluated_later", ())):
            there = tuple(data for data in later if self._can_be_loaded(data))
            settings = dataclasses.replace(settings, evaluated_later=there)
        return self._model(settings)

    def _checkpoint(self, settings: Any) -> Any:
        """Settings with the other checkpoint in each field that has one of `checkpoint`."""
        texts = _texts(settings)
        changes = {k: self.checkpoint[v] for k, v in texts.items() if v in self.checkpoint}
        return dataclasses.replace(settings, **changes) if changes else settings

    def _model(self, settings: Any) -> Any:
        """Settings with the language model of their role, if they have one."""
        field, role = _ROLES.get(type(settings), ("model", "reader"))
        if role == "reader" and not _is_generator(getattr(settings, field, None)):
            return settings
        model = {"judge": self.judge, "rewriter": self.rewriter}.get(role) or self.reader
        if not model:
            return settings
        inherits = role != "reader" and model == self.reader  # None: the run's
        return dataclasses.replace(settings, **{field: None if inherits else Local(model)})

    def _index(self, index: Any) -> Any:
        if self.index == "bm25":
            return Bm25()
        kind = {"exact": Exact, "scann": Scann}.get(self.index, type(index))
        encoder, metric = index.encoder, index.metric
        if self.encoder:
            encoder, metric = published_encoder(self.encoder), Exact().metric
        if kind is type(index):
            return dataclasses.replace(index, encoder=encoder, metric=metric)
        return kind(encoder, metric)

    def _data(self, data: Benchmark | Folder) -> Any:
        """Data in place of a published set, or of the folder of its name at scale small."""
        name = data.name if isinstance(data, Benchmark) else Path(data.path).name
        published, substitute = SETS.get(name), self.data.get(name) or self._folder(name)
        if published is None:
            return data
        if substitute in SETS:
            published = SETS[substitute]
            split = data.split if data.split in published.splits else ""
            data = Benchmark(substitute, split, data.corpus if isinstance(data, Benchmark) else "")
        elif substitute:
            split = "train" if data.split == "train" != published.evaluated else "queries"
            task = published.task if published.task in ("yes_no", "fact_checking") else "open"
            data = Folder(substitute, split, task=task)
        corpus = self.corpus
        if corpus.startswith(GOLD):
            if isinstance(data, Folder):
                raise InputError(
                    f"--corpus={corpus} is a part of a published corpus, and the folder "
                    f"{data.path} stands for {name}: name a folder with corpus.jsonl, or leave "
                    "--corpus out."
                )
            base = data.corpus or published.corpus
            corpus = f"{base}-{data.name}+{corpus.removeprefix(GOLD)}"
        return dataclasses.replace(data, corpus=corpus) if corpus else data


def _is_generator(model: Any) -> bool:
    """Whether a language model is one of the paper's, or the small one that stands for it."""
    if isinstance(model, Server):
        return not model.tokenizer
    published = {f"hub:{name}" for name in GENERATORS.values()}
    return isinstance(model, Local) and model.checkpoint in (*published, Local().checkpoint)


def _texts(settings: Any) -> dict[str, str]:
    """The fields of settings that are texts."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def read_pairs(flag: str, texts: Iterable[str], form: str = "NAME=OTHER") -> dict[str, str]:
    """Values by name, of texts NAME=VALUE; InputError for other texts, or two values of a name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise InputError(f"--{flag} is {text!r}: give {form}.")
        if pairs.setdefault(name, value) != value:
            raise InputError(f"--{flag} replaces {name} by {pairs[name]} and by {value}: give one.")
    return pairs


def read_substitutes(
    given: Mapping[str, Any], data: Sequence[str], checkpoints: Sequence[str]
) -> Substitutes:
    """The substitutes of flags, the last two as texts; InputError if one cannot be read."""
    folders = [text for text in data if "=" not in text]
    if len(folders) > 1 or (folders and not Path(folders[0]).is_dir()):
        raise InputError(
            f"--data is {', '.join(folders)}: give SET=FOLDER, SET=NAME of a published set, or one "
            "folder that has a folder for each set."
        )
    by_set = read_pairs("data", [text for text in data if "=" in text])
    other = read_pairs("checkpoint", checkpoints)
    for name, value in other.items():
        if not name.startswith(("hub:", "package:")) or name == value:
            raise InputError(
                f"--checkpoint is {name}={value}: give a checkpoint of the paper and another, such "
                "as hub:google-bert/bert-base-uncased=my_bert."
            )
    return Substitutes(**given, data=by_set, folders="".join(folders), checkpoint=other)
