"""Eight CPU devices for every test, set before JAX wakes up, and programs compiled once a session.

Many tests build the same small network anew; what one of them compiled, the next reads from a
folder that all processes of a session share. A bound on its size makes JAX lock it; without one, a
process could read what another has half written.
"""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = os.environ.get("XLA_FLAGS", "")
if "device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a worker has it from the process above it
    compiled = tempfile.mkdtemp(prefix="jaxrag-tests-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(4 * 2**30)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
