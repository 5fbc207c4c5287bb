"""What a run ran on: versions, devices and commit; no paths, no user, no environment variables."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import jaxrag

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scann", "transformers", "tokenizers", "gguf", "vllm")


def describe_environment() -> dict[str, Any]:
    """Plain JSON of the software and devices of this process, and when it started."""
    installed = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    devices = [f"{device.platform}:{device.device_kind}" for device in jax.devices()]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "jaxrag": jaxrag.__version__,
        "commit": git_commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "devices": {kind: devices.count(kind) for kind in sorted(set(devices))},
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
    }


def git_commit() -> str | None:
    """Commit of the checkout that jaxrag runs from, "+changes" if edited; None without one."""
    home = Path(jaxrag.__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(home), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout

    try:
        if not git("ls-files", "jaxrag/__init__.py"):
            return None  # installed inside some other project's checkout
        commit = git("rev-parse", "HEAD").strip()
        return commit + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None
