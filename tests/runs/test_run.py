"""What a run has come to so far, counted by hand; and checkpoints that saw its questions."""

import json
from pathlib import Path

import pytest

from jaxrag.data.folder import Folder
from jaxrag.data.leakage import write_trained_on
from jaxrag.engines.local.engine import Local
from jaxrag.methods.ars import ars
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.strategies import Chosen, Ranked
from jaxrag.methods.errr import queries, rrr
from jaxrag.runs.run import Run, Tally, load_questions
from jaxrag.types import InputError

COST = {"llm_calls": 2, "prompt_tokens": 700, "new_tokens": 10, "searches": 1}


def test_counts() -> None:
    tally = Tally()
    tally.request("search", 1000)
    tally.request("generate", 128)
    tally.request("search", 500)
    assert tally.note() == "requests answered: generate 128, search 1.5k"
    retrieved = {"gate": {"retrieve": True}, "truncated": {"passages": 1}}
    tally.add(
        [
            {"question_id": "a", "trace": retrieved, "cost": COST},
            {"question_id": "b", "trace": {"gate": {"retrieve": False}}, "cost": COST},
            {"question_id": "c", "error": "InputError: no"},
        ],
        [{"store_hits": 3}, {"store_hits": 1}],
    )
    tally.add([{"question_id": "d", "trace": {"gate": {"retrieve": True}}, "cost": COST}], [])
    # three answered, two of them retrieved: 67 %; 3 x 710 tokens; 3 + 1 hits
    assert tally.fields() == {
        "errors": 1,
        "llm_calls": 6,
        "new_tokens": 30,
        "prompt_tokens": 2100,
        "questions": 4,
        "retrieved": 2,
        "searches": 3,
        "store_hits": 4,
        "truncated": 1,
    }
    assert tally.note() == (
        "retrieves 67 %, 6 LLM calls, 2.13k tokens, 4 from the store, 1 with passages cut, 1 errors"
    )


RRR_INPUT = queries.StudentInput(context=False)
SEEN = {
    "order.ranker": lambda path: ars.Config(order=Ranked(ranker=RewriteRanker(path))),
    "count.bandit": lambda path: ars.Config(count=Chosen(CountBandit(path))),
    "rewriter.model": lambda path: rrr.Config(rewriter=queries.Trained(RRR_INPUT, Local(path))),
}


@pytest.mark.parametrize("field", SEEN)
def test_a_helper_that_was_trained_on_evaluated_questions_is_refused(
    field: str, tmp_path: Path
) -> None:
    data, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    for directory in (data, checkpoint):
        directory.mkdir()
    row = {"id": "q", "question": "Who is it?", "answers": ["a"]}
    (data / "queries.jsonl").write_text(json.dumps(row) + "\n")
    (data / "corpus.jsonl").write_text('{"id": "p", "text": "a text"}\n')
    run = Run(SEEN[field](str(checkpoint)), Folder(str(data)), Local())
    write_trained_on(checkpoint, ["where is it"])
    load_questions(run, tmp_path / "cache")
    write_trained_on(checkpoint, ["who is it"])
    told = rf"config\.method\.{field}\.checkpoint .* was trained on 1 of"
    with pytest.raises(InputError, match=told):
        load_questions(run, tmp_path / "cache")
