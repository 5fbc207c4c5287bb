"""Every METHOD@DATA of every config loads and fits together; wrong variants have clear errors."""

import dataclasses
import importlib
import re
from typing import Any

import pytest

from jaxrag.configs import data, errr
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.draw import Draw
from jaxrag.data.sets import SETS
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.runs.config_file import load
from jaxrag.runs.job import Job
from jaxrag.runs.needs import check_needs
from jaxrag.runs.run import Run
from jaxrag.steps import prompts
from jaxrag.types import InputError

CONFIGS: dict[str, Any] = {
    name: importlib.import_module(f"jaxrag.configs.{name}")
    for name in ("pairs", "dtr", "r3", "errr", "ars", "baselines", "retrieval")
}
METHODS = [(name, method) for name, config in CONFIGS.items() for method in config.METHODS]


def get(config: str, variant: str) -> Any:
    return CONFIGS[config].get_config(variant)


@pytest.mark.parametrize(("config", "method"), METHODS)
def test_every_documented_variant_gives_a_job(config: str, method: str) -> None:
    entry = CONFIGS[config].METHODS[method]
    for name in entry.names or ["tables/a,tables/b"]:
        job = get(config, f"{method}@{name}")
        assert isinstance(job, Job)
        run = job if isinstance(job, Run) else getattr(job, "run", None)
        if run is None:
            continue
        # all but checkpoints is there: index, reranker, prompts
        check_needs(run, given=dict.fromkeys(run.needs.helpers))  # type: ignore[arg-type]
        if run.name != "self_rag (prompted)" and job is run:
            assert run.name == method
        if hasattr(run.method, "reader"):
            assert prompts.load(run.method.reader.prompts).roles


@pytest.mark.parametrize("config", ["pairs", "dtr", "r3", "errr", "ars"])
def test_the_run_in_sight_is_that_of_the_first_command(config: str) -> None:
    header = CONFIGS[config].__doc__
    (variant,) = re.findall(rf"configs/{config}\.py:(\S+)", header)[:1]
    assert get(config, variant) == CONFIGS[config].RUN
    assert re.search(r"^- hardware: .*\n- minutes: .*\n(  .*\n)?- score: EM \d", header, re.M)


@pytest.mark.parametrize("config", CONFIGS)
def test_methods_of_a_config_answer_the_same_questions(config: str) -> None:
    """Else their scores could not be compared."""
    found: dict[str, set[Any]] = {}
    for method, entry in CONFIGS[config].METHODS.items():
        for name in entry.names:
            if config != "baselines" and isinstance(job := get(config, f"{method}@{name}"), Run):
                found.setdefault(name, set()).add((job.data, job.limit))
    assert all(len(questions) == 1 for questions in found.values())


@pytest.mark.parametrize("config", ["errr", "ars"])
def test_questions_to_train_on_are_drawn_apart_from_those_evaluated(config: str) -> None:
    for method, entry in CONFIGS[config].METHODS.items():
        for name in entry.names:
            job = get(config, f"{method}@{name}")
            run = getattr(job, "run", None)
            if run is None:
                continue
            if isinstance(run.data, Benchmark):  # the first of a training split
                assert run.data.split == "train" and job.leakage == "drop"
                continue
            part = "both" if "rewards" in method else "train"
            assert run.data.part == part
            evaluated = get(config, f"rag@{name}").data
            same = dataclasses.replace(run.data, part="test", train=evaluated.train)
            assert same == evaluated


@pytest.mark.parametrize("paper", ["pairs", "r3", "errr", "ars"])
def test_papers_evaluate_the_published_sets_in_their_size(paper: str) -> None:
    """The sizes that the papers state (docs/methods); R3 states none."""
    pairs = {"nq": 3610, "triviaqa": 11_313, "hotpotqa": 7405, "webq": 2032, "squad": 10_570,
             "2wiki": 12_576}  # fmt: skip
    r3 = {"nq": 3610, "triviaqa": 11_313, "hotpotqa": 7405, "pubhealth": 987, "arc_challenge": 1172}
    errr = {"ambigqa": 1000, "popqa": 997, "hotpotqa": 7405}
    ars = dict.fromkeys(("boolq", "hotpotqa", "medmcqa", "strategyqa"), 400)
    sizes = {"pairs": pairs, "r3": r3, "errr": errr, "ars": ars}[paper]
    ours = {"pairs": data.PAIRS, "r3": data.R3, "errr": data.ERRR, "ars": data.ARS}[paper]
    for name, count in sizes.items():
        questions = ours[f"paper-{name}"]
        found = questions.data
        evaluated: Any = found
        if isinstance(found, Draw):
            evaluated = found.test_source or found.source
            assert found.test == count and found.leakage == "drop"
            if name == "medmcqa":  # whose explanations state the answers
                assert evaluated.corpus == "other-contexts"
            if paper == "errr":
                assert evaluated.first in (count, 0) and evaluated.corpus == "psgs_w100"
        published = SETS[evaluated.name]
        split = evaluated.split or published.evaluated
        assert published.splits[split] >= count and split == published.evaluated
        if not isinstance(found, Draw):
            assert published.splits[split] == count and questions.limit == 0
            assert evaluated.corpus == "" and evaluated.first == 0
    known = {f"paper-{name}" for name in sizes} | {"paper-tiny", "paper-factbook"}
    assert {name for name in ours if name.startswith("paper-")} <= known | {"paper-factbook_known"}


def test_trainings_of_the_paper_never_see_the_evaluated_split() -> None:
    for method in ("train_sidr", "train_r3"):
        for name in CONFIGS["r3"].METHODS[method].names:
            if name.startswith("paper-"):
                job = get("r3", f"{method}@{name}")
                (train,) = job.data if isinstance(job.data, tuple) else (job.data,)
                assert train.split != SETS[train.name].evaluated and job.leakage == "drop"
    small = get("r3", "train_sidr@wiki")
    assert {one.split for one in small.data} == {"train"}
    assert not {*small.data} & {*small.evaluation_data}


@pytest.mark.parametrize("name", data.ERRR)
def test_pairs_have_the_inputs_of_the_trained_method(name: str) -> None:
    for method, writer in (("errr", "optimizer"), ("rrr", "rewriter")):
        for student in ("", "_decoder"):
            teacher = errr.get_config(f"make_pairs_{method}{student}@{name}").run.method
            trained = get("errr", f"trainable_{method}{student}@{name}").method
            assert teacher.student == getattr(trained, writer).reads
            assert teacher.teacher.context == getattr(trained, writer).context


@pytest.mark.parametrize("name", ["tiny", "popqa", "hotpotqa", "paper-hotpotqa"])
def test_labels_use_the_settings_of_the_answering_strategies(name: str) -> None:
    labelled = get("errr", f"make_adaptive_rag_labels@{name}").run
    asked = get("baselines", f"adaptive_rag@{name}")
    shared = {field.name for field in dataclasses.fields(labelled.method)}
    shared &= {field.name for field in dataclasses.fields(asked.method)}
    assert {"loop", "reader", "select"} <= shared
    for field in shared:
        assert getattr(labelled.method, field) == getattr(asked.method, field), field
    assert (labelled.model, labelled.index) == (asked.model, asked.index)
    assert labelled.method.bias == ("multi" if name.endswith("hotpotqa") else "single")


def test_engine_suffixes_of_variants() -> None:
    assert get("dtr", "dtr@nq+vllm").model == Vllm(Local().checkpoint, dtype="float32")
    large = get("dtr", "dtr@paper-nq").model.checkpoint
    assert get("dtr", "dtr@paper-nq+vllm").model == Vllm(large)
    assert get("pairs", "hyde@paper-nq+server").model == Server()  # no tokenizer is assumed
    table = get("ars", "make_rewards@boolq+vllm")
    assert isinstance(table.run.model, Vllm)
    assert dataclasses.replace(table.run, model=Local()) == get("ars", "make_rewards@boolq").run
    assert get("r3", "train_r3@paper-nq+vllm").model == Vllm("hub:meta-llama/Meta-Llama-3-8B")


def part_with_model(job: Any) -> Any:
    """The part of a job that has its language model; None if it uses none."""
    for part in ("run", "downstream"):
        if getattr(job, part, None) is not None and not isinstance(job, Run):
            return part_with_model(getattr(job, part))
    return job if hasattr(job, "model") else None


@pytest.mark.parametrize("engine", ["vllm", "server"])
@pytest.mark.parametrize("config", CONFIGS)
def test_every_paper_variant_runs_on_both_engines(config: str, engine: str) -> None:
    """But for methods that look inside the model, closed models in vLLM, and jobs without one."""
    kinds, refused = {"vllm": Vllm, "server": Server}, {}
    for method, entry in CONFIGS[config].METHODS.items():
        for name in entry.names:
            if not name.startswith("paper"):
                continue
            local = part_with_model(get(config, f"{method}@{name}"))
            try:
                found = part_with_model(get(config, f"{method}@{name}+{engine}"))
            except InputError as error:
                refused[method] = str(error)
                inspects = isinstance(local, Run) and local.needs.inspection
                closed = engine == "vllm" and isinstance(getattr(local, "model", None), Server)
                assert local is None or inspects or closed, refused[method]
                continue
            assert isinstance(found.model, kinds[engine])
            assert found == dataclasses.replace(local, model=found.model)
            if isinstance(local.model, Local):
                kept = found.model.checkpoint if engine == "vllm" else found.model.tokenizer
                assert kept == (local.model.checkpoint if engine == "vllm" else "")
    if config in ("pairs", "dtr", "ars"):
        assert set(refused) == ({"train_ranker"} if config == "ars" else set())


def test_a_method_alone_is_on_the_usual_data() -> None:
    for config, method, whole in (
        ("dtr", "standard_rag+vllm", "standard_rag@quickstart+vllm"),
        ("errr", "react", "react@factbook"),
    ):
        assert get(config, method) == get(config, whole)
    assert load("configs/dtr.py") == load("configs/dtr.py:dtr@quickstart")


@pytest.mark.parametrize(
    ("config", "variant", "message"),
    [
        (
            "dtr",
            "quickstart",
            r"has no method: .*METHOD@DATA.*, such as dtr@quickstart\.",
        ),
        ("dtr", "train", r"such as dtr@quickstart_train\."),
        ("dtr", "paper-nq+vllm", r"such as dtr@paper-nq\+vllm\."),
        ("errr", "train_optimizer", r"such as train_optimizer@tiny\."),
        ("ars", "train_bandit", r"such as train_bandit@DIRECTORY\."),
        ("ars", "train_bandit@", "give train_bandit@DIRECTORY"),
        ("ars", "train_bandit@,", "give train_bandit@DIRECTORY"),
        ("dtr", "dtr_wo_luck@tiny", r"no method 'dtr_wo_luck'.* dtr_wo_ugt, .*Nearest: dtr_wo_ugt"),
        ("pairs", "dtr@tiny", "no method 'dtr' in 'dtr@tiny'.*there are pairs, pairs_exclude_num"),
        ("baselines", "bm26@tiny", "Nearest: bm25"),
        ("errr", "ircot@x", "no data 'x' in 'ircot@x'.*there are tiny, .*paper-popqa"),
        ("errr", "train_optimizer@tinny", "there are tiny, small, paper. Nearest: tiny"),
        ("ars", "rag@hotpotqa", "Nearest: paper-hotpotqa"),
        ("dtr", "dtr@tiny+llama", r"no engine 'llama'.*there are vllm, server"),
        ("errr", "dragin@factbook+vllm", "dragin inspects the model.*leave .vllm out"),
        ("errr", "rag@paper-popqa+vllm", "its model is gpt-3.5-turbo, server, not a checkpoint"),
        ("r3", "train_sidr@tiny+vllm", r"no language model is used, so leave \+vllm out"),
    ],
)
def test_invalid_variants_are_refused(config: str, variant: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        get(config, variant)
