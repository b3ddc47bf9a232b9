"""Messages of a Celery app's queues on the page and over the API: viewed, moved, requeued, deleted, and audited."""

import time
from dataclasses import replace

import pytest

from console.models import AuditEntry
from tests.console.page_form import audited, fetch, form_of, refused, source_of
from tests.workers.plants.foreign.celery_app.memory_messages import MemoryMessages
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.task_history.record import RECEIVED, TaskRecord
from workers.task_history.recorder import record_finished

pytestmark = pytest.mark.django_db
PAGE, ACT = "/plants/shop/messages/", "/plants/shop/messages/act"
API = "/api/v1/plants/shop/messages"
REASON = {"reason": "the bank is back"}


@pytest.fixture
def messages(monkeypatch, stored_snapshot):
    """The messages of a Celery app, in memory: 30 in pay."""
    memory = MemoryMessages(("pay", "slow", "dead"))
    memory.publish("pay", 30, kwargs={"password": "swordfish"})
    kind = replace(adapters.get_kind("celery"), open_messages=lambda address, known: memory)
    monkeypatch.setattr(adapters, "get_kind", lambda name: kind)
    RegisteredPlant.objects.create(name="shop", kind="celery", url="amqp://127.0.0.1:5672")
    return memory


def act(browser, **more):
    return fetch(browser, ACT, {"queue": "pay", "count": "10", **REASON, **more})


def test_the_page_shows_messages_without_secrets_and_records_the_view(operator, messages):
    page = operator.get(PAGE, {"queue": "pay", "count": "5"})
    text = source_of(page)
    assert page.context["preview"].waiting == 30 and len(page.context["preview"].oldest) == 5
    assert "task-4" in text and "task-5" not in text and "swordfish" not in text
    assert "redelivered" in text
    assert audited() == [("operator", "messages.preview", "shop pay")]


def test_the_page_reads_messages_only_when_asked_for(operator, messages):
    assert operator.get(PAGE).context["preview"] is None
    asked = operator.get(PAGE, {"queue": "pay"}, headers={"X-Weir-Parts": "1"})
    assert asked.context["preview"] is None
    assert audited() == []


def test_the_time_of_a_message_is_that_of_the_task_history(operator, messages):
    sent = time.time() - 60
    record_finished("shop", [TaskRecord(id="task-0", state=RECEIVED, at=sent, sent=sent)])
    oldest = operator.get(PAGE, {"queue": "pay", "count": "2"}).context["preview"].oldest
    assert oldest[0].sent_at == pytest.approx(sent, abs=0.01) and oldest[1].sent_at is None


def test_messages_are_moved_from_the_form_of_the_page(operator, messages):
    form = form_of(operator.get(PAGE, {"queue": "pay", "count": "12"}), ACT)
    answer = fetch(operator, ACT, form | {"action": "move", "destination": "slow"} | REASON)
    assert answer.json()["message"] == "12 messages moved."
    assert messages.consume_all("slow") == list(range(12)) and messages.consume_all("pay") == list(range(12, 30))
    attempt, result = AuditEntry.objects.filter(action="messages.move").order_by("pk")
    assert (attempt.before["destination"], attempt.reason) == ("slow", REASON["reason"])
    assert result.after == {"messages": 12, "destinations": {"slow": 12}, "left": 0}


def test_dead_lettered_messages_are_requeued_and_the_others_stay(operator, messages):
    messages.publish("dead", 2, headers={"x-death": [{"queue": "pay"}]})
    messages.publish("dead", 1)
    answer = act(operator, queue="dead", action="requeue")
    assert answer.json()["message"].startswith("2 messages requeued. 1 message stayed")
    assert len(messages.queues["pay"]) == 32 and len(messages.queues["dead"]) == 1


def test_messages_are_deleted_only_with_the_name_of_their_queue(operator, messages):
    assert refused(act(operator, action="purge", confirm="slow")) == ["confirm"]
    assert len(messages.queues["pay"]) == 30
    assert act(operator, action="purge", confirm="pay").json()["message"] == "10 messages deleted permanently."
    assert len(messages.queues["pay"]) == 20


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"action": "boil"}, "action"),
        ({"action": "move"}, "destination"),
        ({"action": "move", "destination": "pay"}, "destination"),
        ({"action": "move", "destination": "nowhere"}, "destination"),
        ({"action": "requeue", "queue": "nowhere"}, "queue"),
        ({"action": "requeue", "count": "0"}, "count"),
        ({"action": "requeue", "count": "5001"}, "count"),
        ({"action": "requeue", "count": "many"}, "count"),
        ({"action": "requeue", "reason": ""}, "reason"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_moved(operator, messages, wrong, field):
    assert refused(act(operator, **wrong)) == [field]
    assert len(messages.queues["pay"]) == 30


@pytest.mark.parametrize(
    ("asked", "field"), [({"queue": "nowhere"}, "Queue"), ({"queue": "pay", "count": "x"}, "Count")]
)
def test_a_wrong_view_is_named(operator, messages, asked, field):
    page = operator.get(PAGE, asked)
    assert page.status_code == 422 and f"{field}:" in source_of(page)


def test_a_broker_that_does_not_answer_is_named(operator, messages, monkeypatch):
    def fail(queue, most):
        raise PlantUnavailable("shop can't be reached (timed out).")

    monkeypatch.setattr(messages, "preview", fail)
    page = operator.get(PAGE, {"queue": "pay"})
    assert page.status_code == 422 and "(timed out)" in source_of(page)


def test_a_viewer_sees_and_moves_no_messages(viewer, messages):
    assert viewer.get(PAGE).status_code == 403
    assert act(viewer, action="requeue").status_code == 403
    assert "messages/" not in viewer.get("/plants/shop/").content.decode()


def test_the_api_views_and_moves_messages(operator, messages):
    def post(path, **body):
        return operator.post(f"{API}{path}", body, content_type="application/json").json()

    seen = post("/preview", queue="pay", count=3)
    assert (seen["waiting"], seen["messages"], [row["id"] for row in seen["oldest"]]) == (
        30, 3, ["task-0", "task-1", "task-2"],
    )  # fmt: skip
    done = post("", queue="pay", count=3, action="move", destination="slow", **REASON)
    assert (done["messages"], done["destinations"]) == (3, {"slow": 3})


def test_only_a_celery_app_has_messages(operator, stored_snapshot):
    RegisteredPlant.objects.create(name="flow", kind="flink", url="http://10.0.0.7:8081")
    assert operator.get("/plants/flow/messages/").status_code == 404
    answer = operator.post("/api/v1/plants/flow/messages/preview", {"queue": "pay"}, content_type="application/json")
    assert answer.status_code == 422 and "no queues of a Celery app" in str(answer.json())
