"""SiDR from all-MiniLM-L6-v2: questions with gold or distant positives, negatives of BM25.

    python -m experiments.run --config configs/train_sidr.py:wiki --workdir runs/sidr

Variants:

- ``tiny``: 3 countries of the World Factbook, 6 steps; for tests.
- ``wiki``: nq (test questions with gold passages, training questions with distant ones) and
  hotpotqa's training questions, folders below ``$JAXRAG_DATA``, over the folder ``wiki_pool``;
  evaluated on hotpotqa and squad, none of whose questions is trained on.
- ``paper``: BERT-base from the hub with the settings of the released code on the same data; for a
  GPU or TPU, not run by us yet.
"""

from __future__ import annotations

from configs.parts import SETS, wiki
from jaxrag.data.factbook.build import Factbook
from jaxrag.methods.r3.jobs import TrainSidr
from jaxrag.methods.r3.settings import SidrTraining, Update
from jaxrag.retrieval.bm25.settings import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.types import InputError

SMALL = Sidr(query_length=32, passage_length=128, shared=True, scale=0.25)
"""all-MiniLM-L6-v2 as SiDR to begin with: its logits are large, and its passages fit."""


def get_config(variant: str = "wiki") -> TrainSidr:
    """The job of a variant.

    Raises:
      InputError: no such variant.
    """
    if variant == "tiny":
        data = Factbook(split="train", countries=3)
        update = Update(learning_rate=5e-5, temperature=25)
        training = SidrTraining(
            steps=6, batch=8, microbatch=4, update=update, evaluate_every=3, save_every=3
        )
        return TrainSidr(SMALL, (data,), Bm25(), training, (data,), evaluation_limit=8)
    if variant not in ("wiki", "paper"):
        raise InputError(f"no variant {variant!r}; there are tiny, wiki and paper.")
    data = (wiki("nq"), wiki("nq", "train"), wiki("hotpotqa", "train"))
    evaluation_data = (SETS["hotpotqa"], SETS["squad"])
    if variant == "paper":
        start = Sidr("hub:google-bert/bert-base-uncased")
        return TrainSidr(start, data, Bm25(), SidrTraining(evaluate_every=100), evaluation_data)
    update = Update(learning_rate=5e-5, warmup=10, temperature=25)
    training = SidrTraining(
        epochs=1, batch=32, microbatch=16, update=update, save_every=20, evaluate_every=44
    )
    return TrainSidr(SMALL, data, Bm25(), training, evaluation_data, evaluation_limit=40)
