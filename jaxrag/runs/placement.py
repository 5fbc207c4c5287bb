"""The engine of language models in jobs, and how they and vectors lie on the devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.runs.settings import replaced
from jaxrag.types import InputError

Engine = Literal["local", "vllm", "server"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


@dataclasses.dataclass(frozen=True)
class Placement:
    """How models (`Local`, `Vllm`) and vectors (`Exact`) lie on devices; 0 and "" are defaults."""

    dtype: str = ""
    quantization: str = ""
    tensor_parallel: int = 0
    data_parallel: int = 0
    memory: float = 0.0
    index_memory: float = 0.0

    def apply(self, settings: Any) -> Any:
        """Sets this placement in an engine or exact index; InputError if that lacks a setting."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if value}
        gigabytes = values.pop("index_memory", 0.0)
        if isinstance(settings, Exact):
            return dataclasses.replace(settings, memory_gb=gigabytes) if gigabytes else settings
        fields = {field.name for field in dataclasses.fields(settings)}
        if unknown := values.keys() - fields:
            way_out = {
                "data_parallel": "start a server on each device, and give --server=NAME=URL,URL",
                "memory": "add --engine=vllm",
            }.get(min(unknown), "give it to the server when it is started")
            raise InputError(
                f"--{min(unknown)} is no setting of {type(settings).__name__}: {way_out}."
            )
        return dataclasses.replace(settings, **values)


def on_engine(
    engine: Engine,
    servers: Mapping[str, str] | None = None,
    placement: Placement = Placement(),
) -> Callable[[Job], Job]:
    """Moves the language models of jobs to an engine: readers, helpers such as judges, and those
    that trainings ask.

    Runs that inspect the model (DRAGIN, SeaKR) stay on the local engine, the only one that can.

    ``servers`` are addresses by the model's name, the checkpoint without "hub:" or "package:"; ""
    is the address of all others. Only a server that is named gets prompts as tokens of that
    checkpoint's tokenizer; the chat endpoint is asked otherwise.
    """

    def moved(settings: Any) -> Any:
        if isinstance(settings, Exact):
            return placement.apply(settings)
        if not isinstance(settings, Local) or not settings.checkpoint:  # "": yet to be trained
            return settings
        if engine == "local":
            return placement.apply(settings)
        if engine == "vllm":
            return placement.apply(as_vllm(settings))
        name = settings.checkpoint.partition(":")[2] or settings.checkpoint
        addresses = servers or {}
        if name not in addresses and "" not in addresses:
            raise InputError(f"no server for {name}: give --server={name}=http://HOST:PORT/v1.")
        tokenizer = settings.checkpoint if name in addresses else ""
        return placement.apply(Server(name, addresses.get(name, addresses.get("", "")), tokenizer))

    def change(job: Any) -> Any:
        if engine == "local" and placement == Placement():
            return job
        run = job if isinstance(job, Run) else getattr(job, "run", None)
        if engine != "local" and isinstance(run, Run) and run.needs.inspection:
            return job
        return replaced(job, moved)

    return change


def as_vllm(settings: Local) -> Vllm:
    """The same checkpoint by vLLM; the embedded default in float32, as our engine runs it."""
    if settings.quantization:
        raise InputError(
            f"{settings.name} has quantization {settings.quantization!r}, which is the local "
            "engine's: set it to '' to run with vLLM."
        )
    dtype = "float32" if settings.checkpoint == Local().checkpoint else "auto"
    return Vllm(settings.checkpoint, dtype=dtype)


def read_servers(given: list[str]) -> dict[str, str]:
    """Addresses by model name, of texts NAME=URL or URL; several of a model with commas."""
    addresses = {}
    for text in given:
        name, _, url = text.rpartition("=") if not text.startswith("http") else ("", "", text)
        if not url.startswith(("http://", "https://")):
            raise InputError(
                f"--server is {text!r}: give NAME=http://HOST:PORT/v1, or the address."
            )
        addresses[name] = url
    return addresses
