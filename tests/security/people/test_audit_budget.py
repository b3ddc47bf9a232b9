"""No viewer fills the audit, which is never deleted: repeats are folded, and an account has a budget."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from console.accounts.access import ACTIONS, Actor, create_token, get_action_family
from console.audit import audit_log, refusals
from console.models import ApiToken, AuditEntry, SavedFilter

pytestmark = pytest.mark.django_db(transaction=True)
LEDGER = "/api/v1/ledger/export"


@pytest.fixture(autouse=True)
def monotonic(monkeypatch):
    """What time it is for the folding: the test sets it."""
    now = [0.0]
    monkeypatch.setattr(refusals, "entry_fold", refusals.Fold(lambda: now[0]))
    yield now


@pytest.fixture
def small_budget(monkeypatch):
    """Three at once, then one each 1,000 s: no test lasts so long."""
    monkeypatch.setattr(refusals, "MAX_AT_ONCE", 3)
    monkeypatch.setattr(refusals, "SECONDS_FOR_ONE", 1_000)


def actions():
    return list(AuditEntry.objects.order_by("sequence").values_list("action", flat=True))


def read(client, address, **headers):
    answer = client.get(address, **headers)
    if answer.streaming:
        answer.getvalue()
    return answer.status_code


def test_an_export_that_is_repeated_within_a_minute_is_one_entry_and_the_next_says_how_often(
    browsers, control, monotonic
):
    for _ in range(5):
        assert read(browsers["viewer"], LEDGER) == 200
    assert actions() == ["export.ledger", "export.ledger.end"]
    monotonic[0] += refusals.MINUTE_SECONDS
    assert read(browsers["viewer"], LEDGER) == 200
    third = AuditEntry.objects.get(sequence=3)
    assert third.action == "export.ledger" and third.after["repeats_not_noted"] == 4
    assert third.after["about"] == {"filter": {}}


def test_exports_that_differ_are_refused_beyond_the_budget_and_none_goes_without_an_entry(
    browsers, control, small_budget
):
    answers = [read(browsers["viewer"], f"{LEDGER}?law=law{number}") for number in range(12)]
    allowed = answers.count(200)
    assert allowed == answers.index(429) == 4 and set(answers) == {200, 429}
    assert actions() == ["export.ledger", "export.ledger.end"] * allowed
    filters = AuditEntry.objects.filter(action="export.ledger").values_list("after__filter__law", flat=True)
    assert sorted(filters) == [f"law{number}" for number in range(allowed)]


def test_the_refusal_names_what_was_used_up_and_when_to_try_again(browsers, control, small_budget):
    for number in range(4):
        read(browsers["viewer"], f"{LEDGER}?law={number}")
    for address in (f"{LEDGER}?law=9", "/timeline/table.csv?what=events", "/alerts/review/?format=json"):
        answer = browsers["viewer"].get(address)
        assert (answer.status_code, answer.streaming) == (429, False), address
        assert int(answer["Retry-After"]) > 0 and b"entries such as export." in answer.content


def test_the_budget_is_the_accounts_whichever_token_it_uses(browsers, client, control, small_budget):
    owner = User.objects.get(username="viewer")
    day = timezone.now() + timedelta(days=1)
    made = [create_token(owner, f"t{number}", "viewer", day)[1] for number in range(6)]
    answers = [
        read(client, f"{LEDGER}?law={number}", HTTP_AUTHORIZATION=f"Bearer {secret}")
        for number, secret in enumerate(made)
    ]
    assert answers == [200] * 4 + [429] * 2
    assert read(browsers["operator"], f"{LEDGER}?law=1") == 200


def test_tokens_and_filters_beyond_the_budget_are_not_made(browsers, control, small_budget):
    for number in range(8):
        form = {"name": f"t{number}", "role": "viewer", "days": 1, "page": "ledger", "query": f"law={number}"}
        browsers["viewer"].post("/settings/tokens", form)
        browsers["viewer"].post("/filters/save", form)
    made = ApiToken.objects.filter(owner__username="viewer").count() + SavedFilter.objects.count()
    assert made == len([each for each in actions() if each in ("token.create", "filter.save")]) <= 4


def test_a_password_that_is_changed_again_and_again_is_folded_but_never_refused():
    actor = Actor("desk-2", "viewer", user=User(pk=7), address="192.0.2.7")
    for _ in range(50):
        audit_log.record(actor, "account.password", "desk-2")
    assert actions() == ["account.password"]


def test_logins_from_many_addresses_are_counted_beyond_the_most_of_a_minute(monotonic):
    for number in range(100):
        actor = Actor("desk-2", "viewer", user=User(pk=7), address=f"192.0.2.{number}")
        audit_log.record(actor, "login", "desk-2", after={"by": "password"})
    assert len(actions()) == refusals.MAX_A_MINUTE
    monotonic[0] += refusals.MINUTE_SECONDS
    audit_log.record(actor, "login", "desk-2", after={"by": "password"})
    assert AuditEntry.objects.latest("sequence").after["repeats_not_noted"] == 100 - refusals.MAX_A_MINUTE


def test_failed_logins_of_strangers_hide_no_login_of_the_account():
    for number in range(60):
        stranger = Actor("desk-2", None, address=f"198.51.100.{number}")
        audit_log.record(stranger, "login.failed", "desk-2")
    audit_log.record(Actor("desk-2", "viewer", address="192.0.2.7"), "login", "desk-2")
    assert actions()[-1] == "login"


def test_what_was_rolled_back_is_not_taken_for_noted():
    actor = Actor("desk-2", "viewer", user=User(pk=7))
    with pytest.raises(ValueError, match="undone"), transaction.atomic():
        audit_log.record(actor, "account.password", "desk-2")
        raise ValueError("undone")
    audit_log.record(actor, "account.password", "desk-2")
    assert actions() == ["account.password"]


def test_changes_of_the_plant_are_never_folded():
    actor = Actor("desk-2", "operator", user=User(pk=7))
    for _ in range(30):
        audit_log.record(actor, "mark.add", "mark", reason="the same")
    assert actions() == ["mark.add"] * 30


def test_whatever_a_viewer_may_do_is_bounded():
    """What is added to the table for viewers has to be named in `repeats`, too."""
    bounded = refusals.FOLDED | refusals.BUDGETED | {"plant.view"}  # viewing adds nothing
    families = {get_action_family(each) for each in bounded}
    of_viewers = {action for action, role in ACTIONS.items() if role == "viewer"}
    assert {
        action for action in of_viewers if action not in bounded and get_action_family(action) not in families
    } == set()
