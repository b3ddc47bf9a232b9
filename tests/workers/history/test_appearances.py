"""What came, left or jumped is found from few snapshots, near to when it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.snapshots import snapshot_of
from workers.documents.snapshot import Snapshot
from workers.history import appearances
from workers.history.appearances import MAX_READS, find_in_snapshots

UNTIL = 1_790_000_000.0
SINCE = UNTIL - 3 * 3_600


class Reads:
    """A plant whose producers, nodes and restarts are functions of time; counts how often it is read."""

    def __init__(self, **of: object) -> None:
        self.of, self.count = of, 0

    def __call__(self, at: float) -> Snapshot:
        self.count += 1
        ago = UNTIL - at
        producers = {"app": {"in_per_second": 100.0 if ago > self.of.get("rose", -1) else 900.0}}
        if ago <= self.of.get("came", -1):
            producers["new"] = {"in_per_second": 50.0}
        nodes = {"n1": {"state": "NORMAL"}}
        nodes["n2"] = {"state": "OFFLINE", "stale": True} if ago <= self.of.get("died", -1) else nodes["n1"]
        restarts = {"count": 4 if ago <= self.of.get("restarted", -1) else 3}
        applications = {"flow": {"state": "running", "restarts": restarts}}
        document = {"at": at, "producers": producers, "nodes": nodes}
        return snapshot_of({**document, "pipeline": {"applications": applications}})


def test_a_past_that_is_not_over_is_read_anew(tmp_path, monkeypatch):
    reads = Reads()
    monkeypatch.setattr(appearances, "snapshot_at", lambda data, at: reads(at))
    for seconds, count in ((10.0, 2), (200.0, 1)):
        before = reads.count
        for _ in range(2):
            appearances.list_appearances(tmp_path / str(count), SINCE, UNTIL, lambda at=seconds: UNTIL + at)
        assert reads.count - before == count * 10, "twice, or once"


@given(st.floats(1, 3 * 3_600 - 1))
def test_each_is_found_at_an_instant_near_to_its_own(ago):
    reads = Reads(came=ago, rose=ago, died=ago)
    found = {each.part: each for each in find_in_snapshots(reads, SINCE, UNTIL)}
    assert {part: each.how for part, each in found.items()} == {
        "producer/new": "came",
        "producer/app": "rose",
        "node/n2": "left",
    }
    for each in found.values():
        assert 0 <= each.at - (UNTIL - ago) <= max(5.0, ago / 6)
    assert found["producer/app"].before == 100 and found["producer/app"].after == 900
    assert reads.count <= MAX_READS


def test_a_restart_is_one_whose_count_rose():
    assert [(each.part, each.how) for each in find_in_snapshots(Reads(restarted=300), SINCE, UNTIL)] == [
        ("application/flow", "restarted")
    ]


def test_what_publishes_what_an_application_finds_is_none():
    def read(at):
        names = ("app", "pipeline-flow") if at > UNTIL - 600 else ("app",)
        return snapshot_of({"at": at, "producers": {name: {"in_per_second": 50.0} for name in names}})

    assert find_in_snapshots(read, SINCE, UNTIL) == []


@pytest.mark.parametrize(("rate", "how"), [(119.0, []), (60.0, []), (40.0, ["fell"]), (300.0, ["rose"])])
def test_what_wavers_has_not_jumped(rate, how):
    def read(at):
        per_second = rate if at > UNTIL - 30 else 110.0
        return snapshot_of({"producers": {"app": {"in_per_second": per_second}}})

    assert [each.how for each in find_in_snapshots(read, SINCE, UNTIL)] == how


def test_what_is_first_seen_while_a_plant_starts_is_no_news_and_what_comes_later_is():
    """Its first snapshot is 20 minutes old; the tenth minute has a new producer."""

    def read(at):
        if at < UNTIL - 1_200:
            return None
        came = {"app": -1_195.0, "host": -1_100.0, "wild": -300.0}
        per_second = 5.0 if at < UNTIL - 1_150 else 50.0  # it starts
        return snapshot_of(
            {"producers": {name: {"in_per_second": per_second} for name, ago in came.items() if at >= UNTIL + ago}}
        )

    assert [(each.part, each.how) for each in find_in_snapshots(read, SINCE, UNTIL)] == [("producer/wild", "came")]
    young = [(each.part, each.how) for each in find_in_snapshots(read, SINCE, UNTIL - 1_000)]
    assert young == [], "nobody had looked before"
