"""What a run has come to so far, counted by hand."""

from jaxrag.runs.run import Tally

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
