"""The shipped compose file on a container engine, once for all tests of a module."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.production.console import Console
from tests.production.engine import Stack, checkout, missing, prepared

logger = logging.getLogger(__name__)
HOST = "weir.test"
HTTPS_PORT = 8443
SETTINGS = {
    "WEIR_HOSTS": HOST,
    "WEIR_BIND": "127.0.0.1",
    "WEIR_HTTP_PORT": "8080",
    "WEIR_HTTPS_PORT": str(HTTPS_PORT),
    "NODE_MEMORY": "512mb",
    "CONTROL_MEMORY": "256mb",
    "JOB_SLOTS": "2",
}
PATIENCE_SECONDS = 420.0
ON_CONTAINERS = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.spark,
    pytest.mark.containers,
    pytest.mark.timeout(3600),
]


def until(condition, seconds: float, what: str):
    """The first true answer. Raises AssertionError with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def whole(stack: Stack) -> bool:
    found = stack.containers()
    return bool(found) and all(each.is_up() for each in found)


@contextmanager
def started(folder: Path, revision: str = "HEAD") -> Iterator[Stack]:
    """The whole stack of a commit, up and healthy; its volumes go with it."""
    if absent := missing():
        pytest.skip(absent)
    checkout(folder, revision)
    stack = prepared(folder, SETTINGS)
    stack.remove()
    with stack.asked_for_health():
        try:
            began = time.monotonic()
            stack.compose("up", "--detach")
            until(lambda: whole(stack), PATIENCE_SECONDS, f"every service up: {stack.containers()}")
            logger.info("compose up to healthy: %.0f s (90)", time.monotonic() - began)
            yield stack
        finally:
            for each in stack.containers():
                logger.info("%s", each)
                if not each.is_up():
                    logger.info("%s", stack.podman("logs", "--tail", "40", each.name, check=False))
            stack.remove()


@pytest.fixture(scope="module")  # it takes a core: no other module is measured beside it
def stack(tmp_path_factory):
    with started(tmp_path_factory.mktemp("production") / "weir") as stack:
        yield stack


@pytest.fixture(scope="module")
def console(stack):
    with Console.over_tls(stack, HOST, HTTPS_PORT) as console:
        yield console
