"""The ablations of PAIRS (Tables 2-5) and DTR (Table 3): one setting of a method changed at a time.

    python -m experiments.run --config configs/ablations.py:dtr_wo_ugt@quickstart \
        --workdir runs/dtr_wo_ugt

A variant is ABLATION@VARIANT, the second part as in `configs.parts` ("paper-..." included).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs.parts import SMALL, THRESHOLD, K, variant_run
from jaxrag.methods import dtr, pairs
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.pairs import AgreementGate
from jaxrag.methods.retrieve_and_read import DPR_AIS
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import FixedMix, OnePath
from jaxrag.steps.gates import Always
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.types import InputError

_Q, _P = OnePath(n=10), OnePath(n=10, by="pseudo")


def _ablations(k: int, threshold: float) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Method's config and what changes in it; fixed mixes always give three passages."""
    decides = dtr.Config(UncertaintyGate(threshold), select=AIS(k=k))
    both = dataclasses.replace(DPR_AIS, select=AIS(k=k))
    two_q = {"candidates": FixedMix(from_query=2, from_pseudo=1), "select": Top(k=3)}
    two_p = {"candidates": FixedMix(from_query=1, from_pseudo=2), "select": Top(k=3)}
    return {
        "pairs_exclude_num": (
            pairs.Config(select=AIS(k=k)),
            {"gate": AgreementGate(exclude_num=True)},
        ),
        "dpr_ais_rerank": (both, {"select": Rerank(k=k, with_pseudo=True)}),
        "dpr_ais_dynamic": (both, {"select": AIS(k=k, score="dynamic")}),
        "dpr_ais_cosine_sum": (both, {"select": AIS(k=k, score="cosine_sum")}),
        "dpr_ais_wo_dpr_q": (both, {"candidates": _Q}),
        "dpr_ais_wo_dpr_p": (both, {"candidates": _P}),
        "dpr_ais_wo_ais_2q1p": (both, two_q),
        "dpr_ais_wo_ais_1q2p": (both, two_p),
        "dtr_wo_ugt": (decides, {"gate": Always()}),
        "dtr_wo_dpr": (decides, {"candidates": OnePath(n=k), "select": Top(k=k)}),
        "dtr_wo_ais_2q1p": (decides, two_q),
        "dtr_wo_ais_1q2p": (decides, two_p),
    }


def get_config(variant: str = "dtr_wo_ugt@quickstart") -> Run:
    """The run of an ablation."""
    name, _, where = variant.partition("@")
    ablations = {"small": _ablations(K, THRESHOLD), "paper": _ablations(3, 0.001)}
    if name not in ablations["small"]:
        known = ", ".join(ablations["small"])
        raise InputError(f"no ablation {name!r}; there are {known}. Give ABLATION@VARIANT.")
    changed = {
        size: dataclasses.replace(config, **changes)
        for size, (config, changes) in ((s, table[name]) for s, table in ablations.items())
    }
    small = dataclasses.replace(changed["small"], reader=SMALL)
    run = variant_run(where or "quickstart", small=small, paper=changed["paper"])
    return dataclasses.replace(run, label=name)
