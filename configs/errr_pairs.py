"""Pairs that query optimizers are distilled from: DATA, or METHOD@DATA.

Source: docs/methods.md, "ERRR: frozen and trainable".

    python -m experiments.run --config configs/errr_pairs.py:popqa --workdir runs/pairs

Data as in `configs.errr`, of which these are the questions to train on; a tenth of them, drawn by
their ids, is held out (``--config.run.method.held_out=0.2``). ``trainable_errr``, the default,
shows the student what the reader knows (``--config.run.method.student.context=False`` does not);
``trainable_rrr`` has neither teacher nor student know it. ``+decoder``, as in
``popqa+decoder`` or ``trainable_rrr+decoder@popqa``, is for a student that is no T5.
"""

from __future__ import annotations

import dataclasses

from configs.errr import parts_of, prompted, reader_of, run_on, student_input
from jaxrag.methods.errr import errr_pairs
from jaxrag.methods.errr.query_pairs import MakeQueryPairs
from jaxrag.types import InputError


def get_config(variant: str = "factbook") -> MakeQueryPairs:
    """The job that asks the teacher.

    Raises:
      InputError: no such data, or a method without a student.
    """
    if "@" not in variant:
        data, plus, student = variant.partition("+")
        variant = f"trainable_errr{plus}{student}@{data}"
    name, student, data, paper = parts_of(variant)
    if name not in ("trainable_errr", "trainable_rrr"):
        raise InputError(f"{name!r} has no student; trainable_errr and trainable_rrr have.")
    context = name == "trainable_errr"
    method = errr_pairs.Config(
        prompted(paper, context=context),
        student_input(student, context=context),
        reader=reader_of(data, paper),
    )
    run = run_on(method, data, paper=paper, part="train")
    return MakeQueryPairs(dataclasses.replace(run, index=None, label=f"{name} pairs"))
