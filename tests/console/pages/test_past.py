"""Pages about the past: whole, read only, and honest where nothing was kept."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from common.stored_document import encode_document
from console.input.form_values import format_iso_time
from queues import keys
from queues.models import Node, Queue
from tests.console.conftest import sample_snapshot
from tests.console.pipeline_sample import DECLARATION
from tests.workers.snapshots import snapshot_of
from workers.documents.pipeline import LogLine, PipelineLog
from workers.history.snapshot_archive import Recorder
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = pytest.mark.django_db
THEN = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
AT = "2026-11-20T03:12:00Z"
APPLICATION, OPERATOR = "/pipeline/performance/", "/pipeline/performance/operators/hosts/"
PAGES = (
    *("/", "/nodes/", "/nodes/n1/", "/queues/", "/queues/alert/", "/workers/", "/workers/jobs@here/"),
    *("/pipeline/", APPLICATION, OPERATOR),
)


@pytest.fixture
def past(settings, tmp_path, stored_snapshot):
    """What was kept at 03:12: the plant of now, but a node too busy and an override in force."""
    settings.WEIR_DATA = tmp_path
    was = deepcopy(sample_snapshot())
    was["at"] = THEN.timestamp() - 0.8
    was["health"] |= {"state": "TOOBUSY", "sentence": "Node n1 is too busy: 97 % of its capacity."}
    was["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97, in_per_second=None)
    Recorder(tmp_path).add(was["at"], orjson.dumps(was))
    Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    Queue.objects.create(name="alert", kind="jobs")
    return was


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_plant_as_it_was_and_says_so(page, viewer, past):
    answer = viewer.get(page, {"at": AT})
    assert answer.context["snapshot"] == snapshot_of(past)
    assert answer.context["frame"].strip.sentence == past["health"]["sentence"]
    assert b'data-connection="past"' in answer.content
    assert b"Plant state at" in answer.content


@pytest.mark.parametrize("page", PAGES)
def test_nothing_can_be_changed_from_the_past(page, browsers, past):
    now = browsers["administrator"].get(page)
    then = browsers["administrator"].get(page, {"at": AT})
    assert not any(then.context["frame"].can.values())
    assert any(now.context["frame"].can.values())
    for page_, steers in ((then, False), (now, page not in ("/", "/queues/", "/workers/"))):
        assert (b'name="reason"' in page_.content) is steers
    assert b"requires the operator role" not in then.content


def test_the_rail_stays_at_the_instant_where_pages_can_show_it(viewer, past):
    groups = viewer.get("/", {"at": AT}).context["frame"].rail
    rail = {item.name: item.url for group in groups for item in group.pages}
    assert rail["nodes"] == "/nodes/?at=2026-11-20T03%3A12%3A00Z"
    assert rail["ledger"] == "/ledger/?at=2026-11-20T03%3A12%3A00Z"


@pytest.mark.parametrize("page", ["/ledger/", "/loops/", "/manual-changes/", "/plans/", "/alerts/", "/tasks/"])
def test_other_pages_show_the_present_and_say_so(page, browsers, past, stored_snapshot):
    answer = browsers["operator"].get(page, {"at": AT})
    assert answer.context["snapshot"] == snapshot_of(stored_snapshot)
    assert "This page shows live data" in answer.content.decode()
    assert any(answer.context["frame"].can.values()), "of the present everything can be done"
    assert ("View records of that" in answer.content.decode()) == (page == "/ledger/")
    assert "This page shows live data" not in browsers["operator"].get(page).content.decode()


@pytest.mark.parametrize("page", ["/help/", "/timeline/"])
def test_a_page_that_is_about_no_instant_says_nothing_of_it(page, viewer, past):
    assert "This page shows live data" not in viewer.get(page, {"at": AT}).content.decode()


def test_the_pipeline_of_the_past_shows_nothing_of_the_present(browsers, past, control):
    control.set(keys.PIPELINE_LOG, encode_document(PipelineLog(lines=[LogLine(at=1.0, level="ERROR", text="today")])))
    then = browsers["operator"].get(APPLICATION, {"at": AT})
    assert (then.context["log"], then.context["recent"], then.context["version"]) == ([], [], None)
    assert b"today" in browsers["operator"].get(APPLICATION).content


def test_a_queue_of_the_past_shows_no_remedy_ladder_of_the_present(viewer, past):
    Loop.objects.create(name="ladder/alert", law="ladder", target={"queue": "alert"})
    assert viewer.get("/queues/alert/").context["ladder"] is not None
    then = viewer.get("/queues/alert/", {"at": AT})
    assert then.context["ladder"] is None and b"Remedy ladder" not in then.content


def test_an_operator_of_the_past_shows_no_declaration_of_the_present(viewer, past, control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    now, then = viewer.get(OPERATOR), viewer.get(OPERATOR, {"at": AT})
    assert all(each.declared for each in now.context["operator"].patterns)
    assert not any(each.declared for each in then.context["operator"].patterns)


def test_the_latest_decisions_are_those_of_the_instant(viewer, past):
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    fields = {"loop": loop, "mode": "auto", "parameters": {}, "reason": "busy", "action": {"start": 1}}
    before = LedgerEntry.objects.create(at=THEN - timedelta(minutes=1), **fields)
    LedgerEntry.objects.create(at=THEN + timedelta(minutes=1), **fields)
    [law] = viewer.get("/", {"at": AT}).context["activity"].laws
    assert (law.newest, law.acted) == (before, 1)


@pytest.mark.parametrize("page", PAGES)
def test_where_nothing_was_retained_the_nearest_instant_is_offered(page, viewer, past):
    answer = viewer.get(page, {"at": "2026-11-20T05:00:00Z"})
    assert answer.context["snapshot"] is None
    text = answer.content.decode()
    assert "No snapshot for this time" in text and "Incidents unknown" in text
    assert "The plant is starting" not in text and "No incident" not in text
    assert f"?at={format_iso_time(datetime.fromtimestamp(past['at'], UTC))}" in text


@pytest.mark.parametrize("page", [*PAGES, "/timeline/"])
def test_what_is_kept_of_a_time_and_can_not_be_read_is_said(page, viewer, past, settings):
    Recorder(settings.WEIR_DATA).add(THEN.timestamp() - 0.1, b'{"seq": "of another version"}')
    answer = viewer.get(page, {"at": AT})
    assert answer.status_code == 200
    assert "be read" in answer.content.decode() and "The plant is starting" not in answer.content.decode()


def test_a_minute_that_the_disk_has_damaged_is_said_to_be_unreadable(viewer, past, settings):
    Recorder(settings.WEIR_DATA).add(THEN.timestamp() + 60.0, orjson.dumps(past))  # the minute before is over
    (kept,) = settings.WEIR_DATA.glob("snapshots/day=*/*.zst")
    kept.write_bytes(kept.read_bytes()[:-20] + b"damaged by the disk.")
    for page in ("/", "/timeline/"):
        assert "be read" in viewer.get(page, {"at": AT}).content.decode()


@pytest.mark.parametrize("at", ["yesterday", "2026-13-01T00:00:00Z", "<script>", "9" * 400])
def test_what_is_no_time_is_said(at, viewer, past):
    answer = viewer.get("/", {"at": at})
    assert answer.status_code == 200
    assert "must be a time such as" in answer.content.decode()
    assert "<script>alert" not in answer.content.decode()


def test_the_api_gives_the_snapshot_of_an_instant(viewer, past):
    assert viewer.get("/api/v1/snapshot", {"at": AT}).json() == past
    assert viewer.get("/api/v1/snapshot", {"at": "2026-11-20T05:00:00Z"}).status_code == 404
    assert viewer.get("/api/v1/snapshot", {"at": "2026-11-20T03:12:00"}).json()["errors"]["at"]
    assert viewer.get("/api/v1/snapshot", {"at": "never"}).status_code == 422
