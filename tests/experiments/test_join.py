"""Processes of a job join before any of them waits for what another builds."""

import subprocess
import sys
from pathlib import Path

from tests.training.processes import free_port

# The first process needs its devices to build something, for which the second waits; JAX starts
# the devices of several processes only together.
PROGRAM = """
import sys, time
from pathlib import Path

import jax

from jaxrag.experiments.run import join

process, port, built = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
join(f"localhost:{port},2,{process}")
if process == 0:
    built.write_text(str(jax.device_count()))
while not built.exists():
    time.sleep(0.05)
print(jax.device_count())
"""


def test_a_process_that_waits_for_an_index_does_not_keep_its_builder_waiting(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", PROGRAM]
    rest = [str(free_port()), str(tmp_path / "built")]
    processes = [
        subprocess.Popen([*command, str(i), *rest], stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    # both see the devices of both
    assert [process.returncode for process in processes] == [0, 0]
    assert said[0] == said[1]
    assert int(said[0]) % 2 == 0
