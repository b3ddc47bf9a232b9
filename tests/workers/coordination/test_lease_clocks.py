"""Leases on a control server whose clock is set back, on a real server with a clock of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.faults.preloaded import CLOCK, write_number
from tests.servers import Server, new_server
from tests.waiting import until
from workers.coordination.leases import Lease

HOUR_SECONDS, LEASE_SECONDS = 3600, 0.3


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Callable[[int], None]]]:
    """A server an hour ahead, and the function that sets its clock."""
    library, number = CLOCK.build(tmp_path), tmp_path / "clock"
    if library is None:
        pytest.skip("needs a C compiler (cc) for a clock of its own")
    write_number(number, HOUR_SECONDS)
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv(CLOCK.variable, str(number))
        server = new_server(tmp_path / "control")
    yield server, lambda seconds: write_number(number, seconds)
    server.close()


def test_a_lease_of_a_dead_holder_ends_in_time_after_the_clock_was_set_back(clocked) -> None:
    server, set_clock = clocked
    dead_fence = Lease(server.client(), "observer", LEASE_SECONDS).acquire()
    set_clock(0)
    contender = Lease(server.client(), "observer", LEASE_SECONDS)
    assert contender.acquire() is None  # the holder may live: it has not missed a renewal yet
    assert until(contender.acquire) > dead_fence


def test_a_living_holder_keeps_its_lease_after_the_clock_was_set_back(clocked) -> None:
    server, set_clock = clocked
    holder = Lease(server.client(), "observer", 60.0)
    fence = holder.acquire()
    set_clock(0)
    assert Lease(server.client(), "observer", 60.0).acquire() is None
    assert holder.renew() and holder.acquire() == fence
