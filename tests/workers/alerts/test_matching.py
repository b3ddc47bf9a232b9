"""Matchers and causes: what means which alert, and what explains which."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.lifecycle.inhibition import EXPLAINS, LINGER_SECONDS, Party, find_causes
from workers.alerts.rules import rules

LABELS = {"rule": "queue-behind", "severity": "warning", "queue": "orders-eu"}


def matcher(label: str, operator: str, value: str) -> dict[str, str]:
    return {"label": label, "is": operator, "value": value}


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (("queue", "=", "orders-eu"), True),
        (("queue", "=", "orders"), False),
        (("queue", "~", "orders*"), True),
        (("queue", "~", "*-us"), False),
        (("queue", "!=", "sms"), True),
        (("node", "=", "n1"), False),
        (("node", "~", "*"), False),
        (("node", "!=", "n1"), True),
    ],
)
def test_a_matcher_means_what_it_says(row, holds):
    assert rules.matches([matcher(*row)], LABELS) == holds


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ("queue=alert", "matchers"),
        ([], "matchers"),
        ([{"label": "queue"}], "matchers[0]"),
        ([matcher("colour", "=", "red")], "matchers[0].label"),
        ([matcher("queue", ">", "a")], "matchers[0].is"),
        ([matcher("queue", "=", " ")], "matchers[0].value"),
        ([matcher("queue", "=", "a")] * 11, "matchers"),
    ],
)
def test_what_is_no_matcher_is_named(rows, field):
    with pytest.raises(BadInput) as refused:
        rules.read_matchers(rows, least=1)
    assert refused.value.field == field


def test_what_is_explained_hands_over_to_the_first_cause():
    lost = Party(1, "node_lost", "critical", {"node": "n1"})
    busy = Party(2, "node_toobusy", "warning", {"node": "n1"})
    queue = Party(3, "queue_wait", "warning", {"queue": "q"}, {"nodes": ["n1"]})
    other = Party(4, "queue_wait", "warning", {"queue": "p"}, {"nodes": ["n2"]})
    assert find_causes([lost, busy, queue, other]) == {2: 1, 3: 1}


def test_what_a_lost_node_has_explained_stays_below_it_while_its_backlog_is_worked_off():
    lost = Party(1, "node_lost", "critical", {"node": "n1"})
    back = replace(lost, is_clear=True)
    over = replace(back, ended_seconds=LINGER_SECONDS)
    behind = Party(2, "queue_wait", "warning", {"queue": "q"}, {"nodes": ["n2"]}, under=1)
    assert find_causes([back, behind]) == find_causes([over, behind]) == {2: 1}
    assert find_causes([back, replace(behind, under=None)]) == {}
    assert find_causes([lost, behind]) == {}  # it has nothing on the node, and waits all the same
    assert find_causes([replace(over, ended_seconds=LINGER_SECONDS + 1.0), behind]) == {}


@pytest.mark.parametrize("condition", ["pipeline_down", "pipeline_stalled", "pipeline_lag"])
def test_a_lost_node_explains_that_the_pipeline_which_reads_it_fails_and_what_that_explains(condition):
    lost = Party(1, "node_lost", "critical", {"node": "n1"})
    fails = Party(2, condition, "critical", {"pipeline": "main"}, {"nodes": ["n1", "n2"]})
    lags = Party(3, "pipeline_lag", "warning", {"pipeline": "main"}, {"nodes": ["n1", "n2"]})
    assert find_causes([lost, fails, lags]) == {2: 1, 3: 1}
    silent, elsewhere = replace(fails, touches={}), replace(fails, touches={"nodes": ["n2"]})
    assert find_causes([lost, silent]) == find_causes([lost, elsewhere]) == {}


@pytest.mark.parametrize("cause", ["order_unreached", "sensor_silent"])
def test_what_makes_the_loops_of_an_attached_plant_hold_explains_them_and_no_others(cause):
    unreached = Party(1, cause, "warning", {"plant": "east", "sensor": "jobs"})
    of_east = {"loop": "parallelism_joint/plant:east", "plant": "east"}
    blind, held = Party(2, "loop_stale", "warning", of_east), Party(3, "loop_held", "notice", of_east)
    others = Party(4, "loop_stale", "warning", {"loop": "x", "plant": "west"})
    ours = Party(5, "loop_stale", "warning", {"loop": "worker_rate/alert/n1", "queue": "alert"})
    explained = {2: 1, 3: 1} if cause == "order_unreached" else {2: 1}
    assert find_causes([unreached, blind, held, others, ours]) == explained


def test_one_budget_that_burns_is_one_incident_and_no_other_objective_s():
    def budget(number, condition, severity, objective="late"):
        return Party(number, f"budget_{condition}", severity, {"objective": objective})

    slow, spent = budget(3, "burn_slow", "notice"), budget(4, "spent", "warning")
    medium, fast = budget(2, "burn_medium", "warning"), budget(1, "burn_fast", "critical")
    other = budget(5, "burn_medium", "warning", "cheap")
    assert find_causes([slow, spent, medium, fast, other]) == {2: 1, 3: 1, 4: 1}
    assert find_causes([slow, spent, medium, other]) == {3: 2, 4: 2}
    assert find_causes([slow, spent]) == {}


def test_shedding_explains_that_its_queue_is_throttled_and_not_that_a_jobs_queue_is():
    shedding = Party(1, "shedding", "critical", {})
    throttled = {
        number: Party(number, "throttled", "warning", {"queue": queue}, {"kind": kind})
        for number, queue, kind in ((2, "logins", "pipeline"), (3, "orders", "jobs"))
    }
    assert find_causes([shedding, *throttled.values()]) == {2: 1}


def waiting(number, queue, condition="queue_wait", **touches):
    return Party(number, condition, "warning", {"queue": queue}, {"kind": "jobs", **touches})


def test_a_queue_whose_workers_fill_the_pool_explains_those_that_wait_for_it():
    slow, others = waiting(1, "mail"), [waiting(2, "orders", crowded_by="mail"), waiting(3, "video")]
    saturated = Party(4, "workers_saturated", "notice", {}, {"crowded_by": "mail"})
    assert find_causes([slow, *others, saturated]) == {2: 1, 4: 1}
    assert find_causes([waiting(1, "mail", "queue_latency"), *others]) == {2: 1}
    missing = Party(9, "workers_missing", "critical", {})
    assert find_causes([slow, *others, missing]) == {1: 9, 2: 9, 3: 9}, "whatever stops the workers comes first"


def test_a_destination_that_fails_explains_the_queues_whose_handlers_call_it_and_their_loops():
    failing = Party(1, "destination_failing", "warning", {"destination": "shop.example"}, {"queues": ["mail", "news"]})
    own = replace(waiting(2, "mail"), root="queue/mail", is_own=True)
    late = [own, waiting(3, "news", "queue_latency"), waiting(4, "mail", "loop_ineffective")]
    other, harm = waiting(5, "video"), waiting(6, "mail", "loop_harmful")
    assert find_causes([failing, *late, other, harm]) == {2: 1, 3: 1, 4: 1}
    assert find_causes([replace(failing, severity="notice"), waiting(2, "mail")]) == {}, "it hides nothing more severe"


def test_a_queue_that_falls_behind_explains_that_its_loop_is_at_its_limit_or_without_effect():
    slow, crowded, other = waiting(1, "mail"), waiting(2, "orders", crowded_by="mail"), waiting(3, "video")
    own = [waiting(4, "mail", "loop_ineffective"), waiting(5, "orders", "loop_saturated", crowded_by="mail")]
    elsewhere, harm = waiting(6, "news", "loop_ineffective"), waiting(7, "mail", "loop_harmful")
    assert find_causes([slow, crowded, other, *own, elsewhere, harm]) == {2: 1, 4: 1, 5: 1}


parties = st.lists(
    st.builds(
        Party,
        id=st.integers(1, 10**6),
        condition=st.sampled_from(sorted(CONDITIONS)),
        severity=st.sampled_from(["critical", "warning", "notice"]),
        labels=st.dictionaries(st.sampled_from(["node", "queue", "plant"]), st.sampled_from(["a", "b"])),
        touches=st.fixed_dictionaries(
            {"nodes": st.lists(st.sampled_from(["a", "b"])), "kind": st.sampled_from(["jobs", "pipeline", None])},
            optional={"crowded_by": st.sampled_from(["a", "b"])},
        ),
        ended_seconds=st.none() | st.floats(0, 300),
    ),
    unique_by=lambda party: party.id,
    max_size=8,
)


@settings(max_examples=60)
@given(parties)
def test_somebody_is_always_notified(found):
    """Whatever is open: of all open alerts that have a cause, the cause has none; and it is as grave."""
    grave = {"notice": 0, "warning": 1, "critical": 2}
    by_id = {party.id: party for party in found}
    explained = find_causes(found)
    for each, cause in explained.items():
        assert cause not in explained and cause != each
        assert grave[by_id[cause].severity] >= grave[by_id[each].severity]
        assert by_id[cause].condition in EXPLAINS
