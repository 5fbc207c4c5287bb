"""A training of ARS-RAG's ranker; DIRECTORY is replaced by the directory of its files."""

from jaxrag.methods.ars.ranker.job import TrainRanker
from jaxrag.methods.ars.ranker.training import RankerTraining

HERE = "DIRECTORY"


def get_config() -> TrainRanker:
    how = RankerTraining(
        steps=4,
        unit="questions",
        batch=8,
        microbatch=2,
        learning_rate=5e-3,
        evaluate_every=2,
        save_every=2,
    )
    labels, start = f"{HERE}/labels", f"{HERE}/bert"
    return TrainRanker(labels, start, max_length=16, held_out=0.25, training=how)
