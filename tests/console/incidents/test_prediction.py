"""The effect of a pause within a minute, computed from rates, handler times, and worker slots."""

from console.incidents.prediction import predict_pause
from tests.workers.snapshots import snapshot_of


def plant(slots=2, service_seconds=0.1, **changes):
    def queue(wait, waiting, service, arrivals, workers):
        return {
            "kind": "jobs", "wait_seconds": wait, "waiting_events": waiting, "service_seconds": service,
            "in_per_second": arrivals, "out_per_second": 1.0, "workers_at_once": workers,
        }  # fmt: skip

    queues = {"slow": queue(114.0, 137, 3.0, 1.0, 2.0), "alert": queue(78.0, 40, service_seconds, 0.5, 0.0), **changes}
    return snapshot_of({"queues": queues, "hosts": {"jobs@vm": {"role": "jobs", "slots": slots, "busy": 2}}})


def rows(snapshot, part="consumption"):
    return {row.name: (row.now, row.then) for row in predict_pause("slow", part, ["slow", "alert"], snapshot)}


def test_the_others_catch_up_and_the_paused_queue_grows():
    assert rows(plant()) == {
        "alert": ("78\u00a0s", "below 1 s"),
        "slow": ("114\u00a0s", "174\u00a0s, growing"),
        "Free worker slots": ("0 of 2", "1.9 of 2"),
    }


def test_work_that_takes_longer_than_the_slots_have_is_left():
    """70 events take 210 s, but the slots have 114 s: 46 % of 138 s is left."""
    predicted = rows(plant(service_seconds=3.0))
    assert predicted["alert"] == ("78\u00a0s", "63\u00a0s") and predicted["Free worker slots"] == ("0 of 2", "0.0 of 2")


def test_without_arrivals_a_queue_is_worked_off():
    """60 of its 137 events."""
    assert rows(plant(), "intake") == {"slow": ("114\u00a0s", "124\u00a0s")}
    few = {"kind": "jobs", "wait_seconds": 20.0, "waiting_events": 30, "out_per_second": 1.0}
    assert rows(plant(slow=few), "intake") == {"slow": ("20\u00a0s", "no event waits")}


def test_nothing_is_predicted_from_figures_that_are_missing():
    assert predict_pause("gone", "consumption", [], plant()) == []
    assert rows(plant(slots=0)) == {}
    assert rows(plant(slow={"kind": "jobs", "wait_seconds": 9.0, "waiting_events": 3})) == {}
    assert rows(plant(slow={"kind": "pipeline", "wait_seconds": 9.0})) == {}
    assert rows(plant(service_seconds=None))["alert"] == ("78\u00a0s", "unknown")
