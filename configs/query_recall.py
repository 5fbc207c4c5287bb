"""Whose queries find more: the questions, a teacher's, or a student's distilled from it.

    python -m experiments.run --config configs/query_recall.py:factbook \\
        --config.written=runs/optimizer --workdir runs/query_recall

``runs/optimizer`` is the directory of a training by configs/train_query_optimizer.py, from pairs of
the same data. Data as in `configs.errr`, with ``paper-`` before it the papers', the part to train
on, of which the pairs held out are.
"""

from __future__ import annotations

import dataclasses

from configs import errr
from jaxrag.methods.errr.query_recall import QueryRecall


def get_config(variant: str = "factbook") -> QueryRecall:
    """The comparison on some data, with the retriever that methods have there.

    Raises:
      InputError: no such data.
    """
    run = errr.get_config(f"rag@{variant}")
    data = dataclasses.replace(run.data, part="train")  # type: ignore
    assert run.index is not None, "rag has one"
    return QueryRecall("", run.index, data)
