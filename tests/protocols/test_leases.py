"""Leases with fences: one holder at a time, greater numbers only, and none that has lost it does anything."""

from dataclasses import dataclass

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queues import keys
from tests.protocols.exploring import DEPTHS, SECONDS, age_keys, explore
from workers.coordination.leases import Lease

LASTS_SECONDS = 15
NAMES = ("one", "two")
CALLER = st.sampled_from(NAMES)


@dataclass
class Caller:
    """A process that takes the lease again and again; holds: what it was given last, heard of or not."""

    lease: Lease
    holds: int | None = None


class Leases(RuleBasedStateMachine):
    """Two callers, and a register that they write under their number, as rows of the database are."""

    def __init__(self, control: redis.Redis) -> None:
        super().__init__()
        control.flushall()
        self.control = control
        self.callers = {name: Caller(Lease(control, "loop:1", LASTS_SECONDS)) for name in NAMES}
        self.written, self.given = 0, 0  # the greatest number that was written, and that was given
        self.holder: str | None = None  # by the model
        self.left_seconds = 0

    def takes(self, name: str) -> int | None:
        """What the caller is answered, and the model with it."""
        caller = self.callers[name]
        fence = caller.lease.acquire(self.written)
        if self.holder is None:
            assert fence is not None and fence > max(self.given, self.written)
            self.given, self.holder, caller.holds = fence, name, fence
        elif self.holder == name:
            assert fence == caller.holds, "whoever holds it is told so, though it never heard of it"
        else:
            assert fence is None
        if self.holder == name:
            self.left_seconds = LASTS_SECONDS
        return fence

    def is_known_to(self, name: str) -> bool:
        """Whether the caller holds it and knows."""
        return self.holder == name and self.callers[name].lease.fence is not None

    @rule(name=CALLER)
    def takes_it(self, name: str) -> None:
        self.takes(name)

    @rule(name=CALLER)
    def takes_it_and_the_answer_is_lost(self, name: str) -> None:
        before = self.callers[name].lease.fence
        self.takes(name)
        self.callers[name].lease.fence = before if before == self.callers[name].holds else None

    @rule(name=CALLER)
    def holds_it_longer(self, name: str) -> None:
        held = self.is_known_to(name)
        assert self.callers[name].lease.renew() == held
        if held:
            self.left_seconds = LASTS_SECONDS

    @rule(name=CALLER)
    def gives_it_up(self, name: str) -> None:
        held = self.is_known_to(name)
        assert self.callers[name].lease.release() == held
        if held:
            self.holder = None

    @rule(name=CALLER)
    def writes_under_its_number(self, name: str) -> None:
        """Also one that was paused past its expiry tries: the greatest number wins."""
        fence = self.callers[name].lease.fence
        if fence is not None and fence > self.written:
            self.written = fence
        elif self.is_known_to(name):
            assert fence == self.written, "whoever holds it is never fenced out"

    @rule(name=CALLER)
    def is_overtaken(self, name: str) -> None:
        """What random steps come to too seldom: it is paused, and another holds the lease when it goes on."""
        self.takes(name)
        self.time_passes(LASTS_SECONDS + 1)
        self.takes(NAMES[1 - NAMES.index(name)])

    @rule(name=CALLER)
    def dies_and_is_started_again(self, name: str) -> None:
        self.callers[name] = Caller(Lease(self.control, "loop:1", LASTS_SECONDS))
        if self.holder == name:
            self.holder = "the dead"

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        age_keys(self.control, [keys.LEASE.build("loop:1")], seconds)
        self.left_seconds -= seconds
        if self.left_seconds <= 0:
            self.holder = None

    @rule()
    def the_server_comes_back_empty(self) -> None:
        """What was written stays in the database. What was only given it never gives again."""
        self.control.flushall()
        self.holder = None

    @invariant()
    def the_server_s_holder_is_the_model_s(self) -> None:
        assert self.control.exists(keys.LEASE.build("loop:1")) == (self.holder is not None)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_lease_has_one_holder_and_its_numbers_only_rise(control, depth):
    explore(lambda: Leases(control), depth)
