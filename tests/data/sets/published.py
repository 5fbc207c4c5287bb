"""A few rows of each set in exactly its published form, and what they must become."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.data.dataset import GoldPassage
from jaxrag.data.set_row import SetRow, context
from jaxrag.types import Question
from tests.local_http import Handler


class Case(NamedTuple):
    """Files of a set in a published form, and the rows of each split that they give."""

    name: str
    files: Mapping[str, bytes]
    rows: Mapping[str, Sequence[SetRow]]


class Published(Handler):
    """Serves the files of ``server.files`` by name."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        with self.counted(self.server.asked, name):
            found = self.server.files.get(name)
            self.send(200 if found else 404, found or b"")


def jsonl(*rows: Any, ascii_only: bool = False) -> bytes:
    """JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=ascii_only)}\n" for row in rows).encode()


def dpr_table(*rows: tuple[str, list[str]]) -> bytes:
    """DPR's form: question, tab, the list as Python writes it, quoted as the csv module does."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def dpr_training(*rows: tuple[str, list[str]], field: str = "passage_id") -> bytes:
    """DPR's JSON of questions with the ids of their positive passages."""
    passages = {"negative_ctxs": [], "hard_negative_ctxs": []}
    found = [
        {
            "dataset": "a_set",
            "question": question,
            "answers": ["an answer"],
            "positive_ctxs": [
                {"title": f"T{one}", "text": f"text {one}", "score": 1000, field: one}
                for one in positive
            ],
            **passages,
        }
        for question, positive in rows
    ]
    return json.dumps(found, indent=4).encode()


def zipped(members: Mapping[str, bytes]) -> bytes:
    """A zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def tar_gz(members: Mapping[str, bytes]) -> bytes:
    """A tar archive, packed with gzip."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def write(case: Case, directory: Path) -> None:
    """Writes a case's files."""
    for name, data in case.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def asked(name: str, text: str, *answers: str, **others: Any) -> SetRow:
    """A row without passages."""
    return SetRow(Question(name, text, answers, **others))


_BOOLQ = [
    {
        "question": 'is "café" a word in english',
        "title": "Café",
        "answer": True,
        "passage": 'A café -- also "coffeehouse" --\tserves coffee.\nIt is a word.',
    },
    {"question": "is tea in it", "title": "Café", "answer": False, "passage": "Tea \\ too."},
    {
        "question": "does it serve coffee",
        "title": "Café",
        "answer": True,
        "passage": 'A café -- also "coffeehouse" --\tserves coffee.\nIt is a word.',
    },
]


def _boolq_rows(split: str) -> list[SetRow]:
    rows = []
    for number, row in enumerate(_BOOLQ):
        passage = context(row["title"], row["passage"])
        answer = "yes" if row["answer"] else "no"
        question = Question(f"{split}_{number}", row["question"], (answer,), task="yes_no")
        rows.append(SetRow(question, (GoldPassage(passage.id),), (passage,)))
    return rows


_NQ = [
    ('who wrote the "café" song', ["Röntgen", "O'Neil", 'the "Kid"', "O'Neil"]),
    ("total number of death row inmates in the us?", ["2,718"]),
    ("what's a tab", ["\\t", "tab, or\ttabulator"]),
]


def _nq_rows(split: str) -> list[SetRow]:
    return [
        asked(f"{split}_{number}", question, *dict.fromkeys(answers))
        for number, (question, answers) in enumerate(_NQ)
    ]


def _with_gold(rows: list[SetRow], **gold: Sequence[str]) -> list[SetRow]:
    """The rows with gold passages of psgs_w100 by the row's number, written as n0, n1, ..."""
    found = {f"n{number}": row for number, row in enumerate(rows)}
    for name, ids in gold.items():
        row = found[name]
        extra = tuple(GoldPassage(one, "psgs_w100") for one in ids)
        found[name] = row._replace(gold=(*row.gold, *extra))
    return list(found.values())


def _trivia(*rows: tuple[str, str, str, list[str]]) -> bytes:
    """TriviaQA's official JSON, indented as published."""
    data = [
        {
            "Answer": {
                "Aliases": aliases,
                "MatchedWikiEntityName": value,
                "NormalizedAliases": [alias.lower() for alias in aliases],
                "NormalizedMatchedWikiEntityName": value.lower(),
                "NormalizedValue": value.lower(),
                "Type": "WikipediaEntity",
                "Value": value,
            },
            "EntityPages": [{"DocSource": "TagMe", "Filename": "a.txt", "Title": 'A "page"'}],
            "Question": question,
            "QuestionId": name,
            "QuestionSource": "http://www.triviacountry.com/",
            "SearchResults": [
                {
                    "Description": "x",
                    "DisplayUrl": "y",
                    "Filename": "b.txt",
                    "Rank": 0,
                    "Title": "z",
                    "Url": "http://example.org/",
                }
            ],
        }
        for name, question, value, aliases in rows
    ]
    document = {"Data": data, "Domain": "Web", "VerifiedEval": False, "Version": 1.0}
    return json.dumps(document, indent=4).encode()


_TRIVIA = (
    ("tc_2", 'Who was the man behind The "Chipmunks"? ', "David Seville", ["David Seville"]),
    (
        "qw_1",
        "Which Lloyd Webber musical premiered on 10th Déc 1993?",
        "Sunset Blvd",
        ["Sunset Blvd", "West Sunset Boulevard", "Sunset Boulevard ", "Sunset Bulevard"],
    ),
)
_TRIVIA_ROWS = (
    asked("tc_2", 'Who was the man behind The "Chipmunks"?', "David Seville"),
    asked(
        "qw_1",
        "Which Lloyd Webber musical premiered on 10th Déc 1993?",
        "Sunset Blvd",
        "West Sunset Boulevard",
        "Sunset Boulevard",
        "Sunset Bulevard",
    ),
)


def _under(prefix: str, rows: Sequence[SetRow]) -> list[SetRow]:
    return [
        row._replace(
            question=Question(prefix + row.question.id, row.question.text, row.question.answers)
        )
        for row in rows
    ]


_WEBQ = [
    {
        "url": "http://www.freebase.com/view/en/justin_bieber",
        "targetValue": '(list (description "Jazmyn Bieber") (description "Jaxon Bieber"))',
        "utterance": "what is the name of justin bieber brother?",
    },
    {
        "url": "http://www.freebase.com/view/en/jay_z",
        "targetValue": '(list (description Beyoncé) (description "A (B)") (description 1969))',
        "utterance": "what's jay-z's wife?",
    },
]
_WEBQ_ROWS = (
    asked("train_0", "what is the name of justin bieber brother?", "Jazmyn Bieber", "Jaxon Bieber"),
    asked("train_1", "what's jay-z's wife?", "Beyoncé", "A (B)", "1969"),
)


def _squad(version: str = "1.1") -> bytes:
    articles = [
        {
            "title": "Beyonc%C3%A9_Knowles",
            "paragraphs": [
                {
                    "context": 'Beyoncé (born 1981) is "a" singer.\n She sings.',
                    "qas": [
                        {
                            "id": "56be4db0acb8001400a502ec",
                            "question": "When was  Beyoncé born?",
                            "answers": [
                                {"answer_start": 14, "text": "1981"},
                                {"answer_start": 14, "text": "1981"},
                                {"answer_start": 9, "text": "born 1981"},
                            ],
                        },
                        {
                            "id": "56be4db0acb8001400a502ed",
                            "question": "What is she?",
                            "answers": [{"answer_start": 23, "text": '"a" singer'}],
                        },
                    ],
                }
            ],
        },
    ]
    return json.dumps({"data": articles, "version": version}).encode()


def _squad_rows() -> list[SetRow]:
    passage = context("Beyoncé Knowles", 'Beyoncé (born 1981) is "a" singer.\n She sings.')
    gold, contexts = (GoldPassage(passage.id),), (passage,)
    return [
        SetRow(
            Question("56be4db0acb8001400a502ec", "When was  Beyoncé born?", ("1981", "born 1981")),
            gold,
            contexts,
        ),
        SetRow(
            Question("56be4db0acb8001400a502ed", "What is she?", ('"a" singer',)), gold, contexts
        ),
    ]


_ARC = [
    {
        "id": "Mercury_7175875",
        "question": {
            "stem": 'An astronomer observes that a planet "rotates" faster. Why?',
            "choices": [
                {"text": "Its density will decrease.", "label": "A"},
                {"text": "Its years – longer", "label": "B"},
                {"text": "Its days will become shorter.", "label": "C"},
            ],
        },
        "answerKey": "C",
    },
    {
        "id": "NYSEDREGENTS_2013_8_42",
        "question": {
            "stem": "Which genotype is it?",
            "choices": [
                {"text": "tt", "label": "1"},
                {"text": "Tt", "label": "2"},
                {"text": "TT", "label": "3"},
                {"text": "5", "label": "4"},
                {"text": "1", "label": "5"},
            ],
        },
        "answerKey": "3",
    },
]
_ARC_ROWS = (
    asked(
        "Mercury_7175875",
        'An astronomer observes that a planet "rotates" faster. Why?',
        "Its days will become shorter.",
        choices=(
            "Its density will decrease.",
            "Its years – longer",
            "Its days will become shorter.",
        ),
        task="multiple_choice",
    ),
    asked(
        "NYSEDREGENTS_2013_8_42",
        "Which genotype is it?",
        "TT",
        choices=("tt", "Tt", "TT", "5", "1"),
        task="multiple_choice",
    ),
)


CASES = {
    "boolq": Case(
        "boolq",
        {"boolq/train.jsonl": jsonl(*_BOOLQ), "boolq/dev.jsonl": jsonl(*_BOOLQ, ascii_only=True)},
        {split: _boolq_rows(split) for split in ("train", "dev")},
    ),
    "boolq FlashRAG": Case(
        "boolq",
        {
            "FlashRAG_datasets/boolq/dev.jsonl": jsonl(
                {"id": "dev_0", "question": "is it", "golden_answers": [True], "metadata": {}},
                {"id": "dev_1", "question": "or not", "golden_answers": [False], "metadata": {}},
            ),
            "FlashRAG_datasets/nq/dev.jsonl": b"not read",
        },
        {
            "dev": [
                asked("dev_0", "is it", "yes", task="yes_no"),
                asked("dev_1", "or not", "no", task="yes_no"),
            ]
        },
    ),
    "nq": Case(
        "nq",
        {
            "nq-train.qa.csv": dpr_table(*_NQ),
            "DPR/nq-dev.qa.csv.gz": gzip.compress(dpr_table(*_NQ)),
            "NQ-open.dev.jsonl": jsonl(*({"question": q, "answer": a} for q, a in _NQ)),
            "NQ-open.train.jsonl": jsonl(*({"question": q, "answer": a} for q, a in _NQ)),
            "biencoder-nq-train.json": dpr_training((_NQ[1][0], ["7", "12"]), (_NQ[0][0], ["9"])),
        },
        {
            "train": _with_gold(_nq_rows("train"), n0=["9"], n1=["7"]),
            "dev": _nq_rows("dev"),
            "test": _nq_rows("test"),
            "train_dev": _nq_rows("train_dev"),
        },
    ),
    "nq FlashRAG": Case(
        "nq",
        {
            "test.jsonl": jsonl(
                {"id": "test_0", "question": 'who "é"', "golden_answers": ["A", "B"]},
                {"id": "test_1", "question": "who", "golden_answers": ["A"], "metadata": {}},
            )
        },
        {"test": [asked("test_0", 'who "é"', "A", "B"), asked("test_1", "who", "A")]},
    ),
    "triviaqa": Case(
        "triviaqa",
        {
            "trivia-train.qa.csv.gz": gzip.compress(dpr_table(*_NQ)),
            "trivia-dev.qa.csv": dpr_table(*_NQ),
            "biencoder-trivia-dev.json.gz": gzip.compress(
                dpr_training((_NQ[2][0], ["44"]), field="psg_id")
            ),
            "triviaqa-unfiltered.tar.gz": tar_gz(
                {
                    "triviaqa-unfiltered/README": b"readme",
                    "triviaqa-unfiltered/unfiltered-web-dev.json": _trivia(*_TRIVIA),
                    "triviaqa-unfiltered/unfiltered-web-train.json": _trivia(*_TRIVIA[:1]),
                }
            ),
            "qa/web-dev.json": _trivia(*_TRIVIA),
            "qa/wikipedia-dev.json": _trivia(*_TRIVIA[1:]),
            "qa/verified-web-dev.json": b"not read",
        },
        {
            "train": _nq_rows("train"),
            "dev": _with_gold(_nq_rows("dev"), n2=["44"]),
            "test": _TRIVIA_ROWS,
            "train_dev": _TRIVIA_ROWS[:1],
            "rc_dev": [
                *_under("web-dev_", _TRIVIA_ROWS),
                *_under("wikipedia-dev_", _TRIVIA_ROWS[1:]),
            ],
        },
    ),
    "webq": Case(
        "webq",
        {
            "webquestions.examples.train.json.bz2": bz2.compress(
                json.dumps(_WEBQ, ensure_ascii=False).encode()
            ),
            "webquestions-test.qa.csv": dpr_table(*_NQ),
            "biencoder-webquestions-train.json": dpr_training(
                (_WEBQ[0]["utterance"], ["3"]), field="psg_id"
            ),
            "biencoder-webquestions-dev.json": dpr_training(
                (_WEBQ[1]["utterance"], ["4"]), field="psg_id"
            ),
        },
        {
            "train": _with_gold(list(_WEBQ_ROWS), n0=["3"], n1=["4"]),
            "test": _nq_rows("test"),
        },
    ),
    "squad": Case(
        "squad",
        {"train-v1.1.json": _squad(), "squad/dev-v1.1.json": _squad()},
        {"train": _squad_rows(), "dev": _squad_rows()},
    ),
    "arc_challenge": Case(
        "arc_challenge",
        {
            "ARC-V1-Feb2018.zip": zipped(
                {
                    f"ARC-V1-Feb2018-2/ARC-{kind}/ARC-{kind}-{part}.jsonl": jsonl(*rows)
                    for kind, rows in (("Easy", []), ("Challenge", _ARC))
                    for part in ("Train", "Dev", "Test")
                }
            )
        },
        dict.fromkeys(("train", "dev", "test"), _ARC_ROWS),
    ),
}
