"""``--dry-run`` says what a run then does, and does none of it."""

import dataclasses
import json
import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.configs.papers.models import DECODERS
from jaxrag.core.progress import size_text
from jaxrag.engines.local.engine import Local, LocalModel
from jaxrag.engines.memory import model_memory, run_memory
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.evaluation.records import read_run
from jaxrag.experiments.run import main
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL
from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.device_memory import Devices
from jaxrag.retrieval.dense import encoder as encoder_module
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs import calls
from jaxrag.runs.config_file import load
from jaxrag.runs.plan import model_text, plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps.gates import Always, JudgeGate
from jaxrag.steps.passage_selectors import Rerank
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model
from tests.experiments.small_run import write_small_run
from tests.models.checkpoint.sharded import write_checkpoint
from tests.models.decoder.reference import CONFIGS


@pytest.fixture(scope="module")
def config(tmp_path_factory: Any) -> Path:
    return write_small_run(tmp_path_factory.mktemp("plan"), questions=20)


class Executed(NamedTuple):
    """A run, its directory, and its plan of before."""

    run: Run
    workdir: Path
    before: dict[str, str]


@pytest.fixture(scope="module")
def executed(config: Path) -> Executed:
    run, workdir = load(str(config)), config.parent / "run"
    before = dict(plan(run, workdir))
    assert not (config.parent / "cache" / "indexes").exists()
    execute(run, workdir)
    return Executed(run, workdir, before)


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a dry run did what it must not")


def test_a_dry_run_loads_calls_and_writes_nothing(
    config: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    for owner, name in ((LocalModel, "load"), (Encoder, "load"), (socket, "socket")):
        monkeypatch.setattr(owner, name, refuse)
    describe, described = encoder_module.describe, []
    monkeypatch.setattr(
        encoder_module, "describe", lambda *given: described.append(given) or describe(*given)
    )
    workdir = tmp_path / "run"
    arguments = [f"--config={config}", f"--workdir={workdir}", f"--config.cache={tmp_path}/cache"]
    assert main(["run", *arguments, "--dry-run"]) == 0
    assert not workdir.exists()
    assert len(described) == 1  # which hashes a checkpoint, gigabytes perhaps
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"data", "data.lock"}
    told = capsys.readouterr().out
    for part in ("20 questions", "40 passages", "0 answered, 20 left", "not built yet",
                 "store.sqlite: not there yet", "unknown; run a few questions"):  # fmt: skip
        assert part in told


def test_the_run_matches_the_plan(executed: Executed) -> None:
    run, workdir, before = executed
    assert before["run"] == f"{workdir}: 0 answered, 20 left"
    assert before["store"].endswith("store.sqlite: not there yet")
    *_, where, state = before["index"].split(", ")
    assert state == "not built yet"
    (vectors,) = Path(where.removeprefix("in ")).glob("*.npy")
    assert np.load(vectors).nbytes == 40 * 24 * 2 and " 1.92 kB on disk, " in before["index"]
    after = dict(plan(run, workdir))
    assert after["index"] == before["index"].replace("not built yet", "built")
    assert after["run"] == f"{workdir}: 20 answered, 0 left"
    assert int(after["store"].split()[-2]) > 20
    method: Any = run.method
    changed = dataclasses.replace(run, method=dataclasses.replace(method, gate=Always()))
    with pytest.raises(InputError, match=r"other settings:\n  method\.gate"):
        plan(changed, workdir)


def test_plans_distinguish_unfinished_from_built_indexes(
    executed: Executed, tmp_path: Path
) -> None:
    for part in ("data", "indexes"):
        shutil.copytree(Path(executed.run.cache) / part, tmp_path / "cache" / part)
    run = dataclasses.replace(executed.run, cache=str(tmp_path / "cache"))

    def state(run: Run) -> str:
        return dict(plan(run))["index"].partition("in /")[2].partition(", ")[2]

    assert state(run) == "built"
    assert run.index is not None
    other: Any = run.index
    scann = dataclasses.replace(run, index=Scann(other.encoder, leaves=4))
    assert state(scann) == "its vectors are there; the run trains on them"
    scann.index.open(plan_data(scann).passages, tmp_path / "cache")  # type: ignore[union-attr]
    assert state(scann) == "built"
    (manifest,) = (tmp_path / "cache" / "indexes").glob("*/manifest.json")
    text = manifest.read_text().replace('"complete": true', '"complete": false')
    manifest.write_text(text)
    assert state(run) == "unfinished, 1 of its files are there; the run goes on"
    manifest.write_text("{")
    assert "damaged" in state(run)


def test_a_recorded_run_makes_its_method_s_calls_known(
    executed: Executed, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    run, workdir, before = executed
    assert before["calls"].startswith("unknown")
    table = tmp_path / "calls.json"
    table.write_bytes(calls.TABLE.read_bytes())
    monkeypatch.setattr(calls, "TABLE", table)
    calls.main([str(workdir)])
    costs = calls.expected_costs(run, {"open": 1})
    made = [record["cost"].get("llm_calls", 0) for record in read_run(workdir).records]
    assert costs is not None and costs["llm_calls"] == sum(made) / 20
    assert {"prompt_tokens", "new_tokens", "searches", "passages"} <= costs.keys()
    named = dataclasses.replace(run, label="mine u=0.1")  # the row of its method
    assert calls.expected_costs(named, {"open": 1}) == costs
    shown = f"about {costs['llm_calls']:.3g} a question, {sum(made):,} in all"
    assert dict(plan(named))["llm calls"] == shown
    assert calls.expected_costs(run, {"open": 2, "labels": 1}) is None  # a kind without a row
    (row,) = calls.rows_of(workdir)
    other = row._replace(kind="labels", costs={"llm_calls": 7.0})
    known = {entry[:4]: entry for entry in (row, other)}
    monkeypatch.setattr(calls, "read_table", lambda file: known)
    mean = calls.expected_costs(run, {"open": 3, "labels": 1})
    assert mean is not None and mean["llm_calls"] == 0.75 * row.costs["llm_calls"] + 0.25 * 7
    monkeypatch.undo()
    monkeypatch.setattr(calls, "TABLE", table)
    capsys.readouterr()
    main(["run", f"--config={workdir.parent / 'config.py'}", f"--workdir={tmp_path}", "--dry-run"])
    assert f"about {costs['llm_calls']:.3g} a question" in capsys.readouterr().out


def plan_data(run: Run) -> Any:
    return run.data.load(Path(run.cache))


def told_memory(settings: Any) -> tuple[str, str]:
    """Weights, and keys and values of a row, as a plan tells them."""
    head, _, row = model_text(settings).partition("; ")
    return head.partition("about ")[2].partition(" of weights")[0], row.partition(" of ")[0]


def test_planned_memory_equals_the_network_s(tmp_path: Path) -> None:
    weights = write_tiny_model(tmp_path / "model")
    shape = read_decoder_config({**CONFIGS["qwen2"], "vocab_size": 260}, source="test")
    count = sum(array.size for array in weights.values())
    for dtype in ("float32", "bfloat16"):
        size = jnp.dtype(dtype).itemsize
        cache = empty_cache(shape, 1, 1024, jnp.dtype(dtype))
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
        told = told_memory(Local(str(tmp_path / "model"), dtype=dtype))
        assert told == (size_text(size * count), size_text(row))
    kind = json.loads((tmp_path / "model" / "config.json").read_text())
    write_checkpoint(tmp_path / "shards", kind, weights, shards=3)
    assert told_memory(Vllm(str(tmp_path / "shards")))[0] == size_text(2 * count)
    write_checkpoint(tmp_path / "mamba", {"model_type": "mamba"}, weights)
    text = model_text(Vllm(str(tmp_path / "mamba")))
    assert "weights" not in text and "mamba" in text.partition(", ")[2]


@pytest.mark.parametrize(
    "name, compiled",
    [  # GiB of arguments and temporaries of decoding 128 rows, a chip of eight: docs/tpu.md
        ("Qwen/Qwen2.5-7B-Instruct", 2.65 + 1.33),
        ("meta-llama/Meta-Llama-3-8B", 3.87 + 2.00),
        ("google/gemma-2-9b-it", 7.40 + 5.25),
    ],
)
def test_peak_memory_is_near_the_compiler_s(name: str, compiled: float) -> None:
    settings = Local("any", rows=128, prefill_rows=16, chunk=128, cache_gib=64, tensor_parallel=8)
    memory = model_memory(DECODERS[f"hub:{name}"], settings, Devices(8, 16.9e9))
    assert memory.peak == pytest.approx(2**30 * compiled, rel=0.07)


def test_a_model_shares_what_an_index_leaves() -> None:
    """As the engine does when it chooses its rows: the cache shrinks with the memory left."""
    name = "hub:Qwen/Qwen2.5-7B-Instruct"

    def cache(index: float) -> float:
        memory = run_memory({Local(name): DECODERS[name]}, Devices(1, 80e9), index, 0.0)
        assert memory is not None and memory.index == index and memory.peak < 80e9
        return memory.cache

    # of 64.8 and 21.8 GB beside 15.2 GB of weights
    assert cache(43e9) / cache(0.0) == pytest.approx(21.8 / 64.8, rel=0.25)


def test_remote_models_have_no_memory_estimate(config: Path) -> None:
    run = dataclasses.replace(load(str(config)), method=NO_RETRIEVAL, index=None)
    models: dict[str, Any] = {
        "any, server (Server), not on this machine": Server("any", "http://nowhere.invalid/v1"),
        "not downloaded yet; the run downloads it": Local("hub:nobody/no-such-model"),
    }
    for text, model in models.items():
        told = dict(plan(dataclasses.replace(run, model=model)))["model"]
        assert told.endswith(text) and "weights" not in told
    with pytest.raises(InputError, match="pip install no-such-package"):
        plan(dataclasses.replace(run, model=Local("package:no_such_package")))


def test_the_reranker_and_the_judge_are_in_the_plan(config: Path) -> None:
    run = load(str(config))
    settings = dataclasses.replace(
        run.method,
        gate=JudgeGate(run.model),
        select=Rerank(k=1),
        reader=Reader(prompts="small"),
    )
    told = dict(plan(dataclasses.replace(run, method=settings, reranker=QueryLikelihood())))
    assert told["gate.judge"] == told["model"]
