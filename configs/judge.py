"""Judges of answers: a language model says whether each answer of a finished run is correct.

    jaxrag judge runs/quickstart --config configs/judge.py
    jaxrag judge runs/quickstart --config configs/judge.py:server --config.model.model=NAME \\
        --config.model.urls=http://HOST:PORT/v1

``small`` is SmolLM2-135M-Instruct, a test of the code: it is too small to judge. ``server`` asks an
OpenAI-compatible server, ``chat`` runs Qwen2.5-7B-Instruct by our decoder; any other engine is set
by ``--config.model``.
"""

import difflib

from jaxrag.configs.parts import QWEN_7B
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.runs.judge import Judge
from jaxrag.types import InputError

JUDGES = {
    "small": Judge(Local(), prompts="judge_small"),
    "chat": Judge(Local(QWEN_7B)),
    "server": Judge(Server()),
}


def get_config(variant: str = "small") -> Judge:
    """The judge of a variant."""
    if variant not in JUDGES:
        near, *_ = difflib.get_close_matches(variant[:100], JUDGES, 1, 0)
        raise InputError(f"no judge {variant!r}: {', '.join(JUDGES)}. Nearest: {near}.")
    return JUDGES[variant]
