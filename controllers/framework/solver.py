"""The call of the solver (HiGHS, by scipy.optimize.milp), with what it prints kept off standard output.

Some of HiGHS' messages ignore its own switch and go to the C library's standard output, where a command's one
JSON document goes. While a solver runs, file descriptor 1 therefore leads to standard error.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import scipy

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
# The descriptor belongs to the process: two threads that each put back what they found could leave it turned.
_TURNED = threading.Lock()
_C = ctypes.CDLL(None)


def minimise(
    cost: Any,
    integrality: Any,
    bounds: "scipy.optimize.Bounds",
    constraints: "scipy.optimize.LinearConstraint",
    options: dict[str, Any],
) -> "scipy.optimize.OptimizeResult":
    """scipy.optimize.milp's result: minimise cost·x, integrality 1 where x is whole."""
    with printing_to_standard_error():
        return scipy.optimize.milp(
            cost, integrality=integrality, bounds=bounds, constraints=constraints, options=options
        )


@contextmanager
def printing_to_standard_error() -> Iterator[None]:
    """What C code prints in here goes to standard error; where either is closed nothing is changed."""
    with _TURNED:
        kept = _turn()
        try:
            yield
        finally:
            if kept is not None:
                # Into a pipe the C library prints only when its buffer is full, or at the very end.
                _C.fflush(None)
                os.dup2(kept, STANDARD_OUTPUT)
                os.close(kept)


def _turn() -> int | None:
    """A descriptor of where standard output led, or None when there was nothing to turn."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    _C.fflush(None)
    try:
        kept = os.dup(STANDARD_OUTPUT)
    except OSError:
        return None
    try:
        os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    except OSError:
        os.close(kept)
        return None
    return kept
