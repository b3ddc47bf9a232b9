"""A loop with nothing to decide writes one entry in twenty seconds, and none of its ticks is missed."""

from datetime import UTC, datetime, timedelta

import pytest

from common.stored_document import replace_fields
from tests.workers.loops import JOBS, ensured, jobs_topology
from workers.control import engine
from workers.control.kinds import worker_rate
from workers.control.ledger import ledger
from workers.control.parts.kind import REST_SECONDS
from workers.models import LedgerEntry
from workers.plants.memory import MemoryPlant
from workers.steering.overrides import set_override

pytestmark = pytest.mark.django_db
START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


class CalmPlant:
    """A plant on whose only container nothing waits, and its loop, second by second."""

    def __init__(self, control):
        self.control, self.second = control, 0
        self.plant = MemoryPlant(lambda: self.now.timestamp(), [("alert", "n1")])
        (self.loop,) = ensured(control, JOBS, jobs_topology(alert={"n1": 1_000}))
        # Where a rest of this loop begins: which loop of the database it is depends on the tests before.
        self.began = START - timedelta(seconds=(START.timestamp() + self.loop.pk) % REST_SECONDS)

    @property
    def now(self):
        return self.began + timedelta(seconds=self.second)

    def ticks(self, seconds=1):
        """What is written in so many seconds."""
        found = []
        for _ in range(seconds):
            found += engine.tick_due(self.plant, self.now, self.control)
            self.second += 1
        self.loop.refresh_from_db()
        return found


@pytest.fixture
def calm(control):
    return CalmPlant(control)


def test_it_writes_one_entry_in_so_long_and_says_that_it_ticked(calm):
    assert len(calm.ticks(70)) == 4
    assert calm.loop.ticked_at == calm.now - timedelta(seconds=1)
    assert calm.loop.decided_at == calm.loop.entries.latest("at").at < calm.loop.ticked_at
    assert ledger.find_last_entry(calm.loop).at == calm.loop.decided_at


def test_what_comes_is_decided_on_at_the_next_tick_and_replays(calm):
    calm.ticks(10)
    calm.plant.put("alert", "n1", 20_000)
    (entry,) = calm.ticks()
    assert entry.action["start"] >= 4
    assert "late_seconds" not in entry.observation
    assert all(ledger.replay(each).same for each in LedgerEntry.objects.all())


def test_it_decides_at_each_tick_until_the_last_worker_has_ended(calm):
    calm.plant.put("alert", "n1", 20_000)
    calm.ticks()
    assert len(calm.ticks(5)) == 5
    calm.plant.run("alert", "n1", 10**6)
    calm.ticks(2)
    assert calm.loop.at_rest and calm.ticks(5) == []


def test_what_a_person_sets_and_ends_is_recorded_at_once(calm, django_user_model):
    calm.ticks(5)
    owner = django_user_model.objects.create(username="ada")
    given = {"owner": owner, "reason": "a test", "now": calm.now, "minutes": 0.1}
    set_override(name="mode", value="hold", loop=calm.loop, **given)
    held = calm.ticks(6)
    assert [entry.mode for entry in held] == ["hold"] * 6
    (after, *_) = calm.ticks(2)
    assert after.mode == "auto"


@pytest.mark.parametrize("change", [{"state": "TOOBUSY"}, {"state": "OFFLINE"}, {"stale": True}])
def test_nobody_rests_at_a_node_that_is_not_well(calm, change):
    snapshot = calm.plant.observe()
    nodes = {name: replace_fields(row, **change) for name, row in snapshot.nodes.items()}
    assert worker_rate.is_at_rest(calm.loop.target, snapshot)
    assert not worker_rate.is_at_rest(calm.loop.target, replace_fields(snapshot, nodes=nodes))


def test_many_that_rest_do_not_decide_at_once(calm, django_assert_max_num_queries):
    calm.plant = MemoryPlant(lambda: calm.now.timestamp(), [(f"q{number}", "n1") for number in range(40)])
    ensured(calm.control, JOBS, jobs_topology(**{f"q{number}": {"n1": 1_000} for number in range(40)}))
    calm.ticks(2)
    assert [len(calm.ticks()) for _ in range(40)] == [2] * 40
    with django_assert_max_num_queries(30):
        calm.ticks()
