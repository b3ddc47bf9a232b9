"""The shop of ./run --demo: what it creates once, its daily rhythm, its attack, and the modes that it sets once."""

import pytest
from django.utils import timezone

from common.stored_document import encode_document
from console.embedded import launch
from console.management.commands import shop
from console.management.commands.weir import find_acting_user
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.ladder import SHED
from queues import keys
from queues.models import Container, Node, Queue
from queues.publishing.streams import ROUNDS_PER_SECOND
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules.rules import ensure_rules
from workers.control.kinds import ladder
from workers.models import Loop, PipelineVersion
from workers.pipeline.declaration.declaration import parse_application_text

GRADES = 8


@pytest.fixture
def actor(people):
    for name in ("n1", "n2", "n3"):
        Node.objects.create(name=name, url="redis://127.0.0.1:1/0")
    ensure_rules(timezone.now())
    alert = Queue.objects.create(name="alert", kind="jobs")
    Container.objects.create(queue=alert, node=Node.objects.get(name="n1"), points=1000)
    return find_acting_user(None)


def test_the_shop_is_opened_once_and_stays_as_people_change_it(actor, control):
    shop.open_shop(actor)
    assert set(Queue.objects.values_list("name", flat=True)) == {"alert", "orders", "payments", "logins"}
    points = dict(Container.objects.filter(queue__name="logins").values_list("node__name", "points"))
    assert points == {"n1": 450, "n2": 275, "n3": 275}
    assert AlertRule.objects.get(name="shedding").severity == "warning"
    Queue.objects.filter(name="orders").update(priority=9)
    shop.open_shop(actor)
    assert Queue.objects.get(name="orders").priority == 9
    assert PipelineVersion.objects.filter(application="shop").count() == 1


def test_the_rate_follows_a_day_of_24_minutes(actor):
    stream = next(each for each in shop.build_streams() if each.type == "order" and each.producer == "web")

    def rate(at):
        return sum(stream.count_due(at) for _ in range(10 * ROUNDS_PER_SECOND)) / 10

    assert [round(rate(minutes * 60)) for minutes in (0, 6, 12, 18, 24)] == [40, 70, 40, 10, 40]


def build_snapshot(pattern_seconds: float, bots_per_second: float, ladder: dict):
    """The shop as the observer sees it, on a host whose matchers take this long for an event."""
    streams = [stream for stream in shop.build_streams() if stream.queue == shop.LOGINS]
    usual = {stream.type: stream.usual_per_second for stream in streams}
    types = {"failed": usual["failed"] + bots_per_second, "login": usual["login"]}
    arriving = sum(usual.values()) + bots_per_second
    names = [f"takeover-{failures}" for failures in range(1, GRADES + 1)]
    pattern = {"operator": shop.OPERATOR, "sheddable": True, "seconds": pattern_seconds, "types": types}
    application = {
        "state": "running",
        "queues": [shop.LOGINS],
        "in_per_second": arriving,
        "patterns": dict.fromkeys(names, pattern),
        "operators": {shop.OPERATOR: {"tasks": 2, "parallelism": 2, "patterns": names}},
    }
    throttleable = {"accounts": {"queues": {shop.LOGINS: arriving - bots_per_second}}}
    return snapshot_of(
        {
            "at": 1_000.0,
            "queues": {shop.LOGINS: {"kind": "pipeline", "in_per_second": arriving}},
            "pipeline": {"state": "running", "applications": {shop.APPLICATION: application}},
            "producers": {**throttleable, "bots": {"queues": {shop.LOGINS: bots_per_second}}},
            "loops": {f"ladder/{shop.LOGINS}": {"law": "ladder", "mode": "auto", "terms": ladder}},
        }
    )


@pytest.mark.parametrize("pattern_seconds", [12e-6, 50e-6], ids=["idle host", "busy host"])
def test_each_attack_makes_the_ladder_shed_within_ten_minutes_and_shedding_ends_with_it(pattern_seconds):
    parameters = catalog.read_parameters(LADDER, {"unmet_decisions": 3})
    state, terms, bots, levels = start_state(LADDER, parameters), {}, 0.0, {}
    for seconds in range(0, round(2 * shop.DAY_SECONDS), 5):
        snapshot = build_snapshot(pattern_seconds, bots, terms)
        bots = shop.compute_attack_rate(snapshot) if shop.is_attack_due(seconds) else 0.0
        observation = ladder.measure_target({"queue": shop.LOGINS}, snapshot, None, 1_000.0).observation
        state, decision = decide_next(LADDER, parameters, state, observation)
        terms = {"rung": decision.terms["rung"], "closed_share": decision.terms.get("closed_share", 0.0)}
        levels[seconds] = terms["rung"]
    for day in (0.0, shop.DAY_SECONDS):
        shed = [at - day for at, level in levels.items() if level == SHED and day <= at < day + shop.DAY_SECONDS]
        assert shed and min(shed) < 600 and max(shed) < shop.ATTACK_ENDS + 30
    assert levels[0] == levels[round(shop.DAY_SECONDS)] == 0


def test_bots_send_failed_logins_during_an_attack_only_and_do_not_wait(control):
    bots = shop.build_attack()
    attack = shop.Attack(bots, control)
    control.set(keys.SNAPSHOT, encode_document(build_snapshot(25e-6, 0.0, {})))
    attack.step(shop.ATTACK_BEGINS)
    assert bots.per_second == pytest.approx(1.5 * 2 / (GRADES * 25e-6))
    assert (bots.type, bots.when_throttled) == ("failed", "ignore")
    attack.step(shop.ATTACK_ENDS)
    assert bots.per_second == 0.0


def test_each_loop_of_the_shop_is_set_to_auto_once(actor, control):
    for law, target in (("ladder", {"queue": "orders"}), ("ladder", {"queue": "alert"})):
        Loop.objects.create(name=f"{law}/{target['queue']}", law=law, target=target, mode="advise")
    starter = shop.LoopStarter(actor)
    starter.step()
    assert dict(Loop.objects.values_list("name", "mode")) == {"ladder/orders": "auto", "ladder/alert": "advise"}
    Loop.objects.update(mode="hold")
    starter.step()
    assert set(Loop.objects.values_list("mode", flat=True)) == {"hold"}


@pytest.mark.parametrize("grades", [shop.MIN_GRADES, shop.MAX_GRADES])
def test_the_application_of_the_shop_is_valid(grades, tmp_path):
    application = parse_application_text(shop.build_declaration(grades), tmp_path)
    assert application.name == shop.APPLICATION
    assert [len(operator.patterns) for operator in application.graph.operators] == [grades]


def test_the_number_of_patterns_fits_the_host():
    assert shop.MIN_GRADES <= shop.choose_grades() <= shop.MAX_GRADES


def test_the_demo_has_a_data_folder_of_its_own_unless_one_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("WEIR_DATA", "")
    assert launch.parse_arguments(["--demo"]).data == launch.parse_arguments([]).data / "demo"
    assert launch.parse_arguments(["--demo", "--data", str(tmp_path)]).data == tmp_path
