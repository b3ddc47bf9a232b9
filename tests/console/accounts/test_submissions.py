"""A form sent twice changes once: double clicks, replayed posts, a script that tries again."""

import json
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test.client import encode_multipart
from django.utils import timezone

from console.actions import loops
from console.models import ApiToken, AuditEntry, Submission
from tests.console.hanging_up import HangingUp
from workers.models import Override

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("control")]
KEY = {"Idempotency-Key": "0123456789abcdef"}
BODY = {"name": "upper_limit", "value": 500, "reason": "a burst", "minutes": 2}


def send(browser, address, posted, key=None):
    return browser.post(address, posted, headers={"accept": "application/json", **(KEY if key is None else key)})


def test_a_form_sent_twice_changes_once_and_gets_the_same_answer(operator, loop):
    first, second = (send(operator, f"/loops/{loop.pk}/override", BODY) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert "Idempotent-Replay" not in first and second["Idempotent-Replay"] == "true"
    assert (Override.objects.count(), AuditEntry.objects.count()) == (1, 1)


def test_without_a_key_each_form_counts(operator, loop):
    for _ in range(2):
        send(operator, f"/loops/{loop.pk}/override", BODY, key={})
    assert (Override.objects.count(), Submission.objects.count()) == (2, 0)


def test_a_refusal_frees_the_key(operator, loop):
    assert send(operator, f"/loops/{loop.pk}/override", {**BODY, "reason": ""}).status_code == 422
    assert send(operator, f"/loops/{loop.pk}/override", BODY).status_code == 200
    assert Override.objects.count() == 1


def test_the_api_takes_keys_too_and_they_belong_to_the_token(client, secrets, loop):
    def post(role):
        headers = {"Authorization": f"Bearer {secrets[role]}", **KEY}
        body = {**BODY, "loop": loop.pk}
        return client.post("/api/v1/overrides", body, content_type="application/json", headers=headers)

    first, second = post("operator"), post("operator")
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert post("administrator").json()["id"] != first.json()["id"]
    assert Override.objects.count() == 2


def test_a_key_is_of_one_change(operator, loop):
    send(operator, f"/loops/{loop.pk}/override", BODY)
    answer = send(operator, f"/loops/{loop.pk}/mode", {"mode": "advise", "reason": "x"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["Idempotency-Key"])
    loop.refresh_from_db()
    assert loop.mode == "auto"


@pytest.mark.parametrize("other", [{"value": 501}, {"reason": "another"}, {"unknown": "more"}])
def test_a_key_with_another_form_is_refused_and_changes_nothing(other, operator, loop):
    send(operator, f"/loops/{loop.pk}/override", BODY)
    answer = send(operator, f"/loops/{loop.pk}/override", {**BODY, **other})
    (message,) = answer.json()["errors"]["Idempotency-Key"]
    assert answer.status_code == 422 and KEY["Idempotency-Key"] in message
    assert answer["Content-Type"] == "application/problem+json"
    assert Override.objects.get().value == 500


def test_a_form_that_its_browser_encodes_anew_is_the_same_form(operator, loop):
    """Each encoding has another boundary, and a page that was loaded again another CSRF token."""
    path = f"/loops/{loop.pk}/override"
    first = send(operator, path, {**BODY, "csrfmiddlewaretoken": "a"})
    content = encode_multipart("another", {**BODY, "csrfmiddlewaretoken": "b"})
    headers = {"accept": "application/json", **KEY}
    second = operator.post(path, content, content_type="multipart/form-data; boundary=another", headers=headers)
    assert second["Idempotent-Replay"] == "true" and second.content == first.content


@pytest.mark.parametrize(
    ("address", "body", "kind"),
    [
        ("/api/v1/overrides", b'{"name": "upper_limit", "value": 7}', "application/json"),
        ("/api/v1/overrides?other=1", None, "application/json"),
        ("/api/v1/overrides", None, "text/plain"),
        ("/api/v1/overrides", b"", "application/json"),
    ],
)
def test_a_key_with_another_request_to_the_api_is_refused(address, body, kind, client, secrets, loop):
    headers = {"Authorization": f"Bearer {secrets['operator']}", **KEY}
    content = json.dumps({**BODY, "loop": loop.pk}).encode()
    first = client.post("/api/v1/overrides", content, content_type="application/json", headers=headers)
    again = client.post("/api/v1/overrides", content, content_type="application/json", headers=headers)
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    answer = client.post(address, content if body is None else body, content_type=kind, headers=headers)
    assert answer.status_code in (400, 422) and "Idempotent-Replay" not in answer
    assert Override.objects.count() == 1


def test_the_api_compares_forms_that_a_session_sends_too(operator, loop):
    """The check of the CSRF token reads a form, after which its bytes are gone."""
    posted = [{**BODY, "value": value} for value in (500, 501)]
    answers = [operator.post("/api/v1/overrides", each, headers=KEY) for each in posted]
    assert all(400 <= answer.status_code < 500 for answer in answers)


@pytest.mark.parametrize("key", ["short", "x" * 65, "with space", "a;b;c;d;e;f"])
def test_an_odd_key_is_refused_and_nothing_is_changed(key, operator, loop):
    answer = send(operator, f"/loops/{loop.pk}/override", BODY, key={"Idempotency-Key": key})
    assert (answer.status_code, Override.objects.count()) == (422, 0)


def test_a_change_whose_process_died_is_not_begun_again(operator, loop):
    path = f"/loops/{loop.pk}/override"
    Submission.objects.create(actor="user:operator", key=KEY["Idempotency-Key"], path=path)
    assert send(operator, path, BODY).status_code == 409
    assert Override.objects.count() == 0


def test_a_secret_shown_once_is_not_written_down_and_not_made_twice(operator):
    posted = {"name": "mine", "role": "viewer", "days": 5, "submission": "form-0123456789"}
    first, second = (operator.post("/settings/tokens", posted) for _ in range(2))
    secret = first.context["new_token"].secret
    assert second.status_code == 409 and secret not in second.content.decode()
    assert (ApiToken.objects.count(), Submission.objects.get().body) == (1, "")


def test_a_plain_form_sent_twice_leads_on_twice_and_changes_once(operator, loop):
    posted = {**BODY, "submission": "form-0123456789"}
    answers = [operator.post(f"/loops/{loop.pk}/override", posted) for _ in range(2)]
    assert [(answer.status_code, answer["Location"]) for answer in answers] == [(302, f"/loops/{loop.pk}/")] * 2
    assert Override.objects.count() == 1


def test_keys_are_kept_a_day(operator, loop):
    send(operator, f"/loops/{loop.pk}/override", BODY)
    Submission.objects.update(at=timezone.now() - timedelta(days=1, seconds=1))
    send(operator, f"/loops/{loop.pk}/override", BODY, key={"Idempotency-Key": "another-key"})
    assert [each.key for each in Submission.objects.all()] == ["another-key"]


def test_while_the_first_is_at_work_the_second_is_answered_so(operator, loop, monkeypatch):
    """The first is stopped in the middle; the second comes before it goes on."""
    real, seen = loops.override, []

    def slow(*args, **named):
        seen.append(send(operator, f"/loops/{loop.pk}/override", BODY).status_code)
        return real(*args, **named)

    monkeypatch.setattr(loops, "override", slow)
    assert send(operator, f"/loops/{loop.pk}/override", BODY).status_code == 200
    assert seen == [409]
    assert Override.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_who_hangs_up_before_the_answer_gets_it_by_sending_the_same_again(
    application, client, secrets, control, loop, monkeypatch
):
    headers, body = {"authorization": f"Bearer {secrets['operator']}", **KEY}, {**BODY, "loop": loop.pk}
    sent = HangingUp("/api/v1/overrides", body, **headers)
    real = loops.override

    def cut_off(*args, **named):
        sent.hang_up()
        return real(*args, **named)

    monkeypatch.setattr(loops, "override", cut_off)
    async_to_sync(sent.to)(application)
    again = client.post("/api/v1/overrides", sent.body, content_type="application/json", headers=headers)
    assert (again.status_code, again["Idempotent-Replay"]) == (201, "true")
    assert Override.objects.count() == 1
