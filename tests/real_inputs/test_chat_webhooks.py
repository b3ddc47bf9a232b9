"""Chat services post more than answers: what proves itself gets a 2xx, and what is no answer is ignored."""

from urllib.parse import urlencode

import orjson
import pytest

from tests.console.api.test_chat import FORM, JSON, SECRET, alert, notes, post, slack, slack_json, telegram
from workers.alerts.lifecycle.models import Alert

__all__ = ["alert"]
pytestmark = pytest.mark.django_db
TELEGRAM = {"HTTP_X_TELEGRAM_BOT_API_SECRET_TOKEN": SECRET}


def update(**fields):
    return orjson.dumps({"update_id": 7, **fields}).decode(), JSON, TELEGRAM


def message(text, **fields):
    return {"from": {"username": "dora"}, "chat": {"id": 4711}, "text": text, **fields}


def posted(**fields):
    return orjson.dumps({"token": SECRET, "user_name": "anna", **fields}).decode(), JSON, {}


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"token": SECRET}, {"HTTP_AUTHORIZATION": f"Token {SECRET}"}),
        ({}, {"HTTP_AUTHORIZATION": f"Token {SECRET}"}),
        ({"token": SECRET}, {"HTTP_AUTHORIZATION": "Basic b2Y6YSBwcm94eQ=="}),
        ({"token": SECRET, "user_mentions": ["a", "b"] * 80}, {}),
    ],
    ids=["header-and-form", "header-alone", "header-of-a-proxy", "many-mentions"],
)
def test_a_slash_command_of_mattermost_is_recorded_by_any_proof_that_holds(alert, fields, headers):
    form = {"command": "/weir", "text": f"{alert.pk} n3 is restarted", "user_name": "anna", **fields}
    answer = post((urlencode(form, doseq=True), FORM, headers))
    assert answer.status_code == 200, answer.content
    assert notes() == ["anna, in a chat: n3 is restarted"]


def verification(challenge, **fields):
    return {"type": "url_verification", "challenge": challenge, **fields}


@pytest.mark.parametrize("challenge", ["3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", "c" * 1_000, "ß<&>"])
def test_slack_gets_back_its_challenge(alert, challenge):
    signed = slack_json(verification(challenge, token="deprecated"))
    for sent in (signed, posted(**verification(challenge))):
        answer = post(sent)
        assert answer.status_code == 200 and answer.json() == {"challenge": challenge}
        assert answer["Content-Type"].startswith("application/json")
    assert not notes()


def test_whoever_does_not_know_the_secret_gets_no_challenge_back(alert):
    body, kind, headers = slack_json(verification("abc"))
    assert post((body.replace("abc", "abd"), kind, headers)).status_code == 401
    assert post((body, kind, {})).status_code == 401


OTHERS = {
    "edited": lambda n: update(edited_message=message(f"{n} n3 up!")),
    "membership": lambda n: update(my_chat_member={"chat": {"id": 4711}}),
    "channel-post": lambda n: update(channel_post=message(f"{n} x")),
    "button": lambda n: update(callback_query={"id": "1", "data": f"{n} x", "message": message("x")}),
    "picture": lambda n: update(message={"from": {}, "chat": {"id": 4711}, "photo": []}),
    "null-message": lambda n: update(message=None),
    "other-chat": lambda n: update(message=message(f"{n} hello", chat={"id": 555})),
    "other-bot": lambda n: update(message=message(f"{n} x", **{"from": {"is_bot": True, "username": "b"}})),
    "other-command": lambda n: update(message=message(f"/ban@other_bot {n} somebody")),
    "too-deep": lambda n: ('{"message":' + "[" * 2_000 + "]" * 2_000 + "}", JSON, TELEGRAM),
    "no-json": lambda n: ("{", JSON, TELEGRAM),
    "rocket-bot": lambda n: posted(text=f"{n} x", bot={"i": "b1"}),
    "rocket-edited": lambda n: posted(text=f"{n} x", isEdited=True),
    "zulip-itself": lambda n: posted(data=f"{n} x", bot_email="b@z", message={"sender_email": "b@z"}),
    "slack-bot": lambda n: slack({"bot_id": "B1", "text": f"{n} x"}),
    "slack-button": lambda n: slack({"payload": '{"type": "block_actions"}'}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_is_proven_and_no_answer_is_ignored_and_is_no_failed_proof(alert, control, other):
    answers = [post(other(alert.pk)) for _ in range(24)]
    assert {(each.status_code, each.content) for each in answers} == {(200, b"{}")}
    assert notes() == []
    assert Alert.objects.get().state == Alert.State.FIRING
    assert post(telegram(f"{alert.pk} no", secret="another")).status_code == 401  # not 429: none was counted


def test_text_that_cannot_be_stored_is_refused_in_words(alert):
    answer = post(update(message=message(f"{alert.pk} a\0b")))
    assert answer.status_code == 200
    assert answer.json()["text"].startswith("Not recorded: text must be UTF-8 text")
    assert notes() == []
