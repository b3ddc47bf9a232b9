"""Every route that reads answers as the API's document says, and takes plain numbers alone."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest
from django.utils import timezone
from ninja import Schema
from pydantic import ValidationError

from console.api import v1
from console.api.request.input import require_plain_numbers
from queues import keys
from queues.models import Node
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.console.accounts.route_permissions import DESCRIBING, QUERY, ROUTE_PERMISSIONS, address_of, of_api
from tests.console.accounts.things import things as things
from tests.console.api import answers
from tests.console.api.test_plant_control import SOURCE
from tests.console.conftest import dead_letter
from tests.workers.snapshot.test_local_plant import beat_all, host
from workers.alerts.lifecycle.models import Alert, AlertEvent, Message, Receiver
from workers.history.snapshot_archive import Recorder
from workers.lab.models import ExperimentResult
from workers.models import Chunk, LedgerEntry, Loop, Plan, Run
from workers.placement.moves import NOTHING_YET
from workers.plants.models import OffsetResetPlan
from workers.retries.models import RetryPlan
from workers.snapshot.local import LocalPlant

pytestmark = pytest.mark.django_db


# What a supervisor keeps is asked of one: tests/console/embedded; what loops want, of loops that want
# something: tests/console/api/test_desired.py.
WANTED = {f"GET api/v1/{each}/desired" for each in ("loops/<loop_id>", "plants/<plant>")}
# Of attached plants: tests of the guard, and of the task history.
ATTACHED = {"GET api/v1/plants/<plant>/guard", "GET api/v1/task-history/<plant>/<task_id>"}
NOT_HERE = {*DESCRIBING, *WANTED, *ATTACHED, "GET api/v1/processes/<process>/log"}
READING = [door for door in ROUTE_PERMISSIONS if of_api(door) and door.startswith("GET ") and door not in NOT_HERE]
OF_SOURCES = ("getpathlatency", "getfailedtuplescount", "getackedtuplescount")


@pytest.fixture
def rich(things, nodes, people, snapshot, settings, tmp_path):
    """Rows with all that they may hold, and the addresses' places filled with them."""
    Node.objects.filter(name="n1").update(url=nodes["n1"].url)
    dead_letter(nodes["n1"], "n1")
    (letter,) = DeadLetters(Segment(nodes["n1"].client(), "alert")).read(1)
    now = timezone.now()
    LedgerEntry.objects.update(
        observation={"backlog": 12, "age_seconds": 0.4},
        action={"start": 1},
        expected={"metric": "waiting_events", "direction": "down", "amount": 12.0, "within_seconds": 30.0},
        outcome={"before": {}, "after": None},
        raw=1.5,
        verdict="effective",
    )
    # Of this its load can be replayed.
    loop = Loop.objects.get()
    seen = {"queue_length": 4, "removed": 2, "running": 1, "started": 1}
    for ago in range(120, 0, -6):
        at = now - timedelta(seconds=ago)
        LedgerEntry.objects.create(loop=loop, at=at, mode="auto", parameters={}, reason="", observation=seen)
    move = {"queue": "alert", "from": "n1", "to": "n2", "points": 120}
    node = {"utilisation": 0.3, "state": "NORMAL", "points": 1000}
    approval = {"by": "operator", "reason": "a test", "at": now.timestamp()}
    Plan.objects.update(
        moves=[move], progress=[NOTHING_YET], before={"n1": node}, after={"n1": node}, approvals=[approval]
    )
    RetryPlan.objects.create(
        pk=things["<plan_id>"],
        plant="shop",
        query="state:failed",
        reason="a test",
        items=b"",
        total=0,
        min_rate=1.0,
        max_rate=10.0,
        hash="0" * 64,
        expires_at=now + timedelta(hours=1),
    )
    OffsetResetPlan.objects.create(
        plant="main",
        group="billing",
        target="earliest",
        partitions=[{"topic": "orders", "partition": 0, "now": 4, "then": 0, "skipped": 0, "again": 4}],
        skipped=0,
        again=4,
        hash="0" * 64,
        reason="a test",
        approvals=[approval],
        expires_at=now + timedelta(hours=1),
    )
    run = Run.objects.get()
    skipped = [{"file": "a.parquet", "why": "is none"}]
    progress = {"rows": 2, "share": 0.5, "stages": {"done": 1, "total": 2}, "chunks": 1, "working": ["a"]}
    Run.objects.update(started_at=now, ended_at=now, progress=progress, owner=people["operator"])
    Chunk.objects.create(run=run, identifier="a", place=0, skipped=skipped, seconds=1.5)
    ExperimentResult.objects.create(
        experiment_id=things["<experiment_id>"], law="thesis", metrics={"events_lost": 1, "x": None}, seconds=2
    )
    alert = Alert.objects.get()
    AlertEvent.objects.create(alert=alert, kind="note", by=people["operator"], text="a test")
    Message.objects.create(key="k", receiver=Receiver.objects.get(), content={"title": "a test"}, sent_at=now)
    return {**things, "<dead_id>": letter.dead_id}


@pytest.fixture
def kept(snapshot, settings, tmp_path):
    """When a snapshot was kept."""
    settings.WEIR_DATA = tmp_path
    at = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
    Recorder(tmp_path).add(at.timestamp(), orjson.dumps({**snapshot, "at": at.timestamp()}))
    return (at + timedelta(seconds=1)).isoformat()


def test_every_reading_answers_as_the_document_says(browsers, rich, kept, control, snapshot):
    asked = {**QUERY, "GET api/v1/snapshot": {"at": kept}}
    asked |= {f"GET control/<plant>/v1/{name}": {"operator": SOURCE} for name in OF_SOURCES}
    for door in READING:
        # The control API answers only while the snapshot is new.
        control.set(keys.SNAPSHOT, orjson.dumps({**snapshot, "at": timezone.now().timestamp()}))
        answer = browsers["administrator"].get(address_of(door.removeprefix("GET "), rich), asked.get(door))
        assert answer.status_code == 200, (door, answer.content)
        if answer["Content-Type"] == answers.JSON:
            answers.hold(answer.wsgi_request, answer)


@pytest.mark.usefixtures("plant_topology")
def test_a_snapshot_of_a_plant_is_as_the_document_says(control, things):
    plant = LocalPlant(control)
    for seq in (1, 2):
        now = timezone.now().timestamp()
        beat_all(control, seq, at=now, inserted_events=100 * seq, inserted_bytes=100)
        host(control, at=now)
        observed = plant.observe()
    answers.validator_of("Snapshot").validate(orjson.loads(observed.to_json()))


def test_an_answer_with_a_key_that_is_not_declared_is_not_as_the_document_says():
    row = {"queue": "alert", "before": "shed", "after": "nodes"}
    cap = answers.validator_of("LadderCap")
    assert cap.is_valid(row)
    assert not cap.is_valid({**row, "more": 1})
    assert not cap.is_valid({"queue": "alert", "before": "shed"})


FULL_WIDTH = "\uff11\uff12"
UNUSUAL = ["1_000", FULL_WIDTH, "nan"]
NUMBERS = {"integer", "number"}


def takes_only_numbers(schema):
    """Whether a parameter takes a number, and no text beside it."""
    kinds = {each.get("type") for each in schema.get("anyOf", [schema])}
    return bool(kinds & NUMBERS) and "string" not in kinds


def numeric_parameters():
    """Return each numeric parameter of a route that reads: address, where it stands, name."""
    paths = v1.api.get_openapi_schema()["paths"]
    return [
        (path, parameter["in"], parameter["name"])
        for path, operations in paths.items()
        for parameter in operations.get("get", {}).get("parameters", [])
        if takes_only_numbers(parameter["schema"])
    ]


def address_with(path, name, value):
    filled = path.replace("{" + name + "}", value)
    return "/".join("1" if part.startswith("{") else part for part in filled.split("/"))


@pytest.mark.parametrize("text", UNUSUAL)
def test_every_numeric_parameter_refuses_what_only_python_takes(text, browsers):
    parameters = numeric_parameters()
    assert len(parameters) > 20 and {place for _, place, _ in parameters} == {"path", "query"}
    for path, place, name in parameters:
        query = {name: text} if place == "query" else {}
        answer = browsers["administrator"].get(address_with(path, name, text), query)
        assert answer.status_code == 422, (path, name, answer.content)
        errors = answer.json()["errors"]
        assert any(each.split(".")[-1] == name for each in errors), (path, errors)


def test_the_refusal_names_the_field_the_value_and_the_fix(browsers):
    answer = browsers["viewer"].get("/api/v1/audit", {"rows": "1_0"})
    assert answer.json()["errors"] == {"rows": ["must be a whole number such as 12, not '1_0'."]}


class _Nested(Schema):
    settings: dict[str, int | float | str | bool] = {}
    counts: list[int] = []
    hours: float | None = None


class _Body(Schema):
    inner: _Nested


def test_a_value_that_may_be_text_stays_as_it_was_written():
    require_plain_numbers([_Body])
    settings = {"whole": 5, "half": 0.5, "text": "1_0", "number": "5", "yes": True}
    read = _Body.model_validate({"inner": {"settings": settings}}).inner.settings
    assert read == settings and list(map(type, read.values())) == [int, float, str, str, bool]


@pytest.mark.parametrize("inner", [{"counts": [1, "1_0"]}, {"hours": FULL_WIDTH}, {"hours": "1_0.5"}])
def test_a_number_deep_in_a_body_is_as_plain(inner):
    require_plain_numbers([_Body])
    with pytest.raises(ValidationError, match="must be a"):
        _Body.model_validate({"inner": inner})
