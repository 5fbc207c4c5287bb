"""A training of a query writer by PPO; DIRECTORY is replaced by the directory of its files."""

from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.methods.errr import rrr
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.methods.errr.queries import RRR, StudentInput, Trained
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.training.ppo.step import PPOTraining

HERE = "DIRECTORY"


def get_config() -> TrainRrr:
    method = rrr.Config(
        Trained(StudentInput(RRR, context=False), most=3),
        Search(m=2, merge="round_robin", read=2),
        reader=Reader(prompts="errr_small"),
    )
    train, held_out = Folder(f"{HERE}/data", split="train"), Folder(f"{HERE}/data")
    run = Run(method, train, Local(f"{HERE}/model"), Bm25(), cache=f"{HERE}/cache")
    how = PPOTraining(
        steps=4, rollouts=2, batch=2, passes=1, learning_rate=1e-2, evaluate_every=2, save_every=2
    )
    return TrainRrr(
        run,
        held_out,
        f"{HERE}/student",
        worth=Worth(exact_match=0.0, f1=0.0, gold=True),
        training=how,
        max_source=8,
        max_target=4,
        dtype="float32",
    )
