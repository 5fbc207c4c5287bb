"""The papers' numbers, spot-checked against the printed tables."""

from jaxrag.evaluation.paper_numbers import printed


def test_printed_cells() -> None:
    (pairs, small, large) = printed("nq", "standard_rag")
    assert (pairs.paper, pairs.exact_match, pairs.f1, pairs.passages) == ("PAIRS", 34.29, 36.06, 3)
    assert (small.paper, small.exact_match, small.f1) == ("DTR", 34.29, 44.0)
    assert (small.generator, large.generator) == ("Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct")
    assert pairs.questions == 3610 and pairs.retriever == "bge-large-en-v1.5"
    assert pairs.trigger is None


def test_a_family_of_thresholds() -> None:
    found = printed("hotpotqa", "dtr")
    assert {number.method for number in found} == {"dtr_u0.001", "dtr_u0.005", "dtr_u0.01"}
    assert len(found) == 6 and all(0 < (number.trigger or 0) < 100 for number in found)
    assert [number.method for number in printed("nq", "dtr_u0.005")] == ["dtr_u0.005"] * 2
    # A prefix of a name is not its family: "dpr_ais" does not stand for "dpr_ais_rerank".
    assert {number.method for number in printed("nq", "dpr_ais")} == {"dpr_ais"}


def test_ars_rag() -> None:
    found = printed("boolq", "ars")
    assert [number.generator for number in found] == ["Gemma2 9B", "Qwen2.5 32B", "Llama3.3 70B"]
    assert (found[2].exact_match, found[2].f1, found[2].table) == (88.75, None, "Table 1")
    assert found[0].precision is not None and found[0].questions == 400
    (ablation,) = printed("hotpotqa", "bandit")
    assert ablation.table == "Table 2" and ablation.exact_match is None and ablation.f1
    assert len(printed("hotpotqa", "ars")) == 3 and printed("factbook", "ars") == []


def test_errr() -> None:
    web, dense = printed("popqa", "frozen_errr")
    assert (web.table, web.retriever) == ("Table 2", "Brave search")
    assert (dense.table, dense.retriever, dense.passages) == ("Table 3", "DPR by its distance", 5)
    (react,) = printed("hotpotqa", "react")
    assert (react.exact_match, react.f1, react.questions) == (34.4, 46.49, 500)
    whole = printed("hotpotqa", "trainable_errr")
    assert [(one.exact_match, one.f1, one.questions) for one in whole] == [
        (37.2, 49.89, None), (33.8, 44.99, None),
    ]  # fmt: skip
    (direct,) = printed("ambigqa", "direct")
    assert (direct.exact_match, direct.retriever, direct.questions) == (39.1, None, 1000)


def test_only_what_is_printed() -> None:
    assert printed("factbook", "dtr") == [] and printed("nq", "mine") == []
    assert printed("2wiki", "dtr") == [] and printed("average", "dtr") == []
