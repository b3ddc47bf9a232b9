"""Every hand on the plant is counted: whoever looks at the strip knows that something is not as usual."""

from tests.workers.snapshots import snapshot_of
from workers.documents.pipeline import PipelineOrder
from workers.snapshot.health import list_manual_changes


def said(plant: dict | None = None, **given: dict) -> list[tuple[str, str, str]]:
    found = list_manual_changes(snapshot_of(plant or {}), given.get("caps", {}), given.get("orders", {}))
    return [(hand.kind, hand.of, hand.owner) for hand in found]


def test_an_application_that_a_person_stopped_is_one_until_it_is_started():
    stopped = PipelineOrder(stopped=True, by="anna", reason="a new disk", at=1.0)
    assert said(orders={"performance": stopped}) == [("stop", "application/performance", "anna")]
    assert said(orders={"performance": PipelineOrder(restart=3, by="anna")}) == []


def test_what_ends_soonest_stands_first():
    by = {"owner": "anna", "reason": "a test"}
    cpu, load = {**by, "value": 3.0, "until_seconds": 90.0}, {**by, "value": 2.0, "until_seconds": 40.0}
    row = {"controls": {"held_criteria": {"cpu": cpu, "load": load}}}
    pipeline = {"applications": {"performance": row}}
    plant = {"at": 10.0, "pipeline": pipeline, "nodes": {"n1": {"drained": True}}}
    found = list_manual_changes(snapshot_of(plant), {}, {})
    assert [hand.value for hand in found] == ["load = 2", "cpu = 3", "accepts no points"]
