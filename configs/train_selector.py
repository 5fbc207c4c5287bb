"""ARS-RAG's selector: how many rewrites to keep, trained from stored rewards.

    python -m experiments.run --config configs/train_selector.py:sweep@tables/boolq,tables/nq \
        --workdir runs/selector

After the @ stand directories of reward tables, whose names differ. No language model is called.

Variants:

- ``tiny``: 3 epochs, 2 seeds, 1 lambda, every policy; for tests.
- ``paper``: 500 epochs in batches of 32, 5 seeds, the weights 3.0 - 0.2 k and the five lambdas of
  the appendix, whole embeddings; beside NeuralUCB Thompson sampling, epsilon-greedy and LinUCB.
- ``sweep``: the same schemes and seeds for NeuralUCB alone, with 50 hidden units on 32 principal
  axes of the embeddings: about a tenth of the work.
"""

from __future__ import annotations

from jaxrag.methods.ars.bandit.job import TrainSelector
from jaxrag.methods.ars.bandit.settings import EpsilonGreedy, LinUcb, NeuralUcb, Thompson, Training
from jaxrag.types import InputError


def get_config(variant: str = "paper") -> TrainSelector:
    """The job of a variant.

    Raises:
      InputError: no such variant, or no tables.
    """
    name, _, given = variant.partition("@")
    tables = tuple(path for path in given.split(",") if path)
    if name not in ("tiny", "paper", "sweep") or not tables:
        raise InputError(
            f"no variant {variant!r}; give tiny@DIRECTORY, paper@DIRECTORY or sweep@DIRECTORY with "
            "the directory of a reward table, or several with commas between them."
        )
    others = (Thompson(), EpsilonGreedy(), LinUcb())
    if name == "tiny":
        training = Training(epochs=3, dimensions=4)
        learner = NeuralUcb(width=8)
        return TrainSelector(tables, 10, learner, others, training, penalties=(0.02,), seeds=2)
    if name == "sweep":
        return TrainSelector(tables, learner=NeuralUcb(width=50), training=Training(dimensions=32))
    return TrainSelector(tables, others=others)
