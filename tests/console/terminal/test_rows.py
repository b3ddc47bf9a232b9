"""What a terminal lists, and what it offers to do."""

from console.terminal.rows import HOLD, build_incident_rows, build_loop_rows, build_worst_rows
from tests.workers.snapshots import snapshot_of

LOOP = {"id": 7, "law": "flow", "target": {"application": "flow"}, "reason": "nothing to do"}
ALERT = {"severity": "critical", "title": "A node is lost", "since": 90.0}


def test_an_alert_that_another_explains_is_no_incident_of_its_own():
    alerts = [{**ALERT, "id": 4}, {**ALERT, "id": 5, "under": 4, "quiet": "explained"}]
    assert [each.incident for each in build_incident_rows(snapshot_of({"alerts": alerts}), 100.0)] == [4]


def test_a_loop_that_is_held_is_not_offered_to_be_held():
    for mode, offered in (("auto", {HOLD}), ("hold", set())):
        snapshot = snapshot_of({"at": 100.0, "loops": {"flow/flow": {**LOOP, "mode": mode}}})
        rows = [*build_loop_rows(snapshot, 100.0), *build_worst_rows(snapshot, 100.0)]
        found = [set(each.acts) for each in rows if each.key in ("flow/flow", "loop/flow/flow")]
        assert found and all(each == offered for each in found)
