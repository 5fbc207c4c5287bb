"""R3: SiDR trained by what its passages do to SmolLM2's answers about the World Factbook.

    python -m experiments.run --config configs/train_r3.py:factbook --workdir runs/r3

Variants:

- ``tiny``: 3 countries, 4 steps; for tests.
- ``factbook``: 100 questions about 40 countries of the training split; evaluated on 100 of the
  quickstart's questions, whose countries are others.
- ``hotpotqa``: the 100 training questions of that folder below ``$JAXRAG_DATA``, over the folder
  ``wiki_pool``; the small model reads that hardly at all.
- ``paper``: the paper's settings, from a trained SiDR, ``--config.start.checkpoint=DIRECTORY``,
  with Llama-3-8B from the hub, on the folder nq; for a GPU or TPU, not run by us yet.

Ablations of the paper are settings: ``--config.training.phases=offline`` or "online";
``--config.training.update.objective=kl``; ``--config.search=beta`` or "reindexed";
``--config.training.rules.sampling=B`` or "C"; ``--config.model.checkpoint`` another model.
"""

from __future__ import annotations

from configs.parts import SETS, SMALL, wiki
from configs.train_sidr import SMALL as START
from jaxrag.data.factbook.build import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods.r3 import r3
from jaxrag.methods.r3.jobs import TrainR3
from jaxrag.methods.r3.settings import R3Training, Update
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.types import InputError


def get_config(variant: str = "factbook") -> TrainR3:
    """The job of a variant.

    Raises:
      InputError: no such variant.
    """
    method = r3.Config(reader=SMALL)
    update = Update(learning_rate=5e-5, temperature=25)
    if variant == "tiny":
        data = Factbook(split="train", countries=3)
        training = R3Training(
            steps=4, batch=4, microbatch=2, update=update, evaluate_every=2, save_every=2
        )
        return TrainR3(START, data, Factbook(countries=3), Local(), method, training,
                       depth=6, limit=12, evaluation_limit=6)  # fmt: skip
    if variant == "paper":
        model = Local("hub:meta-llama/Meta-Llama-3-8B")
        return TrainR3(Sidr(""), wiki("nq", "train"), SETS["nq"], model, r3.Config(),
                       R3Training(evaluate_every=100))  # fmt: skip
    if variant not in ("factbook", "hotpotqa"):
        raise InputError(f"no variant {variant!r}; there are tiny, factbook, hotpotqa and paper.")
    training = R3Training(
        steps=60, batch=16, microbatch=8, update=update, evaluate_every=15, save_every=10
    )
    if variant == "hotpotqa":
        return TrainR3(START, wiki("hotpotqa", "train"), SETS["hotpotqa"], Local(), method,
                       training, depth=10, evaluation_limit=100)  # fmt: skip
    return TrainR3(
        START,
        Factbook(split="train", countries=40),
        Factbook(countries=40),
        Local(),
        method,
        training,
        depth=10,
        limit=100,
        evaluation_limit=100,
    )
