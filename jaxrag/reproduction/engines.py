"""Runs' language models on another engine than the local one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.runs.settings_tree import replaced
from jaxrag.types import InputError

Engine = Literal["local", "vllm", "server"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def on_engine(engine: Engine, servers: Mapping[str, str] | None = None) -> Callable[[Job], Job]:
    """Moves the language models of runs to an engine, helpers such as judges included.

    Runs that inspect the model (DRAGIN, SeaKR) stay on the local engine, the only one that can, as
    do trainings.

    Args:
      engine: its name.
      servers: addresses by the model's name, the checkpoint without "hub:" or "package:"; "" is the
        address of all others. Only a server that is named gets prompts as tokens of that
        checkpoint's tokenizer; the chat endpoint is asked otherwise.
    """

    def moved(settings: Any) -> Any:
        if not isinstance(settings, Local):
            return settings
        if engine == "vllm":
            return as_vllm(settings)
        name = settings.checkpoint.partition(":")[2] or settings.checkpoint
        addresses = servers or {}
        if name in addresses:
            return Server(name, addresses[name], tokenizer=settings.checkpoint)
        if "" not in addresses:
            raise InputError(f"no server for {name}: give --server={name}=http://HOST:PORT/v1.")
        return Server(name, addresses[""])

    def change(job: Any) -> Any:
        if engine == "local":
            return job
        if isinstance(job, Run):
            return job if job.needs.inspection else replaced(job, moved)
        if isinstance(getattr(job, "run", None), Run):
            return dataclasses.replace(job, run=change(job.run))
        return job

    return change


def as_vllm(settings: Local) -> Vllm:
    """The same checkpoint by vLLM; the embedded default in float32, as our engine runs it.

    Raises:
      InputError: its matrices are quantised, which vLLM does in other ways.
    """
    if settings.quantization:
        raise InputError(
            f"{settings.name} has quantization {settings.quantization!r}, which is the local "
            "engine's: set it to '' to run with vLLM."
        )
    dtype = "float32" if settings.checkpoint == Local().checkpoint else "auto"
    return Vllm(settings.checkpoint, dtype=dtype)


def read_servers(given: list[str]) -> dict[str, str]:
    """Addresses by model name, of texts NAME=URL or URL.

    Raises:
      InputError: an address is not one of HTTP.
    """
    addresses = {}
    for text in given:
        name, _, url = text.rpartition("=") if not text.startswith("http") else ("", "", text)
        if not url.startswith(("http://", "https://")):
            raise InputError(
                f"--server is {text!r}: give NAME=http://HOST:PORT/v1, or the address."
            )
        addresses[name] = url
    return addresses
