"""Whose queries find more: the questions, a teacher's, or a student's distilled from it.

    python -m experiments.recall --config configs/query_recall.py:factbook \\
        --config.written=runs/optimizer --workdir runs/query_recall

``runs/optimizer`` is the directory of a training by configs/train_query_optimizer.py, from pairs of
the same data. Data as in `configs.errr`, the part to train on, of which the pairs held out are.
"""

from __future__ import annotations

import dataclasses

from configs.errr import DATA
from configs.parts import parts_of
from jaxrag.jobs.query_recall import QueryRecall
from jaxrag.settings import Exact


def get_config(variant: str = "factbook") -> QueryRecall:
    """The comparison on some data."""
    _, data, _ = parts_of(f"@{variant}", DATA)
    return QueryRecall("", Exact(), dataclasses.replace(DATA[data], part="train"))
