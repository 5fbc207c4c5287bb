"""The scripts: ``python -m experiments.NAME``.

Importing JAX and the other packages takes seconds, and a minute on a busy machine. Python imports
this file before the script, so it says what is being done.
"""

import sys

if sys.argv[:1] == ["-m"]:  # Python's value while it looks for the script, and at no other time
    print("loading Python packages (JAX and others)", file=sys.stderr, flush=True)
