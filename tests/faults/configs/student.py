"""A training of a query writer; DIRECTORY is replaced by the directory of its files."""

from jaxrag.methods.errr.student import TrainQueryOptimizer
from jaxrag.training.student.student import NewT5
from jaxrag.training.student.training import StudentTraining

HERE = "DIRECTORY"


def get_config() -> TrainQueryOptimizer:
    new = NewT5(f"{HERE}/tokenizer", width=8, inner=8, heads=1, head_width=8, layers=1)
    how = StudentTraining(
        steps=4, batch=4, microbatch=4, learning_rate=3e-2, evaluate_every=2, save_every=2
    )
    return TrainQueryOptimizer(
        f"{HERE}/pairs",
        new=new,
        training=how,
        max_source=8,
        max_target=4,
        encoder=f"{HERE}/encoder",
        dtype="float32",
    )
