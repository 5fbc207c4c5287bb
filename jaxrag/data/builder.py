"""What the published sets of questions have in common: their files, splits, sizes and TFDS builder.

A set is a subclass of `BenchmarkBuilder` in `jaxrag.data.sets`, with a class method that reads its
published files. `jaxrag data` builds it for jaxrag; as a TFDS builder it also works alone:

    BoolQ(data_dir="somewhere", file_format="array_record").download_and_prepare()

Splits are named train, dev and test as in the papers, whatever the published files are called.
"""

from __future__ import annotations

import abc
import importlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from jaxrag.core.jsonl_input import read_input
from jaxrag.data.dataset import FIELDS, LabelledQuestion, stored_row
from jaxrag.data.downloads import Known, archive_of, extract_member, find_file
from jaxrag.data.formats.dpr import with_dpr_gold
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.set_row import OWN, SetRow
from jaxrag.types import InputError

_FLASHRAG = "https://huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets/resolve/main/"


class BenchmarkBuilder(tfds.core.GeneratorBasedBuilder, abc.ABC, skip_registration=True):
    """A published set of questions; also a TFDS builder.

    Attributes:
      NAME: of the set, on command lines.
      SPLITS: number of questions by split.
      EVALUATED: the split that papers evaluate.
      TASK: one of `jaxrag.data.question_kinds.TASKS`.
      CORPUS: name of the corpus that papers search; `OWN` is the set's own contexts.
      CONTEXTS: name under which its contexts are built; "" is NAME-contexts.
      CONTEXTS_SIZE: number of its contexts over all splits, as papers give it, so within 5 %; 0 if
        none does.
      FILES: address by name of published file. A file whose address is that of an archive with
        another name is a member of it; "" if there is none that programs can use. A name that
        other sets use too has a folder in front.
      NEEDS: by split, alternatives of file names to read it from, the preferred first.
      OPTIONAL: by split, names of DPR's training files, whose gold passages are added if they are
        there.
      EXTRA: splits that are downloaded only if they are named, since their files are large.
      FLASHRAG: by split, FlashRAG's file of the set ("nq/test.jsonl"), the last alternative.
      TFDS: name of TFDS's builder of the set, which records sizes and hashes of files; "" if none.
      LICENCE, CITATION, SOURCE: of the published files.
    """

    VERSION: ClassVar[Any] = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS: ClassVar[Any] = "The published files, by their published names."

    NAME: ClassVar[str]
    SPLITS: ClassVar[Mapping[str, int]]
    EVALUATED: ClassVar[str]
    TASK: ClassVar[str] = "open"
    CORPUS: ClassVar[str]
    CONTEXTS: ClassVar[str] = ""
    CONTEXTS_SIZE: ClassVar[int] = 0
    FILES: ClassVar[Mapping[str, str]]
    NEEDS: ClassVar[Mapping[str, tuple[tuple[str, ...], ...]]]
    OPTIONAL: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    EXTRA: ClassVar[tuple[str, ...]] = ()
    FLASHRAG: ClassVar[Mapping[str, str]] = {}
    TFDS: ClassVar[str] = ""
    LICENCE: ClassVar[str]
    CITATION: ClassVar[str]
    SOURCE: ClassVar[str]

    @classmethod
    def contexts_name(cls) -> str:
        """Name of the corpus of the set's own contexts."""
        return cls.CONTEXTS or f"{cls.NAME}-{OWN}"

    @classmethod
    @abc.abstractmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of a split in their published order.

        Args:
          files: paths by published name, of one alternative of ``NEEDS[split]`` and of those of
            ``OPTIONAL[split]`` that are there. Files may be packed (`core.packed_files`).
          split: a key of ``SPLITS``.

        Raises:
          InputError: naming the file, line or number of the row, and field.
        """

    @classmethod
    def read_flashrag(cls, path: Path, split: str) -> Iterator[SetRow]:
        """The questions of a split in FlashRAG's form (`jaxrag.data.formats.flashrag`).

        Raises:
          InputError: naming the file, line and field.
        """
        return read_flashrag(path, task=cls.TASK)

    @classmethod
    def rows(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of a split in their order, from whichever files `choose_files` chose.

        Gold passages of DPR's training files are added where those are there.

        Raises:
          InputError: as `read`.
        """
        path = files.get(cls.FLASHRAG.get(split, ""))
        if path is not None and _is_flashrag(path):
            found = cls.read_flashrag(path, split)
        else:
            found = cls.read(files, split)
        gold = [files[name] for name in cls.OPTIONAL.get(split, ()) if name in files]
        return with_dpr_gold(found, gold) if gold else found

    @classmethod
    def addresses(cls) -> dict[str, str]:
        """Addresses of all files, FlashRAG's too, by name."""
        return {name: _FLASHRAG + name for name in cls.FLASHRAG.values()} | dict(cls.FILES)

    @classmethod
    def alternatives(cls, split: str) -> tuple[tuple[str, ...], ...]:
        """Names of files that a split can be read from, the preferred first."""
        flashrag = cls.FLASHRAG.get(split)
        return (*cls.NEEDS.get(split, ()), *(((flashrag,),) if flashrag else ()))

    @classmethod
    def downloadable(cls, split: str) -> tuple[str, ...]:
        """The first alternative whose files all have addresses; empty if there is none."""
        addresses = cls.addresses()
        whole = (one for one in cls.alternatives(split) if all(addresses[name] for name in one))
        return next(whole, ())

    @classmethod
    def known_files(cls) -> dict[str, Known]:
        """Sizes and hashes of published files by address, where TFDS records them."""
        if not cls.TFDS:
            return {}
        importlib.import_module("tensorflow_datasets.question_answering")  # registers its sets
        infos = tfds.builder_cls(cls.TFDS).url_infos or {}
        return {url: Known(int(info.size), info.checksum) for url, info in infos.items()}

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        features: dict[str, Any] = {
            name: text() if of is str else tfds.features.Sequence(text())
            for name, of in FIELDS.items()
        }
        passage = {"id": text(), "title": text(), "text": text()}
        return tfds.core.DatasetInfo(
            builder=self,
            description=(type(self).__doc__ or self.NAME).strip(),
            features=tfds.features.FeaturesDict(
                {**features, "contexts": tfds.features.Sequence(passage)}
            ),
            homepage=self.SOURCE,
            citation=self.CITATION,
            license=self.LICENCE,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        """The splits whose files are in the manual directory; without such a directory all."""
        given = self._manual(dl_manager)
        found = self._downloaded_splits(dl_manager) if given is None else given
        return {split: self._generate_examples(files, split) for split, files in found.items()}

    def _generate_examples(
        self, files: Mapping[str, Path], split: str
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(self.rows(files, split)):
            contexts = [{"id": c.id, "title": c.title, "text": c.text} for c in row.contexts]
            labelled = LabelledQuestion(row.question, row.gold)
            yield number, {**stored_row(labelled), "contexts": contexts}

    def _manual(self, dl_manager: Any) -> dict[str, dict[str, Path]] | None:
        try:
            directory = Path(dl_manager.manual_dir)
        except AssertionError:  # TFDS's error for a missing or empty directory
            return None
        found = {name: find_file(directory, name) for name in self.addresses()}
        chosen = choose_files(self, {name: path for name, path in found.items() if path})
        if not chosen:
            raise missing_files(self, directory)
        return chosen

    def _downloaded_splits(self, dl_manager: Any) -> dict[str, dict[str, Path]]:
        usual = [split for split in self.SPLITS if split not in self.EXTRA]
        splits = [split for split in usual if self.downloadable(split)]
        if not splits:
            raise missing_files(self, None)
        return {split: self._downloaded(dl_manager, split) for split in splits}

    def _downloaded(self, dl_manager: Any, split: str) -> dict[str, Path]:
        names, found = self.downloadable(split), {}
        for name in (*names, *self.OPTIONAL.get(split, ())):
            address = self.addresses()[name]
            path = Path(dl_manager.download(address))
            if archive_of(name, address):  # to unpack it whole, TFDS needs TensorFlow
                path = extract_member(path, name, path.parent)
            if path is None:
                raise InputError(f"{self.NAME}: {address} has no file {name}")
            found[name] = path
        return found


def choose_files(
    published: type[BenchmarkBuilder] | BenchmarkBuilder, paths: Mapping[str, Path]
) -> dict[str, dict[str, Path]]:
    """By split, the paths of the first alternative that is complete, and of optional files.

    A split that has no complete alternative is left out.
    """
    chosen = {}
    for split in published.SPLITS:
        for names in published.alternatives(split):
            if all(name in paths for name in names):
                optional = [n for n in published.OPTIONAL.get(split, ()) if n in paths]
                chosen[split] = {name: paths[name] for name in (*names, *optional)}
                break
    return chosen


def missing_files(
    published: type[BenchmarkBuilder] | BenchmarkBuilder, directory: Path | None
) -> InputError:
    """The error that no split can be read: all files that were looked for.

    ``directory`` is that of the user; None if the files were to be downloaded.
    """
    known, addresses = published.known_files(), published.addresses()
    lines = []
    for split in published.SPLITS:
        for names in published.alternatives(split):
            parts = []
            for name in names:
                address = addresses[name]
                size = f", {known[address].bytes:,} bytes" if address in known else ""
                parts.append(f"{name} ({address or published.SOURCE}{size})")
            lines.append(f"  {split}: {' with '.join(parts)}")
    where = (
        f"{directory} and its folders have no file of {published.NAME}"
        if directory
        else f"{published.NAME} cannot be downloaded by a program; get it and give --source=DIR"
    )
    return InputError(
        f"{where}. Its splits are read from any of these files, plain or packed (gzip, bzip2, "
        "xz):\n" + "\n".join(lines)
    )


def _is_flashrag(path: Path) -> bool:
    """Whether the first line has FlashRAG's field of answers."""
    return any("golden_answers" in line.fields for line in itertools.islice(read_input(path), 1))
