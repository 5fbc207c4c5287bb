"""Questions read from files in published forms: FlashRAG, KILT, BEIR, DPR, HotpotQA, TREC.

The fields of the first record decide the form, not the file's name. A file in no known form
is refused with the fields that it has and those that each form needs; a record in another form than
the first is an error that names it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import read_input, well_named, written_list
from jaxrag.core.packed_files import open_packed
from jaxrag.data.conversion import QuestionFiles, convert_corpus
from jaxrag.data.corpora import TITLE_CORPORA, open_corpus
from jaxrag.data.dataset import Dataset, GoldPassage, LabelledQuestion, SetRow, without_themselves
from jaxrag.data.downloads import find_file
from jaxrag.data.formats.dpr import read_dpr_table, read_dpr_training
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.formats.hotpot import read_hotpot
from jaxrag.data.formats.judgements import (
    read_beir_judgements,
    read_beir_queries,
    read_queries,
    read_trec_judgements,
)
from jaxrag.retrieval.corpus.formats import read_beir
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError, Passage, Question

_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt")
_PACKED = (".gz", ".bz2", ".xz")


@dataclasses.dataclass(frozen=True)
class Published(QuestionFiles):
    """Questions of published files, in one of the forms of `find_source`.

    Attributes:
      path: a file of questions, or a folder with a file for each split (nq-test.qa.csv, dev.jsonl,
        queries.jsonl with qrels/test.tsv).
      split: part of the file's name in a folder.
      corpus: what is searched: "" is the passages that the files bring; else as `open_corpus`
        takes it ("psgs_w100"). Gold passages are those that the files name for this corpus; those
        that it lacks count as not found, which the log says.
      task, labels: as in `jaxrag.data.conversion.QuestionFiles`.
    """

    split: str = "test"

    def load(self, cache: Path) -> Dataset:
        """Loads the questions; the first time, checks and converts them under ``cache``.

        InputError for a missing file or corpus, an unknown form, or a malformed record.
        """
        source = find_source(Path(self.path), self.split, corpus=Path(self.corpus).name)
        name, passages = self._corpus(source, Path(cache))

        def labelled() -> Iterator[LabelledQuestion]:
            return (LabelledQuestion(row.question, row.gold) for row in _with_unique_ids(source))

        label = Path(self.path).name.split(".")[0]
        dataset = self.converted(
            label, cache, source.files, labelled, passages, corpus=name, form=source.form
        )
        return dataset if source.corpus is None else without_themselves(dataset)

    def _corpus(self, source: Source, cache: Path) -> tuple[str, Passages]:
        """The corpus, and the name under which gold passages know it."""
        if self.corpus:
            return Path(self.corpus).name, open_corpus(self.corpus, cache)
        files = source.files if source.corpus is None else (source.corpus,)
        return "", convert_corpus(cache, files, lambda: _own_passages(source), source.form)


class Source(NamedTuple):
    """Published questions.

    ``corpus`` is the one of the ``files``, all that ``rows`` reads, that has a corpus, in BEIR's
    form; None if there are no passages but contexts.
    """

    form: str
    files: tuple[Path, ...]
    rows: Callable[[], Iterator[SetRow]]
    corpus: Path | None = None


def find_source(path: Path, split: str, *, corpus: str = "") -> Source:
    """The questions of a file, or of a split of a folder, in one of these forms.

    - FlashRAG's JSONL: ``id``, ``question``, ``golden_answers``, ``metadata``, ``choices``.
    - KILT's JSONL: ``input``, ``output``.
    - DPR's table: question, tab, list of answers; and DPR's training JSON: ``question``,
      ``answers``, ``positive_ctxs``.
    - HotpotQA's JSON: ``_id``, ``question``, ``answer``, ``supporting_facts``, ``context``.
    - TREC's queries (id, tab, text) with judgements (query, 0, passage, grade) in a file whose name
      has "qrels" for "queries", or else is the only one of the split with "qrels" in its name.
    - A folder of BEIR: queries.jsonl, qrels/SPLIT.tsv and corpus.jsonl. A passage with the id of a
      query is no result for it, as in BEIR's evaluation.

    Args:
      path: the file or folder.
      split: of the folder; also part of the ids of questions that are published without.
      corpus: name of the corpus that is searched, whose gold passages have these ids.

    InputError for no such file, several, or an unknown form.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder (data.path)")
    if path.is_file():
        return _source_of_file(path, split, corpus)
    if (path / "qrels").is_dir():
        return _beir(path, split, corpus)
    names = [file for file in sorted(path.iterdir()) if file.is_file() and _is_of(file, split)]
    questions = [file for file in names if "qrels" not in file.name]
    if len(questions) == 1:
        return _source_of_file(questions[0], split, corpus)
    if questions:
        listed = ", ".join(file.name for file in questions)
        raise InputError(f"{path} has several files of the split {split!r} ({listed}): name one")
    listed = ", ".join(sorted(file.name for file in path.iterdir())) or "nothing"
    raise InputError(
        f"{path} has no file of the split {split!r} (data.split, part of the name of a JSON, JSONL,"
        f" CSV, TSV or text file); it has {listed}"
    )


def _is_of(path: Path, split: str) -> bool:
    name = path.name
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(_SUFFIXES) and split in re.split(r"[-_.]", name)


def _source_of_file(path: Path, split: str, corpus: str) -> Source:
    start = _start(path)
    rows = [line.rstrip("\r").split("\t") for line in start.split("\n")[:100]]
    cells, pairs = rows[0], [row for row in rows if len(row) == 2]
    if start[0] in "{[" and (len(cells) != 2 or re.match(r"\{\s*\"[^\"]*\"\s*:|\[\s*\{", start)):
        return _json(path, split, corpus, lines=start[0] == "{")
    beside = _judgements_beside(path, split)
    seconds = [second for _, second in pairs]
    if len(cells) < 3 and pairs and _are_answers(seconds, judged=bool(beside)):
        return Source("DPR's table", (path,), lambda: read_dpr_table(path, split=split))
    if len(cells) == 2 and len(beside) == 1:
        (judged,) = beside
        return Source(
            "TREC's queries and judgements",
            (path, judged),
            lambda: read_queries(path, read_trec_judgements(judged, corpus=corpus), judged),
        )
    if len(cells) == 2:
        raise InputError(
            f"{path}: its judgements are needed beside it, as "
            f"{path.name.replace('queries', 'qrels')} or as the only file with 'qrels' in its name;"
            f" found: {', '.join(file.name for file in beside) or 'none'}"
        )
    raise InputError(
        f"{path}: the first line has {len(cells)} columns between tabs ({' | '.join(cells)[:80]}); "
        "known tables are DPR's (question, list of answers) and TREC's queries (id, text)"
    )


_FORMS: dict[str, tuple[str, ...]] = {
    "FlashRAG's JSONL": ("id", "question", "golden_answers"),
    "KILT's JSONL": ("id", "input", "output"),
    "DPR's training JSON": ("question", "answers", "positive_ctxs"),
    "HotpotQA's JSON": ("_id", "question", "supporting_facts", "context"),
}


def _json(path: Path, split: str, corpus: str, *, lines: bool) -> Source:
    first = next(read_input(path) if lines else read_elements(path), None)
    fields = {} if first is None else first.fields
    forms = [form for form in _FORMS if form.endswith("JSONL") == lines]
    form = next((form for form in forms if fields.keys() >= {*_FORMS[form]}), "")
    if not form:
        raise _unknown(path, list(fields), forms, lines=lines)
    titles_of = corpus if corpus in TITLE_CORPORA else ""
    readers: dict[str, Callable[[], Iterator[SetRow]]] = {
        "FlashRAG's JSONL": lambda: read_flashrag(path, titles_of=titles_of),
        "KILT's JSONL": lambda: read_kilt(path),
        "DPR's training JSON": lambda: read_dpr_training(path, split=split),
        "HotpotQA's JSON": lambda: read_hotpot(path, titles_of=titles_of),
    }
    return Source(form, (path,), readers[form])


def read_kilt(path: Path) -> Iterator[SetRow]:
    """The questions of KILT's JSONL: ``id``, ``input`` and ``output``, answers with provenance.

    All answers of all outputs count. Gold passages are the pages of the outputs' provenance, by
    ``wikipedia_id``, of the corpus "kilt_wikipedia". Source: Petroni et al., KILT, NAACL 2021.
    InputError if a line is not such an object, or has no answer, as in KILT's test files.
    """
    for line in read_input(path):
        outputs = [*well_named(line.records("output"), "answer")]
        answers = [output.string("answer", optional=True) for output in outputs]
        kept = [answer for answer in answers if answer.strip()]
        if not kept:
            raise line.error("output", "has no 'answer'; KILT's test files are published without")
        kept = line._replace(fields={"output": kept}).answers("output")
        question = Question(line.identifier("id"), line.string("input"), kept)
        sources = [source for out in outputs for source in out.records("provenance", optional=True)]
        pages = (GoldPassage(page.identifier("wikipedia_id"), "kilt_wikipedia") for page in sources)
        yield SetRow(question, tuple(dict.fromkeys(pages)))


def _unknown(path: Path, fields: list[str], forms: Sequence[str], *, lines: bool) -> InputError:
    record = "line" if lines else "element"
    if {"question", "answers"} <= {*fields} and lines:
        return InputError(
            f"{path}: this is jaxrag's own form of questions (question, answers): load its folder, "
            "with corpus.jsonl, as jaxrag.data.folder.Folder"
        )
    if {"_id", "text"} <= {*fields}:
        return InputError(
            f"{path}: this looks like a file of BEIR (_id, text): name the folder that has it, "
            "with queries.jsonl, corpus.jsonl and qrels/"
        )
    needs = "; ".join(
        f"{form} lacks {', '.join(field for field in _FORMS[form] if field not in fields)}"
        for form in forms
    )
    return InputError(
        f"{path}: in no known form. Its first {record} has {', '.join(fields) or 'no fields'}; for "
        f"{needs}."
    )


def _start(path: Path) -> str:
    """The begin of a file from its first character that is not blank."""
    with open_packed(path) as stream:
        for raw in iter(lambda: stream.read(1 << 16), b""):
            text = raw.decode("utf-8-sig", errors="replace").lstrip()
            if text:
                return text
    raise InputError(f"{path}: the file is empty")


def _are_answers(cells: Sequence[str], *, judged: bool) -> bool:
    """Whether second cells are DPR's lists of answers: most of them, as CSV may quote them.

    In a file without judgements beside it, their beginnings decide: TREC's queries need some.
    """
    plain = [cell.strip().strip('"').replace('""', '"').strip() for cell in cells]
    lists = sum(bool(written_list(cell)) for cell in plain)
    begun = 0 if judged else sum(cell.startswith("[") for cell in plain)
    return 2 * max(lists, begun) > len(cells)


def _judgements_beside(path: Path, split: str) -> list[Path]:
    """Files that may have the judgements of a table of queries."""
    renamed = path.with_name(path.name.replace("queries", "qrels"))
    if renamed != path and renamed.is_file():
        return [renamed]
    files = [file for file in sorted(path.parent.iterdir()) if "qrels" in file.name]
    return [file for file in files if split in re.split(r"[-_.]", file.name)] or files


def _beir(folder: Path, split: str, corpus: str) -> Source:
    names = (f"qrels/{split}.tsv", "queries.jsonl", "corpus.jsonl")
    files = [find_file(folder / Path(name).parent, Path(name).name) for name in names]
    if None in files:
        splits = ", ".join(sorted(file.name for file in (folder / "qrels").iterdir()))
        raise InputError(
            f"{folder}: a folder of BEIR needs {names[files.index(None)]}; its qrels/ has "
            f"{splits or 'none'}"
        )
    judged, queries, passages = cast("list[Path]", files)
    return Source(
        "BEIR's folder with quoted cells",  # older caches have other rows
        (queries, judged, passages),
        lambda: read_beir_queries(queries, read_beir_judgements(judged, corpus=corpus), judged),
        passages,
    )


def _with_unique_ids(source: Source) -> Iterator[SetRow]:
    seen: set[str] = set()
    for number, row in enumerate(source.rows(), 1):
        if row.question.id in seen:
            raise InputError(
                f"{source.files[0]}: question {number:,} has the id {row.question.id!r} of an "
                "earlier one"
            )
        seen.add(row.question.id)
        yield row


def _own_passages(source: Source) -> Iterator[Passage]:
    """The corpus of the files, or the contexts of the questions, each once."""
    if source.corpus is not None:
        yield from read_beir(source.corpus)
        return
    seen: set[str] = set()
    for row in source.rows():
        for passage in row.contexts:
            if passage.id not in seen:
                seen.add(passage.id)
                yield passage
    if not seen:
        raise InputError(
            f"{source.files[0]}: {source.form} here brings no passages: name the corpus to search "
            "with data.corpus, such as psgs_w100 (`jaxrag data psgs_w100` builds it)"
        )
