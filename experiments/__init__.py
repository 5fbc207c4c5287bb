"""The scripts: ``python -m experiments.NAME``, or ``jaxrag NAME``.

Importing JAX and the other packages takes seconds, and a minute on a busy machine. Python imports
this file before a script, so it says what is being done.
"""

import functools
import sys


@functools.cache
def say_loading() -> None:
    """Says, once in a process, that packages are being imported."""
    print("loading Python packages (JAX and others)", file=sys.stderr, flush=True)


if sys.argv[:1] == ["-m"]:  # Python's value while it looks for the script, and at no other time
    say_loading()
