"""The solver (HiGHS, through scipy.optimize), with its messages kept off standard output.

Some messages of HiGHS ignore its own switch and go to the C library's standard output, which belongs to a command's
JSON document. While a solver runs, file descriptor 1 therefore points to standard error.
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
# The descriptor belongs to the process: two threads that each restore what they found could leave it redirected.
_TURNED, MAX_WAIT_SECONDS = threading.Lock(), 10.0
_C = ctypes.CDLL(None)


def minimise(
    cost: object,
    integrality: object,
    bounds: "scipy.optimize.Bounds",
    constraints: "scipy.optimize.LinearConstraint",
    options: dict[str, Any],
) -> "scipy.optimize.OptimizeResult":
    """Minimize cost·x with scipy.optimize.milp; integrality is 1 where x is whole."""
    with redirect_standard_output():
        return scipy.optimize.milp(
            cost, integrality=integrality, bounds=bounds, constraints=constraints, options=options
        )


def minimise_linear(
    cost: object,
    at_most: "tuple[scipy.sparse.csr_array, object]",
    equal: "tuple[scipy.sparse.csr_array, object]",
    bounds: object,
    options: dict[str, Any],
) -> "scipy.optimize.OptimizeResult":
    """Minimize cost·x with scipy.optimize.linprog, which also returns the dual values.

    at_most, equal: matrix and right side of A·x ≤ b and of A·x = b. bounds: rows of lowest and highest x.
    """
    with redirect_standard_output():
        return scipy.optimize.linprog(
            cost, *at_most, *equal, bounds=bounds, method="highs", options=options, integrality=None
        )


@contextmanager
def redirect_standard_output() -> Iterator[None]:
    """Send what C code prints to standard error; if either descriptor is closed, change nothing.

    While another thread's solver hangs, its redirection stays, and other solvers run without one of their own.
    """
    if not _TURNED.acquire(timeout=MAX_WAIT_SECONDS):
        yield
        return
    try:
        kept = _redirect_output()
        try:
            yield
        finally:
            if kept is not None:
                # Into a pipe, the C library prints only when its buffer is full, or at exit.
                _C.fflush(None)
                os.dup2(kept, STANDARD_OUTPUT)
                os.close(kept)
    finally:
        _TURNED.release()


def _redirect_output() -> int | None:
    """Return a descriptor of the previous standard output, or None if there was nothing to redirect."""
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
