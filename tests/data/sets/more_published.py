"""Multi-hop, entity, ambiguous, medical and judged sets in exactly their published forms."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jaxrag.data.dataset import GoldPassage
from jaxrag.data.set_row import SetRow, context
from jaxrag.types import Passage, Question
from tests.data.sets.published import Case, asked, jsonl, tar_gz, zipped


def table(header: Sequence[str], *rows: Sequence[Any]) -> bytes:
    """A table as pandas writes it with tabs: cells with quotes, tabs or line ends are quoted."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), stream)
    return stream.getvalue()


def plain(*rows: Sequence[Any], separator: str = "\t") -> bytes:
    """A table without header and quoting."""
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


# HotpotQA: sentences begin with their spaces, titles have HTML entities, a paragraph is empty, and
# a supporting title is twice there.
_HOTPOT = [
    {
        "_id": "5a8b57f25542995d1e6f1371",
        "answer": "yes",
        "question": 'Were Scott and "Ed" of the same nationality?',
        "supporting_facts": [["Scott Derrickson", 0], ["Ed &amp; Wood", 0], ["Ed &amp; Wood", 1]],
        "context": [
            ["Ed &amp; Wood", ["Ed Wood is a 1994 film.", " It stars Johnny Depp.", ""]],
            ["Nothing", []],
            ["Scott Derrickson", ["Scott (born July 16, 1966) is an American director."]],
            ["Élan", ["Élan is another."]],
        ],
        "type": "comparison",
        "level": "hard",
    }
]
_ED = context("Ed &amp; Wood", "Ed Wood is a 1994 film. It stars Johnny Depp.")
_SCOTT = context("Scott Derrickson", "Scott (born July 16, 1966) is an American director.")
_ELAN = context("Élan", "Élan is another.")
_ABSTRACTS = (
    GoldPassage("Scott Derrickson", "hotpotqa_abstracts"),
    GoldPassage("Ed &amp; Wood", "hotpotqa_abstracts"),
)
_HOTPOT_ROWS = [
    SetRow(
        Question(
            "5a8b57f25542995d1e6f1371", 'Were Scott and "Ed" of the same nationality?', ("yes",)
        ),
        (GoldPassage(_ED.id), GoldPassage(_SCOTT.id), *_ABSTRACTS),
        (_ED, _SCOTT, _ELAN),
    )
]
_FLASHRAG_HOTPOT = {
    "id": "dev_0",
    "question": 'Were Scott and "Ed" of the same nationality?',
    "golden_answers": ["yes"],
    "metadata": {
        "type": "comparison",
        "level": "hard",
        "supporting_facts": {
            "title": ["Scott Derrickson", "Ed &amp; Wood"],
            "sent_id": [0, 0],
        },
        "context": {
            "title": [title for title, _ in _HOTPOT[0]["context"]],
            "sentences": [sentences for _, sentences in _HOTPOT[0]["context"]],
        },
    },
}

# 2WikiMultiHopQA: sentences begin without spaces; two questions share a paragraph.
_TWO_WIKI = [
    {
        "_id": "8813f87c0bdd11eba7f7acde48001122",
        "type": "compositional",
        "question": "Who is the mother of the director of film Polish-Russian War (Film)?",
        "context": [
            ["Xawery Żuławski", ["Xawery is a director.", "He is a son of Małgorzata Braunek."]],
            ["Polish-Russian War (film)", ["It is a film."]],
        ],
        "entity_ids": "Q1_Q2",
        "supporting_facts": [["Polish-Russian War (film)", 0], ["Xawery Żuławski", 1]],
        "evidences": [["Polish-Russian War", "director", "Xawery Żuławski"]],
        "answer": "Małgorzata Braunek",
        "evidences_id": [["Q1", "director", "Q2"]],
        "answer_id": "Q274277",
    },
    {
        "_id": "228546780bdd11eba7f7acde48001122",
        "type": "comparison",
        "question": "Which film came out first?",
        "context": [["Polish-Russian War (film)", ["It is a film."]]],
        "entity_ids": "Q1_Q2",
        "supporting_facts": [["Polish-Russian War (film)", 0]],
        "evidences": [],
        "answer": "no",
        "evidences_id": [],
        "answer_id": None,
    },
]
_XAWERY = Passage(
    "Xawery Żuławski",
    "Xawery Żuławski",
    "Xawery is a director. He is a son of Małgorzata Braunek.",
)
_WAR = Passage("Polish-Russian War (film)", "Polish-Russian War (film)", "It is a film.")
_TEST = Passage("Only in test", "Only in test", "A paragraph.")


def _two_wiki_rows(*aliases: str) -> list[SetRow]:
    first, second = _TWO_WIKI
    return [
        SetRow(
            Question(first["_id"], first["question"], ("Małgorzata Braunek", *aliases)),
            (GoldPassage(_XAWERY.id), GoldPassage(_WAR.id)),
            (_XAWERY, _WAR),
        ),
        SetRow(
            Question(second["_id"], second["question"], ("no",)), (GoldPassage(_WAR.id),), (_WAR,)
        ),
    ]


_TWO_WIKI_TEST = [
    {
        "_id": "t1",
        "type": "compositional",
        "question": "Who?",
        "context": [["Only in test", ["A paragraph."]]],
        "supporting_facts": [],
        "evidences": [],
        "answer": "",
    }
]

_POPQA_HEADER = (
    "id", "subj", "prop", "obj", "subj_id", "prop_id", "obj_id", "s_aliases", "o_aliases", "s_uri",
    "o_uri", "s_wiki_title", "o_wiki_title", "s_pop", "o_pop", "question", "possible_answers",
)  # fmt: skip


def _popqa(name: int, subject: str, views: int, answers: str) -> list[Any]:
    wikidata = "http://www.wikidata.org/entity/Q1"
    question = f"What is {subject}'s occupation?"
    return [
        name, subject, "occupation", "politician", 1850297, 22, 2834605, '["G. ""R"" Rankin"]',
        "[]", wikidata, wikidata, subject, "Politician", views, 25692, question, answers,
    ]  # fmt: skip


_POPQA = [
    _popqa(4222362, "George Rankin", 142, '["politician", "political \\u00e9lite", "pol"]'),
    _popqa(3542857, "John Mayne", 99, '["journalist", "the \\"Journo\\""]'),
    _popqa(3542858, "John Mayne", 100, '["poet"]'),  # the same text, another John Mayne
]
_POPQA_ROWS = [
    asked("4222362", "What is George Rankin's occupation?", "politician", "political élite", "pol"),
    asked("3542857", "What is John Mayne's occupation?", "journalist", 'the "Journo"'),
    asked("3542858", "What is John Mayne's occupation?", "poet"),
]

_AMBIG = [
    {
        "id": "-4469503464110108318",
        "question": "When did the simpsons first air on television?",
        "annotations": [
            {
                "type": "multipleQAs",
                "qaPairs": [
                    {"question": "When did the shorts first air?", "answer": ["April 19, 1987"]},
                    {
                        "question": "When did the half-hour show first air?",
                        "answer": ["December 17, 1989", "17 December 1989"],
                    },
                ],
            },
            {"type": "singleAnswer", "answer": ["December 17, 1989", "1989"]},
        ],
    },
    {
        "id": "4790842463458965203",
        "question": "Who played george washington?",
        "annotations": [{"type": "singleAnswer", "answer": ["David Morse"]}],
    },
]
_AMBIG_ROWS = [
    asked(
        "-4469503464110108318",
        "When did the simpsons first air on television?",
        "April 19, 1987",
        "December 17, 1989",
        "17 December 1989",
        "1989",
    ),
    asked("4790842463458965203", "Who played george washington?", "David Morse"),
]

_STRATEGY = [
    {
        "qid": "b8677742616fef051f00",
        "term": "Genghis Khan",
        "description": "founder of the Mongol Empire",
        "question": "Are more people today related to Genghis Khan than Julius Caesar?",
        "answer": True,
        "facts": ["Julius Caesar had three children."],
        "decomposition": ["How many kids did Julius Caesar have?", "Is #2 greater than #1?"],
        "evidence": [
            [[["Caesarion-1", "Julia-1"]], ["operation"]],
            [[["Caesarion-1"], "no_evidence"], ["operation"]],
            [["no_evidence"], ["operation"]],
        ],
    },
    {
        "qid": "e0044a7b4d146d611e73",
        "term": "Albany",
        "description": "city",
        "question": "Will Albany grow?",
        "answer": False,
        "facts": [],
        "decomposition": [],
        "evidence": [[["no_evidence"]], [["no_evidence"]], [["operation"]]],
    },
]
_STRATEGY_PARAGRAPHS = {
    name: {
        "title": name[:-2],
        "section": "Early life",
        "headers": ["Early life"],
        "para_index": 1,
        "content": f'About "{name}" – whole.',
    }
    for name in ("Julia-1", "Caesarion-1", "Unused-1")
}
_JULIA, _CAESARION = (
    Passage(name, name[:-2], f'About "{name}" – whole.') for name in ("Julia-1", "Caesarion-1")
)
_STRATEGY_ROWS = [
    SetRow(
        Question(
            "b8677742616fef051f00",
            "Are more people today related to Genghis Khan than Julius Caesar?",
            ("yes",),
            task="yes_no",
        ),
        (GoldPassage("Caesarion-1"), GoldPassage("Julia-1")),
        (_CAESARION, _JULIA),
    ),
    asked("e0044a7b4d146d611e73", "Will Albany grow?", "no", task="yes_no"),
]


def _medmcqa(base: int) -> list[dict[str, Any]]:
    rows = [
        ("Ans. (a) i.e., Slower", "Physiology", 0, "Which is not true:"),
        ("Answer: D\nBecause.", "Anatomy", 3, 'Which is "true"?'),
        (None, "Dental", 1, "Which one?"),
        ("Ref: Harrison's 17th ed", "Dental", 2, "And this?"),
    ]
    return [
        {
            "question": question,
            "exp": explanation,
            "cop": option + base,
            "opa": f"first {number}",
            "opb": "second",
            "opc": "third – Ω",
            "opd": "",
            "subject_name": subject,
            "topic_name": None,
            "id": f"45258d3d-{number}",
            "choice_type": "single",
        }
        if number != 1
        else {
            "question": question,
            "exp": explanation,
            "cop": option + base,
            "opa": "A",
            "opb": "B",
            "opc": "C",
            "opd": "All",
            "subject_name": subject,
            "topic_name": "Bones",
            "id": f"45258d3d-{number}",
            "choice_type": "multi",
        }
        for number, (explanation, subject, option, question) in enumerate(rows)
    ]


def _medmcqa_rows() -> list[SetRow]:
    rows = []
    for row, answer in zip(_medmcqa(0), ("first 0", "All", "second", "third – Ω"), strict=True):
        choices = (row["opa"], row["opb"], row["opc"], row["opd"])
        question = Question(row["id"], row["question"], (answer,), choices, "multiple_choice")
        if row["exp"] is None:
            rows.append(SetRow(question))
        else:
            passage = context(row["subject_name"], row["exp"])
            rows.append(SetRow(question, (GoldPassage(passage.id),), (passage,)))
    return rows


_PUBHEALTH_HEADER = (
    "claim_id", "claim", "date_published", "explanation", "fact_checkers", "main_text", "sources",
    "label", "subjects",
)  # fmt: skip
_PUBHEALTH = table(
    _PUBHEALTH_HEADER,
    ["33456", 'A mother "revealed" it.', "2011", "x", "D", "Text\nwith\tlines", "", "false", "h"],
    ["33457", "Study says too many drink.", "", "x", "", "t", "", "true", "Health News"],
    ["2424", "Mixed claim.", "", "x", "", "t", "", "mixture", ""],
    ["2425", "", "", "x", "", "t", "", "", ""],
    ["2426", "Unproven claim.", "", "x", "", "t", "", "unproven", ""],
    ["2427", "Last claim.", "", "x", "", "t", "", "True", ""],
)


def _pubhealth_rows(split: str) -> list[SetRow]:
    return [
        asked(f"{split}_0", 'A mother "revealed" it.', "false", task="fact_checking"),
        asked(f"{split}_1", "Study says too many drink.", "true", task="fact_checking"),
        asked(f"{split}_5", "Last claim.", "true", task="fact_checking"),
    ]


_MARCO_JUDGED = plain([1185869, 0, 0, 1], [1185868, 0, 16, 1], [1185868, 0, 17, 1])
_MARCO_QUERIES = plain(
    [1185868, '_________ justice is designed to repair the "harm".'],
    [121352, "not judged"],
    [1185869, ")what was the immediate impact"],
)


def _marco_row(name: str, text: str, *gold: tuple[str, int]) -> SetRow:
    return asked(name, text)._replace(
        gold=tuple(GoldPassage(one, "msmarco", grade) for one, grade in gold)
    )


_MARCO_ROWS = [
    _marco_row(
        "1185868", '_________ justice is designed to repair the "harm".', ("16", 1), ("17", 1)
    ),
    _marco_row("1185869", ")what was the immediate impact", ("0", 1)),
]

CASES = {
    "hotpotqa": Case(
        "hotpotqa",
        {
            "hotpot_train_v1.1.json": json.dumps(_HOTPOT).encode(),
            "hotpot_dev_distractor_v1.json": json.dumps(_HOTPOT, ensure_ascii=False).encode(),
            "hotpot_dev_fullwiki_v1.json": b"not read",
        },
        {"train": _HOTPOT_ROWS, "dev": _HOTPOT_ROWS},
    ),
    "hotpotqa FlashRAG": Case(
        "hotpotqa",
        {"hotpotqa/dev.jsonl": jsonl(_FLASHRAG_HOTPOT)},
        {
            "dev": [
                _HOTPOT_ROWS[0]._replace(
                    question=Question("dev_0", _FLASHRAG_HOTPOT["question"], ("yes",))
                )
            ]
        },
    ),
    "2wiki": Case(
        "2wiki",
        {
            "data_ids_april7.zip": zipped(
                {
                    "train.json": json.dumps(_TWO_WIKI[:1]).encode(),
                    "dev.json": json.dumps(_TWO_WIKI).encode(),
                    "test.json": json.dumps(_TWO_WIKI_TEST).encode(),
                    "id_aliases.json": jsonl(
                        {"Q_id": "Q5", "aliases": ["x"], "demonyms": []},
                        {"Q_id": "Q274277", "aliases": ["M. Braunek"], "demonyms": ["Braunekian"]},
                    ),
                }
            )
        },
        {
            "train": _two_wiki_rows("M. Braunek", "Braunekian")[:1],
            "dev": _two_wiki_rows("M. Braunek", "Braunekian"),
            "test": [asked("t1", "Who?")._replace(contexts=(_TEST,))],
        },
    ),
    "2wiki without aliases": Case(
        "2wiki",
        {"data/dev.json": json.dumps(_TWO_WIKI).encode()},
        {"dev": _two_wiki_rows()},
    ),
    "popqa": Case(
        "popqa",
        {"popQA.tsv": table(_POPQA_HEADER, *_POPQA)},
        {"test": _POPQA_ROWS, "longtail": _POPQA_ROWS[1:2]},
    ),
    "popqa Self-RAG": Case(
        "popqa",
        {
            "eval_data/popqa_longtail_w_gs.jsonl": jsonl(
                {
                    **dict(zip(_POPQA_HEADER, _POPQA[1], strict=True)),
                    "answers": ["journalist"],
                    "ctxs": [{"id": "1", "title": "t", "text": "x", "score": 1.5}],
                }
            )
        },
        {"longtail": _POPQA_ROWS[1:2]},
    ),
    "ambigqa": Case(
        "ambigqa",
        {
            "ambignq_light.zip": zipped(
                {
                    "train_light.json": json.dumps(_AMBIG[1:]).encode(),
                    "dev_light.json": json.dumps(_AMBIG).encode(),
                }
            )
        },
        {"train": _AMBIG_ROWS[1:], "dev": _AMBIG_ROWS},
    ),
    "ambigqa full": Case(
        "ambigqa",
        {
            "dev.json": json.dumps(
                [
                    {**row, "viewed_doc_titles": ["The Simpsons"], "nq_answer": ["1989"]}
                    for row in _AMBIG
                ]
            ).encode()
        },
        {"dev": _AMBIG_ROWS},
    ),
    "strategyqa": Case(
        "strategyqa",
        {
            "strategyqa_dataset.zip": zipped(
                {
                    "strategyqa_train.json": json.dumps(_STRATEGY, indent=4).encode(),
                    "strategyqa_train_paragraphs.json": json.dumps(_STRATEGY_PARAGRAPHS).encode(),
                    "strategyqa_test.json": b"[]",
                }
            )
        },
        {"train": _STRATEGY_ROWS},
    ),
    "medmcqa": Case(
        "medmcqa",
        {
            "medmcqa/train.json": jsonl(*_medmcqa(1)),
            "medmcqa/dev.json.gz": gzip.compress(jsonl(*_medmcqa(1))),
        },
        {"train": _medmcqa_rows(), "dev": _medmcqa_rows()},
    ),
    "medmcqa mirror": Case(
        "medmcqa",
        {
            "data/train-00000-of-00001.parquet": parquet(_medmcqa(0)),
            "validation-00000-of-00001.parquet": parquet(_medmcqa(0)),
        },
        {"dev": _medmcqa_rows()},
    ),
    "pubhealth": Case(
        "pubhealth",
        {f"pubhealth/{split}.tsv": _PUBHEALTH for split in ("train", "dev", "test")},
        {split: _pubhealth_rows(split) for split in ("train", "dev", "test")},
    ),
    "pubhealth Self-RAG": Case(
        "pubhealth",
        {
            "health_claims_processed.jsonl": jsonl(
                {"claim": "ignored", "question": "One.", "answers": ["true"], "ctxs": []},
                {"claim": "Two.", "label": "REFUTES"},
            )
        },
        {
            "test": [
                asked("test_0", "One.", "true", task="fact_checking"),
                asked("test_1", "Two.", "false", task="fact_checking"),
            ]
        },
    ),
    "msmarco": Case(
        "msmarco",
        {
            "queries.tar.gz": tar_gz({"queries.train.tsv": _MARCO_QUERIES}),
            "qrels.train.tsv": _MARCO_JUDGED,
            "collectionandqueries.tar.gz": tar_gz(
                {"queries.dev.small.tsv": _MARCO_QUERIES, "qrels.dev.small.tsv": _MARCO_JUDGED}
            ),
            "msmarco-test2019-queries.tsv.gz": gzip.compress(_MARCO_QUERIES),
            "2019qrels-pass.txt": plain(
                [121352, "Q0", 1017759, 0], [121352, "Q0", 1082489, 3], separator=" "
            ),
        },
        {
            "train": _MARCO_ROWS,
            "dev": _MARCO_ROWS,
            "dl19": [_marco_row("121352", "not judged", ("1017759", 0), ("1082489", 3))],
        },
    ),
}
