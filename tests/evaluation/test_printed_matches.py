"""The printed rows that runs of known settings stand beside."""

from typing import Any

from jaxrag.evaluation.printed_matches import PrintedMatch, matches


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
    config = run("standard_rag", "nq", language_model={"name": "SmolLM2"})
    config["method"]["select"]["k"] = 1
    found = by_table(matches(config))
    assert found["dtr/table2"].differs == (
        "generator Qwen2.5-7B-Instruct (ours: SmolLM2)", "3 passages (ours: 1)",
    )  # fmt: skip
    assert set(found) >= {"pairs/table2", "pairs/table7", "dtr/table2", "dtr/table6", "dtr/table7"}
    assert len(found) == len(matches(config))  # a row a table


def test_our_names_of_printed_methods() -> None:
    assert by_table(matches(run("direct", "popqa")))["errr/table2"].row.method == "no_retrieval"
    ars = run("ars", "boolq", language_model={"name": "Qwen2.5-32B-Instruct"})
    assert by_table(matches(ars))["ars/table1"].row.generator == "Qwen2.5:32B"
    assert (
        by_table(matches(run("bandit", "hotpotqa")))["ars/table2"].row.method == "rewriter_bandit"
    )
    # A prefix of a name is not its family: "dpr_ais" does not stand for "dpr_ais_rerank".
    rows = {match.row.method for match in matches(run("dpr_ais", "nq"))}
    assert rows == {"dpr_ais"}


def test_only_what_is_printed() -> None:
    assert matches(run("dtr", "factbook")) == [] and matches(run("mine", "nq")) == []
    assert matches(run("dtr", "2wiki")) == [] and matches(run("dtr", "average")) == []
    assert matches({}) == []
