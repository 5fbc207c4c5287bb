"""Eight CPU devices for every test, programs compiled once a session, memory given back by file.

With ``--quick-compilation`` programs are compiled with few optimisations: compiling takes most of a
test's time. `make test` does so, except for tests/engines: engines promise bit-identical answers.
All other runs, such as `make test-all` and `make parity`, compile programs as users' runs do.

Many tests build the same small network anew; what one of them compiled, the next reads from a
folder that all processes of a session share. Its size has no bound: with one, JAX locks the folder
and looks at all its files at each write, which takes longer than many compilations. So a process
may read what another has half written; JAX then warns, which is ignored, and compiles.

After the last test of a file, its loaded models are dropped. Compiled programs stay for the next
files, which need many of them again, until a process holds too much memory. What is imported before
the first test is kept out of garbage collection, which would take half a second each time.
"""

import atexit
import ctypes
import gc
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAXRAG_CACHE"] = "runs/cache"  # of each test's own directory, never the user's
# For the workers of pytest-xdist, which start with these: large buffers are returned to the system
# when they are freed. The peak of tests with SmolLM2 falls from 3.2 to 2.6 GB.
for name, value in (("ARENA_MAX", 2), ("MMAP_THRESHOLD_", 1 << 20), ("TRIM_THRESHOLD_", 1 << 20)):
    os.environ.setdefault(f"MALLOC_{name}", str(value))
flags = os.environ.get("XLA_FLAGS", "")
if "device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=8".strip()
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a worker has it from the process above it
    compiled = tempfile.mkdtemp(prefix="jaxrag-tests-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"

# Without LLVM's optimisations, and without the emitters that lower each fusion through MLIR.
FEW_OPTIMISATIONS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
MOST_MEMORY = 1.4  # GB that a process may hold between two files without a garbage collection


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option --quick-compilation."""
    parser.addoption("--quick-compilation", action="store_true", help="few optimisations by XLA")


def pytest_configure(config: pytest.Config) -> None:
    """Chooses how programs are compiled. JAX, not yet imported, reads it with its first program."""
    flags = os.environ["XLA_FLAGS"]
    if config.getoption("--quick-compilation") and FEW_OPTIMISATIONS not in flags:
        assert "jax" not in sys.modules
        os.environ["XLA_FLAGS"] = f"{flags} {FEW_OPTIMISATIONS}"


def pytest_collection_finish() -> None:
    """Modules live as long as the process: no later collection need look at their objects."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Gives memory back after the last test of a file."""
    if nextitem is None or nextitem.path != item.path:
        _release()


@pytest.fixture(scope="module")
def room() -> None:
    """Gives memory back before a file that needs much of it."""
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
    _collect()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as changed long ago; otherwise nothing of this moment would be kept."""
    monkeypatch.setattr("jaxrag.core.file_states._SETTLED", -1.0)


def _release() -> None:
    if loading := sys.modules.get("jaxrag.runs.loading"):
        loading.load_model.cache_clear()
        loading.open_index_over.cache_clear()
    if _held() > MOST_MEMORY:
        _collect()
    if (jax := sys.modules.get("jax")) and _held() > MOST_MEMORY:
        jax.clear_caches()
        _collect()


def _collect() -> None:
    gc.collect()
    if sys.platform == "linux":  # glibc keeps freed memory until it is asked for it
        ctypes.CDLL(None).malloc_trim(0)


def _held() -> float:
    """Memory that this process holds, in GB; where the system does not tell, the most it held."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e9
