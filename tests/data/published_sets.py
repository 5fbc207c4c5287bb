"""A few rows of sets in exactly their published forms, and what they must become."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jaxrag.data.dataset import GoldPassage, SetRow, context
from jaxrag.types import Passage, Question


class Case(NamedTuple):
    """Files of a set in their published form, and the rows of each split that they give."""

    files: Mapping[str, bytes]
    rows: Mapping[str, Sequence[SetRow]]


def write(files: Mapping[str, bytes], directory: Path) -> None:
    """Writes files below a directory."""
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def jsonl(*rows: Any) -> bytes:
    """JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def flashrag(name: str, question: str, *answers: Any, **others: Any) -> dict[str, Any]:
    """A line of FlashRAG's form."""
    return {"id": name, "question": question, "golden_answers": [*answers], **others}


def dpr_training(*rows: tuple[str, list[str]]) -> bytes:
    """DPR's JSON of questions with the ids of their positive passages."""

    def passage(name: str) -> dict[str, Any]:
        return {"title": f"T{name}", "text": f"text {name}", "score": 1000, "passage_id": name}

    others = {"negative_ctxs": [], "hard_negative_ctxs": []}
    found = [
        {"question": question, "answers": ["a"], "positive_ctxs": [*map(passage, names)], **others}
        for question, names in rows
    ]
    return json.dumps(found, indent=4).encode()


def table(header: Sequence[str], *rows: Sequence[Any]) -> bytes:
    """A table as pandas writes it with tabs: cells with quotes, tabs or line ends are quoted."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def plain(*rows: Sequence[Any], separator: str = "\t") -> bytes:
    """A table without header and quoting."""
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def parquet(*rows: Mapping[str, Any]) -> bytes:
    """A parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), stream)
    return stream.getvalue()


def asked(name: str, text: str, *answers: str, **others: Any) -> SetRow:
    """A row without passages."""
    return SetRow(Question(name, text, answers, **others))


def with_gold(row: SetRow, *passages: Passage, **others: Sequence[str]) -> SetRow:
    """The row with contexts that are gold, and gold passages of other corpora."""
    gold = [GoldPassage(one.id) for one in passages]
    gold += [GoldPassage(one, corpus) for corpus, ids in others.items() for one in ids]
    return row._replace(gold=tuple(gold), contexts=passages)


NQ = [
    flashrag("test_0", 'who wrote the "café" song', "Röntgen", "O'Neil", 'the "Kid"', "O'Neil"),
    flashrag("test_1", "total number of death row inmates in the us?", "2,718", metadata={}),
]
_NQ_ROWS = [
    asked("test_0", 'who wrote the "café" song', "Röntgen", "O'Neil", 'the "Kid"'),
    asked("test_1", "total number of death row inmates in the us?", "2,718"),
]

_CAFE = 'A café -- also "coffeehouse" --\tserves coffee.\nIt is a word.'
BOOLQ = [
    flashrag("0", 'is "café" a word', True, metadata={"title": "Café", "passage": _CAFE}),
    flashrag("1", "is tea in it", False, metadata={"title": "Café", "passage": "Tea \\ too."}),
    flashrag("2", "does it serve coffee", True, metadata={"title": "Café", "passage": _CAFE}),
]
_BOOLQ_ROWS = [
    with_gold(
        asked(one["id"], one["question"], answer, task="yes_no"),
        context(one["metadata"]["title"], one["metadata"]["passage"]),
    )
    for one, answer in zip(BOOLQ, ("yes", "no", "yes"), strict=True)
]

# HotpotQA: sentences begin with their spaces, titles have HTML entities, a paragraph is empty, and
# a supporting title is twice there.
_NATION = 'Were Scott and "Ed" of the same nationality?'
_PARAGRAPHS = {
    "title": ["Ed &amp; Wood", "Nothing", "Scott", "Élan"],
    "sentences": [["Ed is a film.", " It stars Depp.", ""], [], ["Scott is."], ["Élan."]],
}
_FACTS = {"title": ["Scott", "Ed &amp; Wood", "Ed &amp; Wood"], "sent_id": [0, 0, 1]}
HOTPOT = flashrag(
    "dev_0", _NATION, "yes", metadata={"supporting_facts": _FACTS, "context": _PARAGRAPHS}
)
_ED = context("Ed &amp; Wood", "Ed is a film. It stars Depp.")
_SCOTT = context("Scott", "Scott is.")
_HOTPOT_ROW = with_gold(
    asked("dev_0", _NATION, "yes"),
    *(_ED, _SCOTT),
    hotpotqa_abstracts=["Scott", "Ed &amp; Wood"],
)._replace(contexts=(_ED, _SCOTT, context("Élan", "Élan.")))

# 2WikiMultiHopQA: sentences begin without spaces; two questions share a paragraph.
TWO_WIKI = [
    {"_id": "8813f87c", "answer": "Małgorzata Braunek", "answer_id": "Q274277",
     "question": "Who is the mother of the director of film Polish-Russian War (Film)?",
     "context": [["Xawery Żuławski", ["Xawery is a director.", "He is a son of M."]],
                 ["Polish-Russian War (film)", ["It is a film."]]],
     "supporting_facts": [["Polish-Russian War (film)", 0], ["Xawery Żuławski", 1]]},
    {"_id": "22854678", "answer": "no", "answer_id": None,
     "question": "Which film came out first?",
     "context": [["Polish-Russian War (film)", ["It is a film."]]],
     "supporting_facts": [["Polish-Russian War (film)", 0]]},
]  # fmt: skip
_XAWERY = Passage("Xawery Żuławski", "Xawery Żuławski", "Xawery is a director. He is a son of M.")
_WAR = Passage("Polish-Russian War (film)", "Polish-Russian War (film)", "It is a film.")
_TEST = Passage("Only in test", "Only in test", "A paragraph.")
_TWO_WIKI_ROWS = [
    with_gold(
        asked("8813f87c", TWO_WIKI[0]["question"], "Małgorzata Braunek", "M. B.", "Braunekian"),
        *(_XAWERY, _WAR),
    ),
    with_gold(asked("22854678", "Which film came out first?", "no"), _WAR),
]
_TWO_WIKI_FILES = {
    "train.json": json.dumps(TWO_WIKI[:1]).encode(),
    "dev.json": json.dumps(TWO_WIKI).encode(),
    "test.json": json.dumps(
        [{"_id": "t1", "question": "Who?", "context": [["Only in test", ["A paragraph."]]]}]
    ).encode(),
    "id_aliases.json": jsonl(
        {"Q_id": "Q5", "aliases": ["x"], "demonyms": []},
        {"Q_id": "Q274277", "aliases": ["M. B."], "demonyms": ["Braunekian"]},
    ),
}

_MAYNE = "What is John Mayne's occupation?"
_POPQA = [
    flashrag("1", "What is George Rankin's occupation?", "politician", metadata={"s_pop": 142}),
    flashrag("2", _MAYNE, "journalist", 'the "Journo"', metadata={"s_pop": 99}),
    flashrag("3", _MAYNE, "poet", metadata={"s_pop": 100}),  # another John Mayne
]
_POPQA_ROWS = [asked(one["id"], one["question"], *one["golden_answers"]) for one in _POPQA]

STRATEGY = [
    {"qid": "b8677742", "answer": True,
     "question": "Are more people today related to Genghis Khan than Julius Caesar?",
     "evidence": [[[["Caesarion-1", "Julia-1"]], ["operation"]],
                  [[["Caesarion-1"], "no_evidence"], ["operation"]],
                  [["no_evidence"], ["operation"]]]},
    {"qid": "e0044a7b", "question": "Will Albany grow?", "answer": False,
     "evidence": [[["no_evidence"]], [["no_evidence"]], [["operation"]]]},
]  # fmt: skip
STRATEGY_PARAGRAPHS = {
    name: {"title": name[:-2], "section": "Early life", "content": f'About "{name}" – whole.'}
    for name in ("Julia-1", "Caesarion-1", "Unused-1")
}
_JULIA, _CAESARION = (
    Passage(name, name[:-2], f'About "{name}" – whole.') for name in ("Julia-1", "Caesarion-1")
)

_OPTIONS = {"opa": "first", "opb": "second", "opc": "third – Ω", "opd": ""}
MEDMCQA = [
    {"id": str(number), "question": question, "exp": explanation, "cop": cop, **_OPTIONS, **others}
    for number, (question, explanation, cop, others) in enumerate(
        [
            ("Which is not true:", "Ans. (a) i.e., Slower", 0, {"subject_name": "Physiology"}),
            ("Which is true?", "Answer: D\nYes.", 3, {"opd": "All", "subject_name": "Anatomy"}),
            ("Which one?", None, 1, {"subject_name": "Dental"}),
            ("And this?", "Ref: Harrison's 17th ed", 2, {"subject_name": "Dental"}),
        ]
    )
]
_MEDMCQA_ROWS = []
for _row, _answer in zip(MEDMCQA, ("first", "All", "second", "third – Ω"), strict=True):
    _choices = tuple(_row[one] for one in ("opa", "opb", "opc", "opd"))
    _question = asked(
        _row["id"], _row["question"], _answer, choices=_choices, task="multiple_choice"
    )
    _passages = (context(_row["subject_name"], _row["exp"]),) if _row["exp"] else ()
    _MEDMCQA_ROWS.append(with_gold(_question, *_passages))

_PUBHEALTH = table(
    ("claim_id", "claim", "main_text", "label"),
    ("33456", 'A mother "revealed" it.', "Text\nwith\tlines", "false"),
    ("33457", "Study says too many drink.", "t", "true"),
    ("2424", "Mixed claim.", "t", "mixture"),
    ("2425", "", "t", ""),
    ("2427", "Last claim.", "t", "True"),
)


def _pubhealth_rows(split: str) -> list[SetRow]:
    return [
        asked(f"{split}_0", 'A mother "revealed" it.', "false", task="fact_checking"),
        asked(f"{split}_1", "Study says too many drink.", "true", task="fact_checking"),
        asked(f"{split}_4", "Last claim.", "true", task="fact_checking"),
    ]


def _arc(name: str, stem: str, texts: Sequence[str], labels: str, key: str) -> dict[str, Any]:
    choices = [{"text": t, "label": label} for t, label in zip(texts, labels, strict=True)]
    return {"id": name, "question": {"stem": stem, "choices": choices}, "answerKey": key}


_PLANET, _GENES = ("less", "– longer", "days"), ("tt", "Tt", "TT", "5", "1")
ARC = [
    _arc("Mercury_7", 'A planet "rotates" faster. Why?', _PLANET, "ABC", "C"),
    _arc("NYSED_8", "Which genotype is it?", _GENES, "12345", "3"),
]
_CHOICES = {"task": "multiple_choice"}
_ARC_ROWS = [
    asked("Mercury_7", 'A planet "rotates" faster. Why?', "days", choices=_PLANET, **_CHOICES),
    asked("NYSED_8", "Which genotype is it?", "TT", choices=_GENES, **_CHOICES),
]

_MARCO_JUDGED = plain([1185869, 0, 0, 1], [1185868, 0, 16, 1], [1185868, 0, 17, 1])
_MARCO_QUERIES = plain(
    [1185868, '______ justice is to repair the "harm".'],
    [121352, "not judged"],
    [1185869, ")what was the immediate impact"],
)


def _marco(name: str, text: str, *gold: tuple[str, int]) -> SetRow:
    passages = tuple(GoldPassage(one, "msmarco", grade) for one, grade in gold)
    return asked(name, text)._replace(gold=passages)


_MARCO_ROWS = [
    _marco("1185868", '______ justice is to repair the "harm".', ("16", 1), ("17", 1)),
    _marco("1185869", ")what was the immediate impact", ("0", 1)),
]

_GREEN = {"title": "Green (album)", "paragraph_text": "Green is the fourth.", "idx": 10}
_MIQUETTE = {"title": "Miquette Giraudy", "paragraph_text": "She is his partner.", "idx": 5}
_MUSIQUE = {
    "answerable": True,
    "question_decomposition": [
        {"question": "Green >> performer", "answer": "Hillage", "support_paragraph": _GREEN},
        {"question": "#1 >> spouse", "answer": "Giraudy", "support_paragraph": _MIQUETTE},
        {"question": "and #2", "answer": "Giraudy", "support_paragraph": _MIQUETTE},
    ],
}

CASES = {
    "nq": Case(
        {
            "FlashRAG_datasets/nq/test.jsonl": jsonl(*NQ),
            "FlashRAG_datasets/nq/train.jsonl.gz": gzip.compress(jsonl(*NQ)),
            "FlashRAG_datasets/hotpotqa/dev.jsonl": b"not read",
            "biencoder-nq-train.json": dpr_training(
                (NQ[1]["question"], ["7", "12"]), (NQ[0]["question"], ["9"])
            ),
        },
        {
            "train": [
                with_gold(row, psgs_w100=[gold])
                for row, gold in zip(_NQ_ROWS, ("9", "7"), strict=True)
            ],
            "test": _NQ_ROWS,
        },
    ),
    "boolq": Case(
        {f"boolq/{split}.jsonl": jsonl(*BOOLQ) for split in ("train", "dev")},
        {"train": _BOOLQ_ROWS, "dev": _BOOLQ_ROWS},
    ),
    "hotpotqa": Case({"hotpotqa/dev.jsonl": jsonl(HOTPOT)}, {"dev": [_HOTPOT_ROW]}),
    "musique": Case(
        {"musique/dev.jsonl": jsonl(flashrag("2hop__1", "Who?", "Giraudy", metadata=_MUSIQUE))},
        {
            "dev": [
                with_gold(
                    asked("2hop__1", "Who?", "Giraudy"),
                    context("Green (album)", "Green is the fourth."),
                    context("Miquette Giraudy", "She is his partner."),
                )
            ]
        },
    ),
    "fever": Case(
        {"fever/dev.jsonl": jsonl(*(flashrag(one, one, one) for one in ("SUPPORTS", "REFUTES")))},
        {
            "dev": [
                asked(name, name, verdict, task="fact_checking")
                for name, verdict in (("SUPPORTS", "true"), ("REFUTES", "false"))
            ]
        },
    ),
    "2wiki": Case(
        _TWO_WIKI_FILES,
        {
            "train": _TWO_WIKI_ROWS[:1],
            "dev": _TWO_WIKI_ROWS,
            "test": [asked("t1", "Who?")._replace(contexts=(_TEST,))],
        },
    ),
    "popqa": Case(
        {"popqa/test.jsonl": jsonl(*_POPQA)},
        {"test": _POPQA_ROWS, "longtail": _POPQA_ROWS[1:2]},
    ),
    "strategyqa": Case(
        {
            "strategyqa_train.json": json.dumps(STRATEGY, indent=4).encode(),
            "strategyqa_train_paragraphs.json": json.dumps(STRATEGY_PARAGRAPHS).encode(),
        },
        {
            "train": [
                with_gold(
                    asked("b8677742", STRATEGY[0]["question"], "yes", task="yes_no"),
                    *(_CAESARION, _JULIA),
                ),
                asked("e0044a7b", "Will Albany grow?", "no", task="yes_no"),
            ]
        },
    ),
    "medmcqa": Case(
        {
            "data/train-00000-of-00001.parquet": parquet(*MEDMCQA),
            "validation-00000-of-00001.parquet": parquet(*MEDMCQA),
        },
        {"train": _MEDMCQA_ROWS, "dev": _MEDMCQA_ROWS},
    ),
    "pubhealth": Case(
        {f"pubhealth/{split}.tsv": _PUBHEALTH for split in ("train", "test")},
        {split: _pubhealth_rows(split) for split in ("train", "test")},
    ),
    "arc_challenge": Case(
        {
            f"ARC-V1-Feb2018-2/ARC-{kind}/ARC-{kind}-Test.jsonl": jsonl(*rows)
            for kind, rows in (("Easy", []), ("Challenge", ARC))
        },
        {"test": _ARC_ROWS},
    ),
    "msmarco": Case(
        {
            "queries.dev.small.tsv": _MARCO_QUERIES,
            "qrels.dev.small.tsv": _MARCO_JUDGED,
            "msmarco-test2019-queries.tsv.gz": gzip.compress(_MARCO_QUERIES),
            "2019qrels-pass.txt": plain(
                *([121352, "Q0", 1017759, 0], [121352, "Q0", 1082489, 3], [121352, 0, 7, -2]),
                separator=" ",
            ),
        },
        {
            "dev": _MARCO_ROWS,
            "dl19": [_marco("121352", "not judged", ("1017759", 0), ("1082489", 3), ("7", 0))],
        },
    ),
}
