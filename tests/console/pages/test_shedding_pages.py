"""The pages of shedding and of the ladder: what is dropped and why, what if, and a queue that never sheds."""

import pytest
from django.utils import timezone

from console.models import AuditEntry
from queues import keys
from queues.models import Queue
from queues.topology import QueueSpec, Topology
from tests.console.page_form import form_of
from tests.console.pipeline_sample import DECLARATION
from tests.console.rows import held as hold_value
from tests.workers.control.kinds.test_shedding_loops import Plant
from tests.workers.loops import PIPELINE, ensured
from workers.models import Loop, Override
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.snapshot.control_record import control_record
from workers.snapshot.local import LocalPlant
from workers.steering import overrides

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(control, settings):
    """Twice as much as the application can do, the ladder on its last rung, a table in force."""
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    ensured(control, PIPELINE)
    queues = {"telemetry": QueueSpec("telemetry", "pipeline", {"n1": 1000})}
    ensured(control, ["ladder"], Topology(1, {}, queues))
    Loop.objects.filter(law="ladder").update(mode=Loop.Mode.AUTO, parameters={"unmet_decisions": 1})
    Queue.objects.create(name="telemetry", kind="pipeline")
    made = Plant(control)
    made.now = timezone.now()
    made.load(2.0)
    made.tick("ladder")
    made.tick("shedding")
    made.row["patterns"]["load-rises"]["recall"] = {"estimate": 0.53, "low": 0.48, "high": 0.58, "matches": 40}
    made.tick("shedding")
    return made


def page_of(client, loop, **asked):
    return client.get(f"/loops/{loop.pk}/", asked).content.decode()


def test_a_table_is_shown_with_its_cost_and_the_reason_for_it(browsers, plant):
    loop = Loop.objects.get(law="shedding")
    page = page_of(browsers["viewer"], loop)
    share = plant.shed()["load-rises"]["cpu"]
    assert f'style="--share: {round(share, 4)}"' in page
    assert "hosts is the bottleneck: its offered load is" in page
    assert "longer would restore" in page
    assert "48 to 58" in page
    assert "(may shed)" in page
    assert "Preview change" in page and "Override values" not in page


def test_another_bound_is_shown_before_it_is_in_force_and_then_put_in_force_for_a_time(browsers, plant):
    loop = Loop.objects.get(law="shedding")
    page = page_of(browsers["operator"], loop, latency_bound_seconds="9", **{"weight-outage": "3"})
    assert "Current → new" in page and "to process events within 9 s" in page
    assert not Override.objects.exists()
    posted = {"latency_bound_seconds": "9", "weight-outage": "3", "reason": "look", "minutes": "10"}
    assert browsers["viewer"].post(f"/loops/{loop.pk}/weigh", posted).status_code == 403
    answer = browsers["operator"].post(f"/loops/{loop.pk}/weigh", posted, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.content
    found = {each.name: each.value for each in Override.objects.all()}
    assert found == {"latency_bound_seconds": 9, "sink_weights": {"outage": 3.0}}
    plant.now = timezone.now()
    entry = plant.tick("shedding")
    assert entry.parameters["latency_bound_seconds"] == 9 and "parameters changed" in entry.reason
    assert "Override values" not in page_of(browsers["operator"], loop)


def test_weights_put_in_force_leave_a_bound_that_a_colleague_has_set_meanwhile(browsers, plant, people):
    loop, operator = Loop.objects.get(law="shedding"), browsers["operator"]
    asked = {**form_of(operator.get(f"/loops/{loop.pk}/"), "weigh"), "weight-outage": "3"}
    address = f"/loops/{loop.pk}/weigh"
    form = form_of(operator.get(f"/loops/{loop.pk}/", asked), address)
    hold_value(people["administrator"], "latency_bound_seconds", 20, loop=loop)
    assert operator.post(address, {**form, "reason": "a test"}).status_code == 302
    held = {each.name: each.value for each in overrides.list_active(timezone.now())}
    assert held == {"latency_bound_seconds": 20, "sink_weights": {"outage": 3.0}}


@pytest.mark.parametrize("asked", [{"latency_bound_seconds": "-1"}, {"weight-outage": "many"}])
def test_a_bound_or_weight_that_is_none_is_refused_by_name_and_the_page_is_whole(browsers, plant, asked):
    page = page_of(browsers["operator"], Loop.objects.get(law="shedding"), **asked)
    assert "Nothing was changed." in page and "hosts is the bottleneck" in page


def test_a_queue_is_set_never_to_shed_on_its_page_and_then_it_does_not(browsers, plant):
    url, posted = "/queues/telemetry/cap", {"cap": "throttle", "reason": "orders must not be lost"}
    assert "enabled" in browsers["operator"].get("/queues/telemetry/").content.decode()
    assert browsers["viewer"].post(url, posted).status_code == 403
    assert browsers["operator"].post(url, {"cap": "pray", "reason": "x"}).status_code == 422
    assert browsers["operator"].post(url, posted).status_code == 302
    written = AuditEntry.objects.get(action="ladder.cap")
    assert (written.before, written.after) == ({"cap": "shed"}, {"cap": "throttle"})
    plant.tick("ladder")
    assert plant.tick("shedding").action["shed"] == {}
    assert plant.shed() == {}
    assert "not allowed for this queue" in browsers["viewer"].get("/queues/telemetry/").content.decode()


def capped_by_override(people, value):
    return hold_value(people["administrator"], "cap", value, loop=Loop.objects.get(name="ladder/telemetry"))


def test_a_cap_is_an_override_with_a_user_a_reason_and_an_optional_end(browsers, people, plant):
    posted = {"cap": "throttle", "reason": "orders must not be lost", "minutes": "30"}
    answer = browsers["operator"].post("/queues/telemetry/cap", posted, headers={"Accept": "application/json"})
    held = Override.objects.get(name="cap")
    assert held.owner == people["operator"] and held.reason == "orders must not be lost" and held.expires_at is not None
    assert control_record(timezone.now()).loops["ladder/telemetry"].cap == "throttle"
    assert control_record(held.expires_at).loops["ladder/telemetry"].cap == "shed"
    assert browsers["operator"].post(answer.json()["undo"]["url"]).status_code == 302
    assert control_record(timezone.now()).loops["ladder/telemetry"].cap == "shed"


def test_the_usual_level_ends_a_cap_also_one_of_an_earlier_version(browsers, people, plant):
    def cap(level):
        browsers["operator"].post("/queues/telemetry/cap", {"cap": level, "reason": "a test"})
        return control_record(timezone.now()).loops["ladder/telemetry"].cap

    assert (cap("nodes"), cap("shed")) == ("nodes", "shed")
    assert not overrides.list_active(timezone.now()).filter(name="cap").exists()
    Loop.objects.filter(name="ladder/telemetry").update(parameters={"cap": "throttle"})
    assert control_record(timezone.now()).caps == {"telemetry": "throttle"}
    assert cap("shed") == "shed" and control_record(timezone.now()).caps == {}


def test_the_form_of_a_cap_shows_the_level_in_force(browsers, people, plant):
    capped_by_override(people, "nodes")
    page = " ".join(browsers["operator"].get("/queues/telemetry/").content.decode().split())
    assert '<option value="nodes" selected>' in page and '<option value="shed" selected>' not in page


def test_who_set_a_cap_stands_beside_it_among_the_manual_changes(browsers, plant, control):
    posted = {"cap": "throttle", "reason": "orders must not be lost"}
    assert browsers["operator"].post("/queues/telemetry/cap", posted).status_code == 302
    snapshot = LocalPlant(control).observe()
    assert [(change.kind, change.owner) for change in snapshot.hands] == [("cap", "operator")]
    control.set(keys.SNAPSHOT, snapshot.to_json())
    page = browsers["viewer"].get("/manual-changes/").content.decode()
    assert "Remedy ladder of telemetry" in page and "orders must not be lost" in page


def test_over_the_api_a_ladder_is_capped_likewise_and_an_unknown_level_is_named(browsers, plant):
    def post(**body):
        return browsers["operator"].post("/api/v1/queues/telemetry/cap", body, content_type="application/json")

    assert post(cap="nodes", reason="a test").json() == {"queue": "telemetry", "before": "shed", "after": "nodes"}
    refused = post(cap="pray", reason="a test")
    assert refused.status_code == 422 and "cap" in refused.content.decode()
