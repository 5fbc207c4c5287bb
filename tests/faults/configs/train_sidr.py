"""A training of SiDR; DIRECTORY is replaced by the directory of its files."""

from jaxrag.data.folder import Folder
from jaxrag.methods.r3.jobs import TrainSidr
from jaxrag.methods.r3.settings import SupervisedTraining, Update
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr

HERE = "DIRECTORY"


def get_config() -> TrainSidr:
    start = Sidr(f"{HERE}/sidr-0", m=20, top=6, query_length=16, passage_length=24)
    training = SupervisedTraining(
        epochs=2,
        batch=3,
        microbatch=3,
        update=Update(learning_rate=1e-3, top=6),
        save_every=2,
        evaluate_every=2,
    )
    train, held_out = Folder(f"{HERE}/data", split="train"), Folder(f"{HERE}/data")
    return TrainSidr(start, (train,), Bm25(), training, (held_out,), depth=6, cache=f"{HERE}/cache")
