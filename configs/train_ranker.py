"""ARS-RAG's ranker: RankNet over the rewrites of each question, from a file of labels.

    python -m experiments.run --config configs/train_ranker.py --config.labels=DIRECTORY \
        --workdir runs/ranker

DIRECTORY holds ``labels.jsonl`` (see `jaxrag.methods.ars.ranker.label_file`). By
``--config.label`` the labels are those of the model's word ("model", the default), of its
log-probabilities ("logprob") or of the gold passages ("gold"). The trained ranker lies in
``runs/ranker/ranker``, the table in ``runs/ranker/ranker.jsonl``.

Variants:

- ``tiny``: 4 steps of 8 questions; for tests.
- ``minilm`` (the default): all-MiniLM-L6-v2, batches of 16 questions, 8 epochs; for 2 CPU cores.
- ``paper``: bert-base-uncased from the hub with the paper's settings, batches of 64 and 100 epochs;
  for a GPU or TPU, not run by us yet.
"""

from __future__ import annotations

from jaxrag.methods.ars.ranker.job import TrainRanker
from jaxrag.methods.ars.ranker.settings import Training
from jaxrag.types import InputError


def get_config(variant: str = "minilm") -> TrainRanker:
    """The job of a variant.

    Raises:
      InputError: no such variant.
    """
    if variant == "tiny":
        settings = Training(steps=4, batch=8, microbatch=1, evaluate_every=2, save_every=2)
        return TrainRanker(training=settings, max_length=48)
    if variant == "minilm":
        settings = Training(
            epochs=8, batch=16, microbatch=2, warmup=10, evaluate_every=30, save_every=30
        )
        return TrainRanker(training=settings, max_length=96)
    if variant == "paper":
        return TrainRanker(
            checkpoint="hub:google-bert/bert-base-uncased",
            training=Training(evaluate_every=100),
        )
    raise InputError(f"no variant {variant!r}; there are tiny, minilm and paper.")
