"""DTR: retrieve where the direct answer is uncertain; dual paths and AIS: METHOD@DATA.

Source: docs/methods.md, "DTR".

    python -m experiments.run --config configs/dtr.py:dtr@quickstart --workdir runs/dtr

With SmolLM2, some minutes on 2 CPU cores: EM 30.0 [21.0, 39.0] on 100 questions (README). Larger
tables are in docs/results.md.

Methods:

- ``dtr``; its ablations (Table 3 of the paper): ``dtr_wo_ugt`` always retrieves, ``dtr_wo_dpr``
  searches by the question alone, ``dtr_wo_ais_2q1p`` and ``dtr_wo_ais_1q2p`` read two passages of
  one search and one of the other.
- the baselines of the table, as in `configs.baselines`: ``no_retrieval``, ``standard_rag``,
  ``hyde``, ``q2d``, ``cot``, ``llm_judge``; and ``rerank`` and ``dpr_ais`` of PAIRS, all with DTR's
  prompts. ``pairs`` has its own.

Data: ``tiny``, ``quickstart``, ``quickstart_train``, ``factbook``, ``hotpotqa``, ``squad``, ``nq``;
the papers' sets: ``paper-nq``, ``paper-triviaqa``, ``paper-webq``, ``paper-squad``,
``paper-hotpotqa``, ``paper-2wiki``; see `configs.data`.
"""

from __future__ import annotations

import dataclasses

from configs import pairs
from configs.baselines import SINGLE_SEARCH, entries, prompted
from configs.parts import PAIRS, SMALL, K, job_of
from jaxrag.methods import dtr
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.runs.job import Job
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.gates import Always
from jaxrag.steps.passage_selectors import AIS, Top

THRESHOLD = 0.4
"""For SmolLM2: accepts the surest eighth of the questions of quickstart_train without retrieval."""


def _methods(full: dtr.Config, k: int) -> dict[str, dtr.Config]:
    """DTR and its ablations, reading k passages."""
    changes = {
        "wo_ugt": {"gate": Always()},
        "wo_dpr": {"candidates": OnePath(n=k), "select": Top(k=k)},
        **pairs.FIXED_MIXES,
    }
    ablations = {f"dtr_{name}": dataclasses.replace(full, **c) for name, c in changes.items()}
    return {"dtr": full, **ablations}


_SMALL = dtr.Config(UncertaintyGate(THRESHOLD), select=AIS(k=K), reader=SMALL)
_PAPER = _methods(dtr.Config(), 3)
METHODS = {
    **{name: PAIRS.entry(small, _PAPER[name]) for name, small in _methods(_SMALL, K).items()},
    "pairs": pairs.METHODS["pairs"],
    **entries(prompted(SINGLE_SEARCH, "dtr"), PAIRS),
}


def get_config(variant: str = "dtr@factbook") -> Job:
    """The run of METHOD@DATA."""
    return job_of(variant, METHODS, example="dtr@factbook")
