"""Eight CPU devices for every test, set before JAX wakes up, and programs compiled once a process.

Many tests build the same small network anew; what one of them compiled, the next reads from a
folder of this process (two processes that share one may read what is half written).
"""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = os.environ.get("XLA_FLAGS", "")
if "device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()

import jax  # noqa: E402

compiled = tempfile.mkdtemp(prefix="jaxrag-tests-")
atexit.register(shutil.rmtree, compiled, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", compiled)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
