"""Trainings of bandits; DIRECTORY is replaced by the directory of their files."""

from jaxrag.methods.ars.bandit.job import TrainBandit
from jaxrag.methods.ars.bandit.settings import BanditTraining, LinUcb, NeuralUcb

HERE = "DIRECTORY"


def get_config() -> TrainBandit:
    return TrainBandit(
        (f"{HERE}/boolq",),
        arms=3,
        learner=NeuralUcb(width=8, beta=1.0, learning_rate=0.1),
        others=(LinUcb(),),
        training=BanditTraining(epochs=3, batch=7),
        seeds=1,
        workers=1,
    )
