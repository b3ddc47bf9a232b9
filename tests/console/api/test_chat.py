"""What people answer in a chat: taken from whoever knows its secret, as a note, and as nothing else."""

import base64
import hmac
import time
from hashlib import sha256
from urllib.parse import urlencode

import orjson
import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from console.api.ingestion.chat import ChatMessage, Unproven, read
from console.models import AuditEntry
from tests.workers.alerts.checks import Looks, lost, rule
from workers.alerts.delivery import receivers
from workers.alerts.lifecycle.models import Alert, AlertEvent

pytestmark = pytest.mark.django_db
SECRET, KEY = "a secret of this chat", base64.b64encode(b"a key of 32 letters, or so, of it").decode()
NAMES = {"WEIR_SECRET_CHAT": "tgram://123456:ABC/4711/@ops", "WEIR_SECRET_ANSWERS": SECRET}
FORM, JSON = "application/x-www-form-urlencoded", "application/json"


@pytest.fixture
def alert(monkeypatch):
    """An alert of which the receiver `ops` is notified."""
    for name, value in NAMES.items():
        monkeypatch.setenv(name, value)
    settings = {"secret_environment": "WEIR_SECRET_CHAT", "answers_environment": "WEIR_SECRET_ANSWERS"}
    receivers.define("ops", "apprise", settings)
    rule(escalation=[{"after_minutes": 0, "receivers": ["ops"]}])
    looks = Looks()
    looks.snapshot = lost()
    looks.look()
    looks.now += 6
    looks.look()
    return Alert.objects.get()


def slack(fields, secret=SECRET, at=None):
    return signed_by_slack(urlencode(fields), FORM, secret, at)


def slack_json(fields, secret=SECRET):
    return signed_by_slack(orjson.dumps(fields).decode(), JSON, secret)


def signed_by_slack(body, kind, secret=SECRET, at=None):
    sent_at = str(int(time.time() if at is None else at))
    signed = hmac.new(secret.encode(), f"v0:{sent_at}:".encode() + body.encode(), sha256).hexdigest()
    return body, kind, {"HTTP_X_SLACK_SIGNATURE": f"v0={signed}", "HTTP_X_SLACK_REQUEST_TIMESTAMP": sent_at}


def telegram(text, quoted="", chat=4711, secret=SECRET, **more):
    message = {"text": text, "from": {"first_name": "Anna"}, "chat": {"id": chat, **more}}
    if quoted:
        message["reply_to_message"] = {"text": quoted}
    body = orjson.dumps({"update_id": 1, "message": message}).decode()
    return body, JSON, {"HTTP_X_TELEGRAM_BOT_API_SECRET_TOKEN": secret}


def teams(text, key=KEY):
    body = orjson.dumps({"text": text, "from": {"name": "Anna"}}).decode()
    signed = base64.b64encode(hmac.new(base64.b64decode(key), body.encode(), sha256).digest()).decode()
    return body, JSON, {"HTTP_AUTHORIZATION": f"HMAC {signed}"}


def post(made, receiver="ops"):
    body, kind, headers = made
    return Client().post(f"/api/v1/chat/{receiver}", body, kind, **headers)


def notes():
    return [each.text for each in AlertEvent.objects.filter(kind=AlertEvent.Kind.NOTE)]


def mattermost(**fields):
    return urlencode({"token": SECRET, "user_name": "anna", **fields}), FORM, {}


def zulip(text):
    document = {"token": SECRET, "data": text, "message": {"sender_full_name": "Anna"}}
    return orjson.dumps(document).decode(), JSON, {}


@pytest.mark.parametrize(
    "service",
    [
        lambda n: slack({"user_name": "anna", "command": "/weir", "text": f"{n} n3 is restarted"}),
        lambda n: mattermost(text=f"weir: {n} n3 is restarted", trigger_word="weir:"),
        lambda n: (
            orjson.dumps({"token": SECRET, "user_name": "anna", "text": f"#{n}: n3 is restarted"}).decode(),
            JSON,
            {},
        ),
        lambda n: zulip(f"@**weir** {n} n3 is restarted"),
        lambda n: telegram(f"/weir@ops_bot {n} n3 is restarted"),
        lambda n: telegram("n3 is restarted", f"[critical] n3\nhttps://weir.example/alerts/{n}/"),
    ],
    ids=["slack", "mattermost", "rocket", "zulip", "telegram", "telegram-reply"],
)
def test_an_answer_stands_beside_its_alert_with_who_gave_it_and_in_the_audit(alert, service, settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    answer = post(service(alert.pk))
    assert answer.status_code == 200, answer.content
    (note,) = notes()
    assert note.lower() == "anna, in a chat: n3 is restarted"
    said = answer.json().get("text") or answer.json()["content"]
    assert said == f"Added to alert {alert.pk}: https://weir.example/alerts/{alert.pk}/"
    entry = AuditEntry.objects.latest("pk")
    assert (entry.actor, entry.action) == ("chat:ops", "alert.note")


@pytest.mark.parametrize(
    "text, noted", [("3 nodes are back", "3 nodes are back"), ("{n} n3 is restarted", "n3 is restarted")]
)
def test_an_answer_to_a_message_stands_beside_an_alert_of_it_whatever_number_it_begins_with(alert, text, noted):
    quoted = f"[critical] n3\nhttps://weir.example/alerts/{alert.pk}/"
    said = post(telegram(text.format(n=alert.pk), quoted)).json()["text"]
    assert said.startswith(f"Added to alert {alert.pk}: ")
    assert notes() == [f"Anna, in a chat: {noted}"]


def test_teams_proves_its_answers_by_a_key_in_base64(alert, monkeypatch):
    monkeypatch.setenv("WEIR_SECRET_ANSWERS", KEY)
    answer = post(teams(f"<at>weir</at>&nbsp;{alert.pk} on it"))
    assert answer.json()["type"] == "message" and notes() == ["Anna, in a chat: on it"]
    assert post(teams("1 no", base64.b64encode(b"another").decode())).status_code == 401


def test_the_same_again_is_noted_once(alert):
    for _ in range(3):
        assert post(mattermost(text=f"{alert.pk} on it")).status_code == 200
    assert len(notes()) == 1


@pytest.mark.parametrize("text", ["restarted 3 workers", "", "0x12 no"])
def test_what_names_no_alert_is_answered_with_how_to_and_noted_nowhere(alert, text):
    assert "Start with the alert's number" in post(mattermost(text=text)).json()["text"]
    assert notes() == []


@pytest.mark.parametrize(
    "made",
    [
        slack({"text": "1 no"}, secret="another"),
        slack({"text": "1 no"}, at=0),
        (slack({"text": "1 no"})[0] + "&text=2+changed", *slack({"text": "1 no"})[1:]),
        (urlencode({"text": "1 no"}), FORM, {}),
        (urlencode({"token": "", "text": "1 no"}), FORM, {}),
        ('{"token": null, "text": "1 no"}', JSON, {}),
        ('{"token": ["a secret of this chat"], "text": "1 no"}', JSON, {}),
        (urlencode({"text": "1 no"}), FORM, {"HTTP_AUTHORIZATION": "HMAC AAAA"}),
        (urlencode({"text": "1 no"}), FORM, {"HTTP_AUTHORIZATION": "Token another"}),
    ],
)
def test_nobody_who_cannot_prove_it_notes_anything(alert, made):
    assert post(made).status_code == 401
    assert notes() == []


def test_without_a_secret_in_the_environment_nothing_is_taken(alert, monkeypatch):
    monkeypatch.delenv("WEIR_SECRET_ANSWERS")
    assert post((urlencode({"token": "", "text": "1 no"}), FORM, {})).status_code == 404
    assert post(mattermost(text="1 no"), receiver="nobody").status_code == 404
    assert notes() == []


def test_guesses_are_counted(alert, control):
    statuses = {post(slack({"text": "1 no"}, secret="another")).status_code for _ in range(30)}
    assert statuses == {401, 429}
    assert post(mattermost(text=f"{alert.pk} on it")).status_code == 200  # the right secret is never refused


def test_who_may_write_in_a_chat_does_not_fill_the_database(alert, monkeypatch):
    monkeypatch.setattr("console.api.ingestion.chat.MAX_NOTES", 5)
    said = [post(mattermost(text=f"{alert.pk} word {number}")).json()["text"] for number in range(8)]
    assert len(notes()) == 5 and all("replies arrived in 10 min" in each for each in said[5:])
    assert "Added to alert" in post(mattermost(text=f"{alert.pk} word 1")).json()["text"]


@pytest.mark.thorough
@given(
    st.dictionaries(
        st.sampled_from(["X-Slack-Signature", "X-Telegram-Bot-Api-Secret-Token", "Authorization"]), st.text(max_size=9)
    ),
    st.binary(max_size=60)
    | st.builds(
        orjson.dumps,
        st.dictionaries(
            st.sampled_from(["token", "text", "message", "data", "from", "user_name"]),
            st.sampled_from([SECRET, 1, None, [], {"text": {}}, {"from": 7, "chat": []}, "12 x"]),
        ),
    ),
)
def test_whatever_is_posted_is_read_or_refused_in_words(headers, body):
    try:
        message = read(headers, body, SECRET, time.time())
    except (Unproven, BadInput):
        return
    number, words = message.parse_alert_reference()
    assert number is None or 0 <= number < 10**12
    assert isinstance(words, str) and isinstance(message.who, str) and isinstance(message, ChatMessage)
    assert message.reply("ok")
