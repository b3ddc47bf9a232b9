"""Alerts of error budgets: from replayed minutes to a rule that fires."""

from datetime import UTC, datetime

import pytest

from common.stored_document import convert_to_plain
from tests.workers.alerts.checks import START
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.lifecycle.models import Alert, Delivery
from workers.alerts.rules.rules import FIRST_RULES, ensure_rules
from workers.objectives.book import ObjectiveBook
from workers.objectives.definitions import define
from workers.objectives.error_budget import PAIRS
from workers.objectives.models import ObjectiveMinute

NOW = datetime.fromtimestamp(START, UTC)
RULES = {"fast": "budget-burns-fast", "medium": "budget-burns", "slow": "budget-burns-slowly"}


def replayed(bad_minutes: int, minutes: int, share: float = 1.0, **more: int) -> dict[str, object]:
    """The snapshot after so many counted minutes, the last of which were bad by a share."""
    fields = {"kind": "queue", "subject": "alert", "condition": "wait_seconds <= 30", "target": 0.99}
    row = define("late", {**fields, **more}, None, NOW)
    last = int(START // 60)
    ObjectiveMinute.objects.bulk_create(
        ObjectiveMinute(objective=row, minute=last - age, bad=60.0 * share if age <= bad_minutes else 0.0, total=60.0)
        for age in range(1, minutes + 1)
    )
    snapshot = snapshot_of({"at": START, "queues": {"alert": {"wait_seconds": None}}})
    return {"late": convert_to_plain(ObjectiveBook().step(snapshot)["late"])}


@pytest.mark.parametrize(
    ("bad_minutes", "minutes", "share", "firing"),
    [
        (0, 600, 1.0, set()),
        # 20 bad minutes of an hour: 33 times; of 6 h 5.6 times, which is below 6 but more than once.
        (20, 600, 1.0, {"fast", "slow"}),
        (60, 600, 1.0, {"fast", "medium", "slow"}),
        # Twice as much as may be, for ten hours: nobody is called at once.
        (600, 600, 0.02, {"slow"}),
        (600, 600, 0.009, set()),
    ],
)
def test_each_pair_of_windows_fires_where_both_of_them_burn(looks, bad_minutes, minutes, share, firing):
    ensure_rules(NOW)
    looks.snapshot["objectives"] = replayed(bad_minutes, minutes, share)
    looks.pass_seconds(10)
    fired = set(Alert.objects.filter(state="firing").values_list("rule_name", flat=True))
    assert fired & set(RULES.values()) == {RULES[pair] for pair in firing}


def test_a_budget_that_burns_fast_is_one_incident_and_what_goes_on_after_it_notifies(looks):
    ensure_rules(NOW)
    looks.snapshot["objectives"] = replayed(60, 600)
    looks.pass_seconds(10)
    budgets = Alert.objects.filter(condition__startswith="budget_")
    assert [each.rule_name for each in budgets.filter(under=None)] == [RULES["fast"]] and budgets.count() == 3
    assert not Delivery.objects.filter(alert__rule_name=RULES["medium"]).exists()
    looks.snapshot["objectives"]["late"]["burn"]["fast"] = 0.0
    looks.pass_seconds(60, every_seconds=10)
    looks.pass_seconds(1_640, every_seconds=164)
    assert not budgets.filter(resolved_at__isnull=True, under=None).exists(), "it is the same outage still"
    looks.pass_seconds(300, every_seconds=10)
    (cause,) = budgets.filter(resolved_at__isnull=True, under=None)
    assert cause.rule_name == RULES["medium"] and cause.deliveries.exists()


def test_an_outage_that_is_over_calls_once_however_long_it_stays_in_longer_windows(looks):
    ensure_rules(NOW)
    looks.snapshot["objectives"] = replayed(60, 600)
    looks.pass_seconds(10)
    burn = looks.snapshot["objectives"]["late"]["burn"]
    for pair, seconds in (("fast", 1_500), ("medium", 19_000), ("slow", 600)):
        burn[pair] = 0.0
        looks.pass_seconds(60, every_seconds=10)
        looks.pass_seconds(seconds, every_seconds=seconds / 10)
    said = Delivery.objects.filter(kind="firing").exclude(state="dropped")
    assert {each.alert.rule_name for each in said} == {RULES["fast"]}


def test_the_shipped_rules_fire_at_the_rates_of_their_pairs():
    for pair in PAIRS:
        rule = FIRST_RULES[RULES[pair.name]]
        assert (rule["condition"], rule["threshold"]) == (f"budget_burn_{pair.name}", pair.rate)


def test_a_reading_says_the_rate_its_windows_and_what_is_left():
    status = {"target": 0.999, "window_days": 30, "bad": 6.0, "burn": {"fast": 15.25}}
    status["window_budget"] = 10.0
    snapshot = snapshot_of({"at": START, "objectives": {"late": status}})
    [reading] = CONDITIONS["budget_burn_fast"].read(Evidence(now=START, snapshot=snapshot), 600.0)
    assert (reading.labels, reading.value) == ({"objective": "late"}, 15.25)
    assert reading.sentence == (
        "Objective late: the error budget burns at 15.2 times the allowed rate over 1 h and 5 min."
        " 40 % of the 30-day budget is left."
    )
