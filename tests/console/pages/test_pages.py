"""What each page is given to show."""

import re
from datetime import timedelta
from itertools import pairwise

import orjson
import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from console.display.states import rank_subjects
from console.embedded.seeding import seed
from console.models import ApiToken
from queues import keys
from queues.models import Node, Queue
from tests.console.conftest import PASSWORD, sample_snapshot
from tests.console.page_form import source_of
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import Alert
from workers.documents.states import SEVERITIES
from workers.models import LedgerEntry, Loop, Override
from workers.plants.models import RegisteredPlant
from workers.snapshot.local import LocalPlant

pytestmark = pytest.mark.django_db
AWAY = "redis://127.0.0.1:1/0"
PAGES = ("/", "/nodes/", "/queues/", "/workers/", "/pipeline/", "/loops/", "/plans/", "/ledger/", "/settings/")


def entry_of(loop, **values):
    return LedgerEntry.objects.create(loop=loop, **{"mode": "auto", "parameters": {}, "reason": "calm", **values})


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_one_snapshot_and_its_name(page, viewer, stored_snapshot):
    context = viewer.get(page).context
    assert context["snapshot"] == snapshot_of(stored_snapshot)
    assert context["page"] == (page.strip("/") or "overview")
    assert context["frame"].strip.sentence == stored_snapshot["health"]["sentence"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_shown_before_the_first_snapshot(page, viewer, control):
    answer = viewer.get(page)
    assert answer.status_code == 200
    assert answer.context["snapshot"] is None
    assert "starting" in answer.context["frame"].strip.sentence


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_shown_while_the_control_server_is_away(page, viewer, settings):
    settings.REDIS_URL = AWAY
    answer = viewer.get(page)
    assert answer.status_code == 200
    text = source_of(answer)
    assert "The control server is not responding" in text and "Incidents unknown" in text
    assert not any(words in text for words in ("The plant is starting", "No incident", "No manual changes"))


def test_the_page_of_another_plant_is_shown_while_the_control_server_is_away(viewer, settings):
    RegisteredPlant.objects.create(name="shop", kind="flink", url="http://shop.example")
    settings.REDIS_URL = AWAY
    answer = viewer.get("/plants/shop/")
    assert answer.status_code == 200 and "Unknown: the control server is not responding" in answer.content.decode()


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("/workers/jobs@here/", "jobs@here"),
        ("/pipeline/performance/", "performance"),
        ("/pipeline/performance/operators/hosts/", "performance"),
        ("/pipeline/performance/declaration/", "performance"),
    ],
)
def test_what_nobody_can_be_asked_about_is_not_said_not_to_exist(page, name, viewer, settings):
    settings.REDIS_URL = AWAY
    answer = viewer.get(page)
    assert answer.status_code == 200 and name in answer.content.decode()
    assert "The control server is not responding" in answer.content.decode()


@pytest.mark.parametrize("page", ["/queues/fresh/", "/nodes/n9/"])
def test_what_the_observer_has_not_seen_is_waited_for_and_nothing_else_is_claimed(
    page, viewer, stored_snapshot, control
):
    Queue.objects.create(name="fresh", kind="jobs")
    Node.objects.create(name="n9", url="redis://127.0.0.1:1/0")
    text = source_of(viewer.get(page))
    assert 'id="missing" data-instead' in text and "has not received" in text
    control.delete(keys.SNAPSHOT)
    text = source_of(viewer.get(page))
    assert 'id="starting" data-instead' in text and 'id="missing"' not in text


def test_a_worker_host_that_fell_silent_stays_among_the_pools(viewer, stored_snapshot, control):
    """It went from the list without a word while the overview said that it does not report."""
    about = {"kind": "host", "name": "spark@gone", "severity": "warning", "sign": "OFFLINE", "stale": True}
    step = "Start a worker host of role spark."
    stored_snapshot["states"] = {"host/spark@gone": {**about, "word": "Not reporting", "step": step}}
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    text = viewer.get("/workers/").content.decode()
    assert "spark@gone</a>" in text and "Not reporting" in text and step in text


def test_a_worker_host_that_has_ended_has_a_page_and_one_that_never_was_has_none(viewer, stored_snapshot):
    target = {"host": "jobs@gone", "retired_at": "its host does not report"}
    Loop.objects.create(name="concurrency/jobs@gone", law="concurrency", target=target)
    assert "No report from jobs@gone" in viewer.get("/workers/jobs@gone/").content.decode()
    assert viewer.get("/workers/jobs@never/").status_code == 404


def test_the_rail_names_only_what_one_may_open(browsers, stored_snapshot):
    names = {
        who: {item.name for group in browsers[who].get("/").context["frame"].rail for item in group.pages}
        for who in ("viewer", "administrator")
    }
    assert names["administrator"] - names["viewer"] == {"audit", "processes", "users"}


OF_GROUPS = {
    "/": ("Plant", "Overview"), "/tasks/": ("Plant", "Batch jobs"), "/loops/": ("Control", "Loops"),
    "/alerts/": ("Incidents", "Open"), "/alerts/silences/": ("Incidents", "Alert rules", "Silences"),
    "/alerts/review/": ("Incidents", "Past incidents"), "/costs/": ("History", "Decisions", "Costs"),
    "/proposals/": ("Control", "Plans", "Proposals of assistants"), "/lab/": ("Lab", "Experiments"),
    "/settings/plant/": ("Admin", "Settings", "Plant settings"), "/queues/alert/": ("Plant", "Queues"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "place"), OF_GROUPS.items())
def test_a_page_is_in_one_group_which_alone_is_open(path, place, viewer, stored_snapshot):
    Queue.objects.create(name="alert", kind="jobs")
    text = source_of(viewer.get(path))
    [opened] = re.findall(r'<div class="group" data-current>.*?</div>', text)
    assert f">{place[0]}" in opened and opened.count("aria-current") == 1
    [crumbs] = re.findall(r'aria-label="Breadcrumb">(.*?)</nav>', text)
    assert " ".join(re.sub(r"<.*?>", " ", crumbs).split()) == " ".join(place)


def test_without_a_snapshot_the_strip_still_names_the_open_incident(viewer, control):
    """It said that alerts are not known, while the alerter had just sent one about the observer."""
    now = timezone.now()
    alert = Alert.objects.create(
        rule_name="observer", fingerprint="o", labels={}, threshold=1.0, value=2.0,
        severity="critical", title="The observer does not respond",
        state="firing", began_at=now, fired_at=now,
    )  # fmt: skip
    control.delete(keys.SNAPSHOT)
    text = source_of(viewer.get("/"))
    assert f"Incident {alert.pk}" in text and "unknown" not in text.split('id="strip-incidents"')[1].split("</a>")[0]


def test_the_overview_lists_attached_plants_with_what_is_wrong_first(viewer, control, stored_snapshot):
    assert attached_on(viewer.get("/")) == []
    missed, unserved = {"celery@a": 75.0, "celery@b": 80.0}, {"mail": {"waiting": 3, "seconds": 70.0}}
    stored_snapshot["plants"] = {
        "calm": {"kind": "flink", "state": "seen", "tasks": 4},
        "lost": {"kind": "celery", "state": "stale", "age_seconds": 40.0, "error": "it does not answer."},
        "shop": {
            "kind": "celery", "state": "seen", "missed_workers": missed, "unserved_queues": unserved,
        },
    }  # fmt: skip
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    assert attached_on(viewer.get("/")) == [
        ("lost", ["lost was last observed 40 s ago: it does not answer."]),
        ("shop", ["2 workers stopped responding.", "No worker consumes mail."]),
        ("calm", []),
    ]


def attached_on(page):
    text = source_of(page).partition('id="overview-attached"')[2].partition("</section>")[0]
    assert ("hidden" in text.partition(">")[0]) == (not page.context["attached"])
    assert all(said in text for each in page.context["attached"] for said in each.wrong)
    return [(each.name, each.wrong) for each in page.context["attached"]]


def test_an_open_alert_that_calls_for_nobody_is_not_said_not_to_be(viewer, control, stored_snapshot):
    assert "alerts are silenced" not in viewer.get("/").content.decode()
    common = {"severity": "warning", "title": "alert behind"}
    rows = [{"id": 1, "quiet": "silenced", **common}, {"id": 2, "quiet": "explained", **common}]
    stored_snapshot["alerts"] = rows
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    page = " ".join(viewer.get("/").content.decode().split())
    assert "2 alerts are silenced" in page


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1, max_size=6))
def test_a_queue_that_waits_longer_never_stands_behind(waits):
    snapshot = {**sample_snapshot(), "nodes": {}}
    template = snapshot["queues"]["alert"]
    snapshot["queues"] = {f"q{n}": {**template, "wait_seconds": wait} for n, wait in enumerate(waits)}
    rows = [row for row in rank_subjects(snapshot_of(snapshot)) if row.kind == "queue"]
    known = [(row.figure, row.rank) for row in rows if row.figure is not None]
    for (one, first), (other, second) in pairwise(known):
        assert first >= second and (one >= other or first == second)
    severities = [row.severity for row in rows]
    assert severities == sorted(severities, key=SEVERITIES.index, reverse=True)


def test_an_unknown_node_queue_loop_or_entry_is_404(viewer, control):
    for address in ("/nodes/n9/", "/queues/none/", "/loops/999/", "/ledger/999/"):
        assert viewer.get(address).status_code == 404


def test_a_loops_page_shows_what_is_in_force(viewer, people, loop, stored_snapshot):
    soon = timezone.now() + timedelta(minutes=1)
    common = {"loop": loop, "owner": people["operator"], "reason": "x", "expires_at": soon}
    Override.objects.create(name="upper_limit", value=500, instead_of=1000, **common)
    Override.objects.create(name="mode", value="hold", **common)
    context = viewer.get(f"/loops/{loop.pk}/").context
    assert (context["loop"].mode, context["loop"].base_mode) == ("hold", "auto")
    row = next(row for row in context["bench"].main if row.name == "upper_limit")
    assert (row.value, row.effective, row.override.value) == (1000, 500, 500)
    assert row.minimum < row.maximum and row.unit and row.help
    assert "guard.stale_seconds" in {row.name for row in context["bench"].topics[-1].rows}


def test_an_expired_override_is_on_no_page(viewer, people, loop, stored_snapshot):
    past = timezone.now() - timedelta(seconds=1)
    Override.objects.create(
        loop=loop, name="upper_limit", value=500, owner=people["operator"], reason="x", expires_at=past
    )
    context = viewer.get(f"/loops/{loop.pk}/").context
    assert context["loop"].overrides == []
    assert context["loop"].effective["upper_limit"] == 1000


def test_a_queues_page_shows_the_dead_letters_of_all_nodes(browsers, poisoned, stored_snapshot):
    letters = browsers["operator"].get("/queues/alert/").context["dead_letters"]
    assert sorted((letter.name.node, letter.events[0]["id"]) for letter in letters) == [("n1", "e-n1"), ("n2", "e-n2")]
    assert {letter.error for letter in letters} == {"no"}


def test_a_node_that_is_away_hides_only_its_own_letters(viewer, poisoned, stored_snapshot):
    poisoned["n2"].kill()
    context = viewer.get("/queues/alert/").context
    assert [letter.name.node for letter in context["dead_letters"]] == ["n1"]
    assert context["unreachable"] == ["n2"]


@pytest.mark.parametrize(
    ("old", "new", "again", "field"),
    [
        ("wrong", "quite another pass phrase", "quite another pass phrase", "old_password"),
        (PASSWORD, "short", "short", "new_password2"),
        (PASSWORD, "quite another pass phrase", "and yet another", "new_password2"),
    ],
)
def test_a_bad_password_names_its_field(old, new, again, field, viewer, people, stored_snapshot):
    posted = {"old_password": old, "new_password1": new, "new_password2": again}
    answer = viewer.post("/settings/", posted)
    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    people["viewer"].refresh_from_db()
    assert people["viewer"].check_password(PASSWORD)


def test_a_token_is_made_shown_once_and_revoked(browsers, stored_snapshot):
    operator = browsers["operator"]
    made = operator.post("/settings/tokens", {"name": "shop", "role": "producer", "days": "30"})
    secret = made.context["new_token"].secret
    assert secret in made.content.decode()
    assert secret not in operator.get("/settings/").content.decode()
    token = ApiToken.objects.get()
    assert browsers["viewer"].post(f"/settings/tokens/{token.pk}/revoke").status_code == 404
    operator.post(f"/settings/tokens/{token.pk}/revoke")
    token.refresh_from_db()
    assert token.revoked_at is not None


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"name": "a b", "role": "viewer", "days": "1"}, "name"),
        ({"name": "shop", "role": "viewer", "days": "9999"}, "days"),
    ],
)
def test_a_bad_token_request_names_its_field(posted, field, browsers, stored_snapshot):
    answer = browsers["operator"].post("/settings/tokens", posted)
    assert (answer.status_code, list(answer.context["token_errors"])) == (422, [field])
    assert not ApiToken.objects.exists()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("page", [*PAGES, "/nodes/n1/", "/queues/alert/", "/queues/telemetry/", "/metrics", "/readyz"])
def test_a_page_takes_the_snapshot_as_the_plant_really_makes_it(page, viewer, control, nodes, settings, tmp_path):
    """A plant that has just been seeded: no agent has reported, nothing was published, no worker runs."""
    settings.WEIR_DATA = tmp_path
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    snapshot = LocalPlant(control).observe()
    control.set(keys.SNAPSHOT, snapshot.to_json())
    answer = viewer.get(page)
    assert answer.status_code == (503 if page == "/readyz" else 200)


def test_every_loop_of_a_seeded_plant_has_a_page_that_says_its_law(viewer, control):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:2/0"})
    for law in set(Loop.objects.values_list("law", flat=True)):
        loop = Loop.objects.filter(law=law).first()
        entry = entry_of(loop, action={"moves": []} if not loop.target else {"start": 1})
        for page in (f"/loops/{loop.pk}/", f"/ledger/{entry.pk}/"):
            answer = viewer.get(page)
            assert answer.status_code == 200, page
        assert "Every <b" in viewer.get(f"/loops/{loop.pk}/").content.decode()


@pytest.mark.parametrize(
    ("path", "part"), [("/manual-changes/", "hands"), ("/dead-letters/", "letter-groups"), ("/lab/", "experiments")]
)
def test_what_fills_while_a_page_is_open_has_its_place_from_the_beginning(path, part, viewer, nodes, stored_snapshot):
    page = viewer.get(path).content.decode()
    assert re.search(rf'id="{part}"[^>]*\sdata-refresh=', page)
