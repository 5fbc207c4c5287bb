"""Each method's branches, on scripts: which calls are made, what is searched, kept and read."""

import dataclasses
import math

import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.methods import dtr, pairs
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.pairs import AgreementGate
from jaxrag.methods.retrieve_and_read import (
    COT,
    DPR_AIS,
    HYDE,
    LLM_JUDGE,
    NO_RETRIEVAL,
    Q2D,
    RERANK,
    STANDARD_RAG,
)
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath
from jaxrag.steps.gates import Always, JudgeGate
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import InputError, Question
from tests.scripted import ScriptedIndex, ScriptedModel, ScriptedReranker, run

PAIRS = {
    "Context:": "<answer>Paris</answer>",
    "passage": "A pseudo text.",
    "reasoning": "A rationale.",
    "directly and briefly": "<answer>Rome</answer>",
}
DTR = {
    "stated above": "Paris",
    "encyclopedic passage": "A pseudo text.",
    "reasoning": "A rationale.",
    "look up": "Yes",
    "single word": ("Rome", [0.5, 0.5]),
}
ANGLES = {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50, "f": 60}
QUERIES = {"A pseudo text.": 60, "A rationale.": 45, "Where is it?": 0}


def index(queries=QUERIES):
    return ScriptedIndex(ANGLES, queries)


def kept(outcome):
    return outcome.value.trace["selected"]["ids"]


def test_no_retrieval_asks_once():
    found = run(NO_RETRIEVAL, ScriptedModel(DTR))
    assert found.value.text == "Rome"
    assert found.cost["llm_calls"] == 1 and "searches" not in found.cost
    assert found.value.trace["direct"]["u"] == pytest.approx(math.log(2))  # -(2 ln 0.5) / 2


def test_standard_rag_reads_the_best_in_order():
    model = ScriptedModel(DTR)
    found = run(STANDARD_RAG, model, index())
    assert found.value.text == "Paris" and kept(found) == ["a", "b", "c"]
    (prompt,) = model.prompts
    assert prompt.index("Passage 1. Title a: text of a") < prompt.index("Passage 3. Title c")
    assert found.cost == {
        "llm_calls": 1, "new_tokens": 1, "prompt_tokens": len(prompt), "searches": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "method, best, path",
    [(HYDE, ["f", "e", "d"], "p"), (Q2D, ["f", "e", "d"], "q+p"), (COT, ["d", "e", "c"], "q+p")],
    ids=lambda one: getattr(one, "name", None),
)
def test_expansions_search_by_what_the_model_wrote(method, best, path):
    # The rationale lies at 45 degrees: d (40) and e (50) tie in exact arithmetic, c follows.
    found = run(method, ScriptedModel(DTR), index())
    (search,) = found.value.trace["searches"]
    assert search["path"] == path and set(search["ids"]) >= set(best[:2])
    assert found.cost["llm_calls"] == 2 and found.cost["searches"] == 1
    copies = 5 if path == "q+p" else 0
    assert search["query"].count("Where is it?") == copies


def test_dtr_accepts_a_certain_answer_without_retrieval():
    sure = {**DTR, "single word": ("Rome", [0.999, 0.999])}
    # u = -ln 0.999 = 0.0010005 nats
    config = dtr.Config(gate=UncertaintyGate(threshold=0.002))
    found = run(config, ScriptedModel(sure), index())
    assert found.value.text == "Rome" and found.cost["llm_calls"] == 1
    gate = found.value.trace["gate"]
    assert gate["retrieve"] is False and gate["value"] == pytest.approx(0.0010005, abs=1e-7)


@pytest.mark.parametrize("threshold, retrieve", [(0.0, True), (0.69, True), (0.70, False)])
def test_dtr_threshold(threshold, retrieve):
    found = run(
        dtr.Config(gate=UncertaintyGate(threshold)), ScriptedModel(DTR), index()
    )  # u = ln 2 = 0.6931
    assert found.value.trace["gate"]["retrieve"] is retrieve
    assert found.value.text == ("Paris" if retrieve else "Rome")


def test_threshold_zero_is_dpr_ais():
    gated = run(dtr.Config(gate=UncertaintyGate(0.0)), ScriptedModel(DTR), index())
    always = run(
        dataclasses.replace(DPR_AIS, reader=Reader(prompts="dtr")), ScriptedModel(DTR), index()
    )
    assert gated.value.text == always.value.text
    assert gated.value.trace["selected"] == always.value.trace["selected"]


def test_an_empty_answer_is_uncertain():
    silent = {**DTR, "single word": ("", [])}
    found = run(dtr.Config(gate=UncertaintyGate(1e9)), ScriptedModel(silent), index())
    gate = found.value.trace["gate"]
    assert gate["retrieve"] is True and gate["value"] is None


def test_dual_path_and_angle_sum_by_hand():
    # q at 0, p at 60 degrees; 3 best by q: a 10, b 20, c 30; by p: f 60, e 50, d 40.
    # All lie between q and p, where theta1 + theta2 = 60 degrees: only the score's ties decide.
    # With p at 60 and a passage beyond it the sum grows: put f at 80, theta1 + theta2 = 100.
    angles = {**ANGLES, "f": 80, "g": -40}  # g: 40 + 100 = 140 degrees
    config = dataclasses.replace(DPR_AIS, candidates=DualPath(n=4), select=AIS(k=3))
    found = run(config, ScriptedModel(PAIRS), ScriptedIndex(angles, QUERIES))
    trace = found.value.trace
    assert [search["path"] for search in trace["searches"]] == ["q", "p"]
    assert trace["searches"][0]["ids"] == ["a", "b", "c", "d"]
    assert set(trace["searches"][1]["ids"]) == {"d", "e", "f", "c"}
    rows = {row["id"]: row for row in trace["selected"]["candidates"]}
    assert len(rows) == 6  # d and c were found twice
    assert rows["a"]["s1"] == pytest.approx(math.cos(math.radians(10)), abs=1e-6)
    assert rows["a"]["s2"] == pytest.approx(math.cos(math.radians(50)), abs=1e-6)
    assert rows["a"]["score"] == pytest.approx(0.5, abs=1e-6)  # cos 60
    assert rows["f"]["score"] == pytest.approx(math.cos(math.radians(100)), abs=1e-6)
    assert "f" not in kept(found) and len(kept(found)) == 3


def test_the_three_scores_select_differently():
    # a 10, f 80 against q at 0, p at 60: sums of cosines 0.985+0.643=1.628, 0.174+0.940=1.114.
    # x at 30: cosine sum 2 cos 30 = 1.732, the largest, but angle sum equal to a's.
    angles = {"a": 10, "f": 80, "x": 30}
    tops = {}
    for score in ("angle_sum", "cosine_sum", "dynamic"):
        config = dataclasses.replace(
            DPR_AIS, candidates=DualPath(n=3), select=AIS(k=1, score=score)
        )
        found = run(config, ScriptedModel(PAIRS), ScriptedIndex(angles, QUERIES))
        tops[score] = {c["id"]: c["score"] for c in found.value.trace["selected"]["candidates"]}
    assert max(tops["cosine_sum"], key=tops["cosine_sum"].get) == "x"
    assert tops["cosine_sum"]["x"] == pytest.approx(math.sqrt(3), abs=1e-6)
    # alpha = 0.455 + 0.058 * pi/3 = 0.51574; x: theta = 30 degrees for any alpha
    assert tops["dynamic"]["x"] == pytest.approx(math.cos(math.radians(30)), abs=1e-6)
    alpha = 0.455 + 0.058 * math.pi / 3
    by_hand = math.cos(math.radians(alpha * 10 + (1 - alpha) * 50))
    assert tops["dynamic"]["a"] == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize(
    "candidates, paths, size",
    [
        (OnePath(n=5), ["q"], 5),
        (OnePath(n=5, by="pseudo"), ["p"], 5),
    ],
)
def test_ais_scores_with_a_single_path(candidates, paths, size):
    config = dataclasses.replace(DPR_AIS, candidates=candidates)
    found = run(config, ScriptedModel(PAIRS), index())
    trace = found.value.trace
    assert [search["path"] for search in trace["searches"]] == paths
    assert len(trace["selected"]["candidates"]) == size and len(kept(found)) == 3


@pytest.mark.parametrize(
    "mix, expected",
    [(FixedMix(2, 1), ["a", "b", "f"]), (FixedMix(1, 2), ["a", "f", "e"])],
)
def test_fixed_mixes(mix, expected):
    config = dataclasses.replace(DPR_AIS, candidates=mix, select=Top(k=3))
    assert kept(run(config, ScriptedModel(PAIRS), index())) == expected


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        (FixedMix(2, 1), ["a", "b", "c"]),
        (FixedMix(2, 1, "keep"), ["a", "b", "a"]),
        (FixedMix(1, 2, "keep"), ["a", "a", "b"]),
    ],
)
def test_a_fixed_mix_replaces_duplicates_or_keeps_them(mix, expected):
    same = {**QUERIES, "A pseudo text.": 0}  # p searches like q: a, b, c
    config = dataclasses.replace(DPR_AIS, candidates=mix, select=Top(k=3))
    found = run(config, ScriptedModel(PAIRS), index(same))
    assert kept(found) == expected


def test_pairs_retrieves_on_disagreement_with_four_calls():
    found = run(pairs.Config(), ScriptedModel(PAIRS), index())
    gate = found.value.trace["gate"]
    assert gate["agree"] is False and gate["second"]["text"] == "Paris"
    assert found.cost["llm_calls"] == 4 and found.cost["searches"] == 2
    assert found.value.text == "Paris"


@pytest.mark.parametrize(
    "second, agree", [("the rome!", True), ("Rome, Italy", False), ("", False)]
)
def test_pairs_agreement_is_normalised_equality(second, agree):
    script = {**PAIRS, "Context:": f"<answer>{second}</answer>"}
    found = run(pairs.Config(), ScriptedModel(script), index())
    assert found.value.trace["gate"]["agree"] is agree
    assert found.cost["llm_calls"] == (3 if agree else 4)


def test_pairs_agreement_by_f1():
    script = {**PAIRS, "Context:": "<answer>Rome, Italy</answer>"}
    # tokens {rome} and {rome, italy}: precision 1, recall 1/2, F1 2/3
    for threshold, agree in [(0.6, True), (0.7, False)]:
        gate = AgreementGate(test="f1", f1=threshold)
        found = run(pairs.Config(gate=gate), ScriptedModel(script), index())
        assert found.value.trace["gate"]["agree"] is agree


def test_two_empty_answers_do_not_agree():
    script = {**PAIRS, "Context:": "", "directly and briefly": ""}
    found = run(pairs.Config(), ScriptedModel(script), index())
    assert found.value.trace["gate"]["retrieve"] is True


def test_exclude_num_sends_agreed_numbers_to_retrieval():
    script = {**PAIRS, "Context:": "<answer>1912</answer>", "directly and": "<answer>1912</answer>"}
    script.pop("directly and briefly")
    plain = run(pairs.Config(), ScriptedModel(script), index())
    excluded = pairs.Config(gate=AgreementGate(exclude_num=True))
    found = run(excluded, ScriptedModel(script), index())
    assert plain.value.trace["gate"]["retrieve"] is False
    assert found.value.trace["gate"]["excluded"] is True and found.cost["searches"] == 2


@pytest.mark.parametrize(
    "said, retrieve, junk",
    [("Yes", True, False), ("No.", False, False), ("no, I know", False, False),
     ("Perhaps", True, True), ("", True, True)],
)  # fmt: skip
def test_llm_judge(said, retrieve, junk):
    found = run(LLM_JUDGE, ScriptedModel({**DTR, "look up": said}), index())
    gate = found.value.trace["gate"]
    assert (gate["retrieve"], gate["junk"]) == (retrieve, junk)
    assert found.value.text == ("Paris" if retrieve else "Rome")
    assert found.cost["llm_calls"] == 2


def test_the_judge_can_be_another_model():
    judge = ScriptedModel({"look up": "No"}, identity='{"model":"other"}')
    method = dataclasses.replace(LLM_JUDGE, gate=JudgeGate(Local("other")))
    helpers = {"gate.judge": LanguageModelTool(judge)}
    found = run(method, ScriptedModel(DTR), index(), helpers=helpers)
    assert found.value.text == "Rome" and len(judge.prompts) == 1


def test_rerank_and_dpr_ais_rerank():
    order = {"a": 1, "b": 5, "c": 3, "d": 2, "e": 4, "f": 0}

    def score(query, passage):
        letter = passage[len("Title ")]
        return order[letter] * (1 if "Where" in query else -10)

    found = run(dataclasses.replace(RERANK, candidates=OnePath(n=6)), ScriptedModel(PAIRS), index(),
        reranker=ScriptedReranker(score),
    )  # fmt: skip
    assert kept(found) == ["b", "e", "c"] and found.cost["rerank_pairs"] == 6
    config = dataclasses.replace(
        DPR_AIS, candidates=DualPath(n=6), select=Rerank(k=2, with_pseudo=True)
    )
    both = run(config, ScriptedModel(PAIRS), index(), reranker=ScriptedReranker(score))
    # K(d,q) + K(d,p) = order - 10 order = -9 order: the smallest order wins
    assert kept(both) == ["f", "a"] and both.cost["rerank_pairs"] == 12


@pytest.mark.parametrize("gate", [Always(), UncertaintyGate(), AgreementGate(), JudgeGate()])
@pytest.mark.parametrize("candidates", [OnePath(), OnePath(by="expanded"), DualPath(), FixedMix()])
@pytest.mark.parametrize("select", [Top(), AIS(), Rerank(), Rerank(with_pseudo=True)])
def test_any_gate_composes_with_any_strategy_and_selector(gate, candidates, select):
    config = dtr.Config(gate=gate, candidates=candidates, select=select)
    found = run(config, ScriptedModel(DTR), index(), reranker=ScriptedReranker(lambda q, p: 0.0))
    assert found.value.text in ("Rome", "Paris")
    assert found.value.trace["gate"]["retrieve"] is ("searches" in found.value.trace)


def test_braces_in_a_question_are_harmless():
    question = Question("q2", "Where is it? {x} {0} %s", ("?",))
    model = ScriptedModel(DTR)
    run(STANDARD_RAG, model, index(), question=question)
    assert "{x} {0} %s" in model.prompts[0]


def test_missing_tools_are_named():
    with pytest.raises(InputError, match=r"config\.index"):
        run(STANDARD_RAG, ScriptedModel(DTR))
    with pytest.raises(InputError, match=r"config\.reranker"):
        run(RERANK, ScriptedModel(PAIRS), index())
