"""What was learned from a loop's record: shown with its proof, approved by its hash, refused once changed."""

import html

import pytest

from console.models import AuditEntry
from tests.workers.control.records import WASTEFUL, wasteful_loop
from workers.models import Loop, Override, Tuning

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]
HASH = "ab" * 32
REASON = {"reason": "the record speaks for it", "minutes": "60"}


@pytest.fixture
def loop():
    return wasteful_loop()


@pytest.fixture
def tuning(loop):
    return Tuning.objects.create(
        loop=loop, values={"fill_share": 0.8}, instead_of={"fill_share": WASTEFUL["fill_share"]},
        days=[{"day": "2026-03-09", "before": 2.0, "after": 1.5}], improvement=0.25, confidence=0.99, hash=HASH,
    )  # fmt: skip


def decide(browser, tuning, decision, **more):
    body = {"tuning": tuning.pk, "decision": decision, "hash": HASH, **REASON, **more}
    return browser.post(f"/loops/{tuning.loop_id}/tuning", body)


def unchanged(tuning):
    tuning.refresh_from_db()
    return tuning.state == "proposed" and not Override.objects.exists() and not AuditEntry.objects.exists()


def test_the_page_shows_the_values_beside_those_in_force_and_what_they_would_save(operator, tuning):
    page = operator.get(f"/loops/{tuning.loop_id}/").content.decode()
    section = page[page.index('id="tuning-title"') :].split("</section>")[0]
    assert "reduced the cost by 25 % on the plant model" in " ".join(section.split())
    assert all(shown in section for shown in ("0.05", "0.8", "2026-03-09", "Approve tuning abababab"))


def test_an_approved_tuning_stands_as_an_override_that_ends_and_is_audited(operator, tuning):
    assert decide(operator, tuning, "approve").status_code == 302
    made = Override.objects.get()
    assert (made.name, made.value, made.reason) == ("fill_share", 0.8, REASON["reason"])
    assert made.expires_at is not None
    tuning.refresh_from_db()
    assert (tuning.state, tuning.decided_by.get_username()) == ("approved", "operator")
    entry = AuditEntry.objects.get(action="tuning.approve")
    assert (entry.actor, entry.target, entry.reason) == ("operator", tuning.loop.name, REASON["reason"])


def test_another_s_hash_is_refused_and_changes_nothing(operator, tuning):
    answer = decide(operator, tuning, "approve", hash="cd" * 32)
    assert answer.status_code == 422
    assert answer.context["errors"] == {
        "hash": ["does not match this tuning; open the tuning again and approve the version shown."]
    }
    assert unchanged(tuning)


def test_a_loop_that_has_changed_since_refuses_the_approval_and_its_page_says_why(operator, tuning):
    Loop.objects.filter(pk=tuning.loop_id).update(parameters={**WASTEFUL, "fill_share": 0.5})
    answer = decide(operator, tuning, "approve")
    assert answer.context["errors"] == {
        "tuning": ["is out of date: the loop's values have changed since (fill_share). Run the task tuning again."]
    }
    assert unchanged(tuning)
    page = html.unescape(answer.content.decode())
    assert "This tuning can no longer be approved: the loop's values have changed since (fill_share)" in page
    assert "Approve tuning abababab" not in page


def test_a_rejected_tuning_leaves_the_page_and_can_not_be_approved(operator, tuning):
    assert decide(operator, tuning, "reject").status_code == 302
    assert not Override.objects.exists()
    assert AuditEntry.objects.get().action == "tuning.reject"
    assert 'id="tuning-title"' not in operator.get(f"/loops/{tuning.loop_id}/").content.decode()
    answer = decide(operator, tuning, "approve")
    assert answer.context["errors"] == {
        "tuning": ["is already rejected; only a proposed tuning can be approved or rejected."]
    }
    assert not Override.objects.exists()


def test_a_tuning_of_another_loop_is_not_found(operator, tuning):
    other = Loop.objects.create(name="rebalancing", law="rebalancing")
    body = {"tuning": tuning.pk, "decision": "reject", **REASON}
    assert operator.post(f"/loops/{other.pk}/tuning", body).status_code == 404
    assert unchanged(tuning)


def test_the_api_lists_approves_and_rejects(operator, tuning):
    def post(path, body):
        return operator.post(f"/api/v1/tunings/{path}", body, content_type="application/json")

    listed = operator.get("/api/v1/tunings").json()["tunings"]
    assert [(each["id"], each["hash"], each["state"]) for each in listed] == [(tuning.pk, HASH, "proposed")]
    assert post("999999/reject", {"reason": "a test"}).status_code == 404
    body = {"hash": "cd" * 32, "reason": "a test", "minutes": 5}
    assert list(post(f"{tuning.pk}/approve", body).json()["errors"]) == ["hash"]
    assert unchanged(tuning)
    made = post(f"{tuning.pk}/approve", {**body, "hash": HASH}).json()["overrides"]
    assert [(each["name"], each["value"]) for each in made] == [("fill_share", 0.8)]
    assert list(post(f"{tuning.pk}/reject", {"reason": "a test"}).json()["errors"]) == ["tuning"]
