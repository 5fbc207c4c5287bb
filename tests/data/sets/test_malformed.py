"""Malformed files of multi-hop, entity, ambiguous, medical and judged sets.

Every error names the file, the place in it (line, element, entry or row) and the field.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxrag.data.building import build_set, published_files
from jaxrag.data.downloads import Downloads
from jaxrag.data.sets import SETS
from jaxrag.types import InputError
from tests.data.sets import more_published as good
from tests.data.sets.more_published import parquet, plain, table
from tests.data.sets.published import jsonl


class Bad(NamedTuple):
    """Files of a set, the wrong one first, and a pattern of what the error says after its path."""

    name: str
    files: dict[str, bytes]
    expected: str


def listed(*rows: Any) -> bytes:
    return json.dumps(rows).encode()


def _without(row: dict, *names: str) -> dict:
    return {name: value for name, value in row.items() if name not in names}


_HOTPOT = good._HOTPOT[0]
_FLASHRAG = good._FLASHRAG_HOTPOT
_AMBIG = good._AMBIG[1]
_STRATEGY = good._STRATEGY[1]
_MED = good._medmcqa(1)[0]
_POPQA = good._POPQA[0]
_DEV = "hotpot_dev_distractor_v1.json"


def hotpot(**changed: Any) -> dict[str, bytes]:
    return {_DEV: listed(_HOTPOT, {**_HOTPOT, "_id": "second", **changed})}


def flashrag(**changed: Any) -> dict[str, bytes]:
    return {"hotpotqa/dev.jsonl": jsonl(_FLASHRAG, {**_FLASHRAG, "id": "x", **changed})}


def metadata(**changed: Any) -> dict[str, bytes]:
    return flashrag(metadata={**_FLASHRAG["metadata"], **changed})


def popqa(place: str, value: Any) -> dict[str, bytes]:
    row = ["second", *_POPQA[1:]]
    row[good._POPQA_HEADER.index(place)] = value
    return {"popQA.tsv": table(good._POPQA_HEADER, _POPQA, row)}


def ambig(*annotations: Any) -> dict[str, bytes]:
    return {"dev_light.json": listed(_AMBIG, {**_AMBIG, "id": "2", "annotations": annotations})}


def strategy(**changed: Any) -> dict[str, bytes]:
    return {
        "strategyqa_train.json": listed({**_STRATEGY, **changed}),
        "strategyqa_train_paragraphs.json": json.dumps(good._STRATEGY_PARAGRAPHS).encode(),
    }


def med(*changes: dict[str, Any]) -> dict[str, bytes]:
    rows = [{**_MED, "id": str(number), **one} for number, one in enumerate(changes)]
    return {"medmcqa/dev.json": jsonl(*rows)}


def judged(*lines: tuple) -> dict[str, bytes]:
    return {"qrels.dev.small.tsv": plain(*lines), "queries.dev.small.tsv": plain((1, "a query"))}


BAD = {
    "JSON lines": Bad("hotpotqa", {_DEV: jsonl(_HOTPOT)}, r"byte 0: there is '\{'; '\[' is needed"),
    "cut": Bad("hotpotqa", {_DEV: listed(_HOTPOT)[:-40]}, "byte .* cut short in element 1"),
    "test file": Bad(
        "hotpotqa",
        {_DEV: listed(_without(_HOTPOT, "answer"))},
        "element 1: field 'answer' is missing; is this the test file",
    ),
    "answer blank": Bad("hotpotqa", hotpot(answer=" "), "element 2: field 'answer' is blank"),
    "paragraph no pair": Bad(
        "hotpotqa",
        hotpot(context=[["T"]]),
        r"element 2: field 'context' item 1 is a list of 1; \[title, ...\] is needed",
    ),
    "sentences no texts": Bad(
        "hotpotqa",
        hotpot(context=[["T", [1]]]),
        "element 2: field 'context' has a paragraph that is not a list of sentences",
    ),
    "facts an object": Bad(
        "hotpotqa",
        hotpot(supporting_facts={}),
        "element 2: field 'supporting_facts' is an object; a list is needed",
    ),
    "FlashRAG answer": Bad(
        "hotpotqa",
        flashrag(golden_answers=["a", 1]),
        "line 2: field 'golden_answers' item 2 is a number; a string is needed",
    ),
    "FlashRAG choice": Bad(
        "hotpotqa",
        flashrag(golden_answers=[2], choices=["x", "y"]),
        "line 2: field 'golden_answers' has 2; .* position of one, from 0 to 1",
    ),
    "FlashRAG letters": Bad(
        "hotpotqa",
        flashrag(golden_answers=[0], choices=["A", "B"]),
        "line 2: field 'choices' has the letters of the options only",
    ),
    "FlashRAG paragraphs": Bad(
        "hotpotqa",
        metadata(context={"title": ["T", "U"], "content": [["one"]]}),
        "line 2: field 'metadata.context.content' has 1 paragraphs for 2 titles",
    ),
    "FlashRAG facts": Bad(
        "hotpotqa",
        metadata(supporting_facts=[["T", 0]]),
        "line 2: field 'metadata.supporting_facts' has a list where an object is needed",
    ),
    "alias": Bad(
        "2wiki",
        {
            "id_aliases.json": jsonl({"Q_id": "Q1", "aliases": "one"}),
            "dev.json": listed(*good._TWO_WIKI),
        },
        "line 1: field 'aliases' is a string; a list of strings is needed",
    ),
    "popularity": Bad(
        "popqa", popqa("s_pop", "many"), "line 3: field 's_pop' is 'many'; a whole number is needed"
    ),
    "answers no list": Bad(
        "popqa",
        popqa("possible_answers", "politician"),
        "line 3: field 'possible_answers' is 'politician'; a JSON list is needed",
    ),
    "answers empty": Bad(
        "popqa", popqa("possible_answers", "[]"), "line 3: field 'possible_answers' is an empty"
    ),
    "columns": Bad(
        "popqa",
        {"popQA.tsv": table(good._POPQA_HEADER, _POPQA[:-1])},
        r"line 2: 16 columns; 17 are needed \(id, subj",
    ),
    "other table": Bad(
        "popqa",
        {"popQA.tsv": table(("id", "question"), (1, "q"))},
        "line 2: field 'possible_answers' is missing; the line has id, question",
    ),
    "annotation": Bad(
        "ambigqa",
        ambig({"type": "other"}),
        r"element 2: field 'annotations\[1\].type' is 'other'; singleAnswer or multipleQAs",
    ),
    "reading": Bad(
        "ambigqa",
        ambig({"type": "multipleQAs", "qaPairs": [{"question": "q", "answer": []}]}),
        r"element 2: field 'annotations\[1\].qaPairs\[1\].answer' is an empty list",
    ),
    "no annotation": Bad("ambigqa", ambig(), "element 2: field 'annotations' is an empty list"),
    "verdict a word": Bad(
        "strategyqa",
        strategy(answer="yes"),
        "element 1: field 'answer' is a string; true or false is needed",
    ),
    "paragraph missing": Bad(
        "strategyqa",
        strategy(evidence=[[[["Gone-1"]]]]),
        "element 1: field 'evidence' names 'Gone-1', which .*paragraphs.json does not have",
    ),
    "evidence a number": Bad(
        "strategyqa",
        strategy(evidence=[[7]]),
        "element 1: field 'evidence' has a number where a name is needed",
    ),
    "paragraph without text": Bad(
        "strategyqa",
        {
            "strategyqa_train_paragraphs.json": b'{"One-1": {"title": "One"}}',
            "strategyqa_train.json": listed(_STRATEGY),
        },
        "entry 1: field 'content' is missing; the entry has title",
    ),
    "option of five": Bad(
        "medmcqa", med({"cop": 1}, {"cop": 5}), "line 2: field 'cop' is 5; .* one of 4 options"
    ),
    "unlabelled": Bad("medmcqa", med({"cop": -1}), "line 1: field 'cop' is -1; .* test file"),
    "both counts": Bad(
        "medmcqa",
        med({"cop": 0}, {"cop": 4}),
        "field 'cop' is 0 to 4, .*: 0 and 4 cannot both be numbers",
    ),
    "explanations contradict": Bad(
        "medmcqa",
        med({"cop": 4, "exp": "Ans. (a)", "opd": "x"}, {"cop": 1, "exp": "Ans is 'b'"}),
        "agree with 1 rows counted from 0 and 0 counted from 1: .* contradict each other",
    ),
    "undecided": Bad(
        "medmcqa",
        med({"cop": 2, "exp": None}),
        "field 'cop' is 2 to 2, .*: nothing tells whether options count from 0 or 1",
    ),
    "option blank": Bad(
        "medmcqa", med({"cop": 4}, {"cop": 1}), "line 1: field 'cop' is 4, whose option is blank"
    ),
    "parquet row": Bad(
        "medmcqa",
        {"medmcqa/validation-00000-of-00001.parquet": parquet([{**_MED, "cop": 0, "id": None}])},
        "row 1: field 'id' is null; a string is needed",
    ),
    "no label": Bad(
        "pubhealth",
        {"pubhealth/test.tsv": table(("claim_id", "claim"), (1, "c"))},
        "line 2: field 'label' is missing; the line has claim_id, claim",
    ),
    "claim blank": Bad(
        "pubhealth",
        {"pubhealth/test.tsv": table(("claim", "label"), (" ", "true"))},
        "line 2: field 'claim' is blank",
    ),
    "verdict": Bad(
        "pubhealth",
        {"health_claims_processed.jsonl": jsonl({"claim": "c", "answers": ["mixture"]})},
        r"line 1: field 'answers' is \['mixture'\]; true or false is needed",
    ),
    "judgement": Bad("msmarco", judged((1, 0, 7, 1), (1, 0, 7)), "line 2: 3 columns; 4 are needed"),
    "grade": Bad(
        "msmarco", judged((1, 0, 7, "high")), "line 1: field 'grade' is 'high'; a whole number"
    ),
    "judged twice": Bad(
        "msmarco",
        judged((1, 0, 7, 1), (1, 0, 7, 2)),
        "line 2: field 'grade' is 2, but passage '7' of query '1' has 1 on an earlier line",
    ),
    "query missing": Bad(
        "msmarco", judged((2, 0, 7, 1)), r": query '2' \(1 in all\) is not in .*queries.dev.small"
    ),
    "query twice": Bad(
        "msmarco",
        {
            "queries.dev.small.tsv": plain((1, "a"), (1, "b")),
            "qrels.dev.small.tsv": plain((1, 0, 7, 1)),
        },
        "line 2: field 'id' '1' is the id of an earlier line too",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files_are_refused_by_place_and_field(tmp_path: Path, case: str) -> None:
    bad = BAD[case]
    for name, data in bad.files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    published = SETS[bad.name]
    with pytest.raises(InputError, match=bad.expected) as caught:
        files = published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))
        build_set(published, files, tmp_path / "cache", any_size=True)
    message = str(caught.value)
    del caught  # it holds the frames of generators, and they files, until garbage is collected
    assert str(tmp_path / "source" / next(iter(bad.files))) in message
    assert not (tmp_path / "cache").exists()
