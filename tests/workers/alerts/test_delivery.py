"""Messages that really go out: by mail to a mail server, by webhook to an endpoint that verifies them."""

import hmac
import threading
from datetime import timedelta
from hashlib import sha256

import orjson
import pytest
from django.db import DatabaseError

from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS
from tests.workers.alerts.checks import deliver, fire, kinds, mend, rule, the_alert
from tests.workers.alerts.receiving import WorkReporter, mail_server
from workers.alerts.conditions.gatherer import list_failing_receivers
from workers.alerts.delivery import dispatcher, outbox, receivers, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Message, Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def mails(settings):
    with mail_server() as reporter:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", reporter.port
        yield reporter


def webhook_rule(posts: WorkReporter) -> Receiver:
    made = receivers.define("hook", "webhook", {"url": f"http://127.0.0.1:{posts.port}/alerts"})
    rule(escalation=[{"after_minutes": 0, "receivers": ["hook"]}])
    return made


def test_a_mail_says_what_is_wrong_what_it_means_and_what_to_open(looks, mails, settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    rule(runbook="https://wiki/nodes")
    fire(looks)
    assert deliver(looks) == 1 and deliver(looks) == 0
    (mail,) = mails.mails
    message = Message.objects.get()
    assert mail["Subject"] == "[critical] Node n1 is lost" and mail["To"] == "a@b"
    assert mail["Message-ID"] == f"<{message.key}@weir>"
    text = mail.get_payload()
    for part in (
        "has not reported for 14 s",
        "The node has 1,000 points",
        "https://wiki/nodes",
        f"https://weir.example/alerts/{the_alert().pk}/",
    ):
        assert part in text, part
    assert (message.state, message.tries) == ("sent", 1) and kinds(the_alert())[-1] == "told"


def test_mails_about_one_alert_are_a_thread(looks, mails):
    rule(escalation=[{"after_minutes": at, "receivers": ["desk"]} for at in (0, 1)])
    fire(looks)
    deliver(looks)
    looks.pass_seconds(70)
    looks.now += 6
    deliver(looks)
    mend(looks)
    deliver(looks)
    first, again, end = mails.mails
    assert first["In-Reply-To"] is None and end["Subject"].startswith("[critical] Resolved")
    assert {again["In-Reply-To"], end["In-Reply-To"], end["References"]} == {first["Message-ID"]}


def test_a_title_with_a_line_break_breaks_no_mail(looks, mails):
    rule(title="Node {node}\r\nBcc: everybody@else")
    fire(looks)
    deliver(looks)
    (mail,) = mails.mails
    assert mail["Bcc"] is None and "Bcc: everybody" in mail["Subject"]


def test_who_of_several_was_refused_stands_at_the_message_and_at_the_alert(looks, mails):
    receivers.define("both", "email", {"addresses": ["a@b.example", "gone@b.example"]})
    rule(escalation=[{"after_minutes": 0, "receivers": ["both"]}])
    mails.answers = [250, 550]
    fire(looks)
    assert deliver(looks) == 1 and deliver(looks) == 0, "the others have it, and get it once"
    message, said = (Message.objects.get(), "rejected gone@b.example (550 not here) and accepted the other addresses")
    assert message.state == "sent" and said in message.error
    assert said in the_alert().events.order_by("pk").last().text
    assert list_failing_receivers(looks.at - timedelta(hours=1)) == []


def test_what_was_refused_is_sent_again_later_and_then_arrives_once(looks, mails):
    rule()
    mails.answers = [451]
    fire(looks)
    assert deliver(looks) == 0 and deliver(looks) == 0, "it waits for its time"
    assert list_failing_receivers(looks.at - timedelta(hours=1))[0].tries == 1
    looks.now += 10
    assert deliver(looks) == 1
    assert len(mails.mails) == 1 and list_failing_receivers(looks.at - timedelta(hours=1)) == []


def test_a_webhook_can_verify_what_it_gets(looks, posts):
    receiver = webhook_rule(posts)
    fire(looks)
    assert deliver(looks) == 1
    ((headers, body),) = posts.posts
    secret = webhook.derive_secret(receiver).encode()
    signed = headers["X-Weir-Timestamp"].encode() + b"." + body
    assert headers["X-Weir-Signature"] == "sha256=" + hmac.new(secret, signed, sha256).hexdigest()
    assert abs(float(headers["X-Weir-Timestamp"]) - looks.now) < 1
    document = orjson.loads(body)
    assert document["key"] == headers["Idempotency-Key"]
    assert document["alerts"][0]["labels"] == {"node": "n1"} and document["kind"] == "firing"


def test_each_receiver_has_a_key_of_its_own_and_none_is_stored(posts):
    first, second = (receivers.define(name, "webhook", {"url": "https://x/"}) for name in ("a", "b"))
    assert webhook.derive_secret(first) != webhook.derive_secret(second)
    assert webhook.derive_secret(first) not in str(Receiver.objects.values())


def test_a_secret_comes_from_the_environment_that_is_named(posts):
    made = receivers.define("hook", "webhook", {"url": "https://x/", "secret_environment": "WEIR_SECRET_DESK"})
    assert webhook.read_signing_key(made, {"WEIR_SECRET_DESK": "hush"}) == b"hush"
    with pytest.raises(Failed, match="WEIR_SECRET_DESK is not set"):
        webhook.read_signing_key(made, {})


@pytest.mark.parametrize(("status", "state"), [(503, "waiting"), (429, "waiting"), (404, "waiting"), (422, "failed")])
def test_what_a_webhook_answers_decides_whether_it_is_tried_again(status, state, looks, posts):
    webhook_rule(posts)
    posts.answers = [status]
    fire(looks)
    deliver(looks)
    message = Message.objects.get()
    assert message.state == state and f"returned HTTP {status}" in message.error


def test_a_dispatcher_that_dies_after_sending_sends_the_same_message_again(looks, posts, monkeypatch):
    webhook_rule(posts)
    fire(looks)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(outbox, "mark_delivered", die)
        deliver(looks)
    looks.now += 60
    assert deliver(looks) == 1
    keys = {headers["Idempotency-Key"] for headers, _ in posts.posts}
    bodies = {body for _, body in posts.posts}
    assert len(posts.posts) == 2 and len(keys) == 1 and len(bodies) == 1, "the receiver knows it by its key"


def test_a_receiver_that_hangs_or_is_away_keeps_no_other_waiting(looks, posts, mails):
    receivers.define("away", "webhook", {"url": f"http://127.0.0.1:{free_port()}/"})
    receivers.define("hook", "webhook", {"url": f"http://127.0.0.1:{posts.port}/"})
    rule(escalation=[{"after_minutes": 0, "receivers": ["away", "hook", "desk"]}])
    fire(looks)
    assert deliver(looks) == 2
    assert len(posts.posts) == 1 and len(mails.mails) == 1
    assert "did not respond" in Message.objects.get(receiver__name="away").error


def test_a_message_whose_failure_can_not_be_noted_lets_no_other_be_sent_again(looks, posts, monkeypatch):
    receivers.define("away", "webhook", {"url": f"http://127.0.0.1:{free_port()}/"})
    rule(escalation=[{"after_minutes": 0, "receivers": ["away", "desk"]}])
    fire(looks)
    refused = threading.Event()

    def unnoted(*_):
        refused.set()
        raise DatabaseError("refused")

    def away(*_):
        raise Failed("it does not answer")

    def mail(*_):
        assert refused.wait(MAX_SECONDS), "sent, but noted after the failure"

    monkeypatch.setattr(outbox, "mark_failed", unnoted)
    with pytest.raises(DatabaseError, match="refused"):
        dispatcher.deliver(lambda: looks.at, lambda: True, {"webhook": away, "email": mail})
    states = dict(Message.objects.values_list("receiver__name", "state"))
    assert states == {"away": "waiting", "desk": "sent"}


def test_who_has_lost_the_lease_sends_nothing(looks, posts):
    webhook_rule(posts)
    fire(looks)
    assert deliver(looks, alive=False) == 0 and posts.posts == []


def test_a_receiver_hears_of_the_end_only_when_it_wants_to(looks, posts):
    made = webhook_rule(posts)
    fire(looks)
    deliver(looks)
    mend(looks)
    assert deliver(looks) == 1 and orjson.loads(posts.posts[-1][1])["kind"] == "resolved"
    Receiver.objects.filter(pk=made.pk).update(tells_resolved=False)
    looks.now += 3_600
    fire(looks)
    deliver(looks)
    mend(looks)
    assert deliver(looks) == 0
