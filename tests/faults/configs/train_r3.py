"""A training of R3; DIRECTORY is replaced by the directory of its files."""

from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.methods.r3 import r3
from jaxrag.methods.r3.jobs import TrainR3
from jaxrag.methods.r3.settings import R3Training, Update
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader

HERE = "DIRECTORY"


def get_config() -> TrainR3:
    start = Sidr(f"{HERE}/sidr-0", m=5, top=6, query_length=16, passage_length=24)
    train, held_out = Folder(f"{HERE}/data", split="train"), Folder(f"{HERE}/data")
    reader = Reader(prompts=f"{HERE}/prompts.toml", answer_tokens=4, passage_tokens=12)
    training = R3Training(
        steps=4,
        batch=3,
        microbatch=3,
        warmup=0.5,
        update=Update(learning_rate=1e-3, top=6),
        save_every=2,
        evaluate_every=2,
    )
    return TrainR3(
        start,
        train,
        held_out,
        Local(f"{HERE}/model"),
        r3.Config(candidates=OnePath(n=3), select=Top(k=1), reader=reader),
        training,
        depth=6,
        cache=f"{HERE}/cache",
    )
