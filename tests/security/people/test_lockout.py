"""Failed logins: counted per account and per address apart, and not to be evaded or turned against people."""

from datetime import timedelta

import pytest
from axes.models import AccessAttempt, AccessLog
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client

from console.accounts import authentication, lockout, second_factor
from console.models import AuditEntry, SecondFactor
from tests.console.conftest import PASSWORD

pytestmark = pytest.mark.django_db
HERE, ELSEWHERE = "192.0.2.7", "198.51.100.9"


def log_in(username, password="wrong", address=HERE, **headers):
    posted = {"username": username, "password": password}
    return Client(REMOTE_ADDR=address).post("/login/", posted, headers=headers).status_code


def test_an_address_that_tries_many_accounts_is_locked(people, control):
    tried = [log_in(f"somebody-{number}") for number in range(lockout.OF_ADDRESS)]
    assert tried == [200] * (lockout.OF_ADDRESS - 1) + [429]
    assert log_in("viewer", PASSWORD) == 429
    assert log_in("viewer", PASSWORD, ELSEWHERE) == 302


def test_names_that_are_longer_than_a_row_takes_count_against_their_address(people, control):
    tried = [log_in(f"{number}{'x' * 5_000}") for number in range(lockout.OF_ADDRESS)]
    assert tried == [200] * (lockout.OF_ADDRESS - 1) + [429]
    longest = AccessAttempt._meta.get_field("username").max_length  # which SQLite does not hold
    assert {len(name) for name in AccessAttempt.objects.values_list("username", flat=True)} == {longest}


def test_an_account_that_is_tried_from_many_addresses_is_locked(people, control):
    for number in range(lockout.OF_ACCOUNT):
        log_in("viewer", address=f"203.0.113.{number}")
    assert log_in("viewer", PASSWORD, HERE) == 429
    assert log_in("operator", PASSWORD, HERE) == 302


def test_a_stranger_keeps_nobody_out_of_where_they_work(people, control):
    assert log_in("administrator", PASSWORD, HERE) == 302
    for number in range(2 * lockout.OF_ACCOUNT):
        log_in("administrator", address=f"203.0.113.{number}")
    assert log_in("administrator", PASSWORD, ELSEWHERE) == 429
    assert log_in("administrator", PASSWORD, HERE) == 302


def test_a_lockout_leaves_sessions_alone_and_is_not_prolonged_by_trying(people, browsers, stored_snapshot):
    for _ in range(lockout.AT_ADDRESS):
        log_in("viewer")
    before = AccessAttempt.objects.get().attempt_time
    assert log_in("viewer") == log_in("viewer", PASSWORD) == 429
    assert AccessAttempt.objects.get().attempt_time == before
    assert browsers["viewer"].get("/nodes/").status_code == 200
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=16))
    assert log_in("viewer", PASSWORD) == 302


def test_a_forged_forwarded_header_changes_nothing(people, control):
    for number in range(lockout.OF_ADDRESS):
        log_in(f"somebody-{number}", **{"X-Forwarded-For": f"203.0.113.{number}"})
    assert log_in("viewer", PASSWORD, **{"X-Forwarded-For": "203.0.113.77"}) == 429
    assert set(AuditEntry.objects.values_list("address", flat=True)) == {HERE}


def test_failures_lockouts_and_logins_are_audited_and_no_typed_name_that_is_none(people, control):
    log_in("my secret pass phrase")
    for _ in range(lockout.AT_ADDRESS):
        log_in("viewer")
    log_in("viewer", PASSWORD, ELSEWHERE)
    noted = list(AuditEntry.objects.order_by("pk").values_list("actor", "action"))
    assert noted[:2] == [("unknown", "login.failed"), ("viewer", "login.failed")]
    assert ("viewer", "login.locked") in noted and noted[-1] == ("viewer", "login")
    assert "my secret pass phrase" not in str(list(AuditEntry.objects.values()))


def test_wrong_tokens_are_limited_per_address_and_good_ones_are_not(people, secrets, control):
    def ask(secret, address=HERE):
        return Client(REMOTE_ADDR=address).get("/api/v1/loops", headers={"Authorization": f"Bearer {secret}"})

    answers = [ask(f"weir_{number}") for number in range(authentication.MAX_FAILURES + 1)]
    assert [each.status_code for each in answers] == [401] * authentication.MAX_FAILURES + [429]
    assert 0 < int(answers[-1]["Retry-After"]) <= authentication.WINDOW_SECONDS
    assert ask("weir_x", ELSEWHERE).status_code == 401
    assert ask(secrets["viewer"]).status_code == 200


@pytest.mark.parametrize("addresses", ["2001:db8:0:1::{:x}", "2001:db8:0:1:{:x}:2:3:4", "::ffff:192.0.2.7"])
def test_one_customer_of_a_provider_tries_accounts_from_one_address(people, control, addresses):
    tried = [log_in(f"somebody-{number}", address=addresses.format(number)) for number in range(lockout.OF_ADDRESS)]
    assert tried == [200] * (lockout.OF_ADDRESS - 1) + [429]
    assert log_in("viewer", PASSWORD, addresses.format(77)) == 429
    assert log_in("viewer", PASSWORD, "2001:db8:0:2::1") == 302


def test_a_customer_of_a_provider_who_has_another_address_today_works_on(people, control):
    assert log_in("administrator", PASSWORD, "2001:db8:0:1::1") == 302
    for number in range(lockout.OF_ACCOUNT):
        log_in("administrator", address=f"203.0.113.{number}")
    assert log_in("administrator", PASSWORD, "2001:db8:0:2::1") == 429
    assert log_in("administrator", PASSWORD, "2001:db8:0:1::2") == 302
    assert AuditEntry.objects.latest("pk").address == "2001:db8:0:1::2"  # whole, where it is only noted


@pytest.mark.parametrize("addresses", ["2001:db8:0:1::{:x}", "::ffff:192.0.2.7"])
def test_wrong_tokens_are_limited_per_customer_of_a_provider(people, secrets, control, addresses):
    statuses = [
        Client(REMOTE_ADDR=addresses.format(number))
        .get("/api/v1/loops", headers={"Authorization": f"Bearer weir_{number}"})
        .status_code
        for number in range(authentication.MAX_FAILURES + 1)
    ]
    assert statuses == [401] * authentication.MAX_FAILURES + [429]


def test_logins_are_noted_for_as_long_as_they_count_and_no_longer(people, control):
    assert log_in("viewer", PASSWORD) == 302
    AccessLog.objects.update(attempt_time=F("attempt_time") - lockout.KNOWN_FOR - timedelta(days=1))
    assert log_in("viewer", PASSWORD, ELSEWHERE) == 302
    assert list(AccessLog.objects.values_list("ip_address", flat=True)) == [ELSEWHERE]


def test_the_form_of_another_password_is_no_way_to_guess_the_old_one(people, stored_snapshot):
    """As at a login: counted, audited, and in a lockout none is right."""
    browser = Client(REMOTE_ADDR=HERE)
    browser.force_login(people["viewer"])
    new = "another long pass phrase"

    def change(old):
        posted = {"old_password": old, "new_password1": new, "new_password2": new}
        return browser.post("/settings/", posted).status_code

    tried = [change(f"guess {number}") for number in range(lockout.AT_ADDRESS)]
    assert tried == [422] * (lockout.AT_ADDRESS - 1) + [429]
    assert change(PASSWORD) == 429 and log_in("viewer", PASSWORD) == 429
    assert not User.objects.get(username="viewer").check_password(new)
    noted = AuditEntry.objects.filter(actor="viewer")
    assert noted.filter(action="login.failed").count() == lockout.AT_ADDRESS
    assert noted.filter(action="login.locked").exists()


def test_a_mistyped_old_password_leaves_no_password_in_the_database(people, stored_snapshot):
    browser = Client(REMOTE_ADDR=HERE)
    browser.force_login(people["viewer"])
    new = "another long pass phrase"
    typed = {"old_password": f"{PASSWORD}!", "new_password1": new, "new_password2": new}
    assert browser.post("/settings/", typed).status_code == 422
    kept = str(list(AccessAttempt.objects.values()))
    assert "viewer" in kept and not [each for each in typed.values() if each in kept]


def test_who_knows_the_old_password_changes_it(people, stored_snapshot):
    browser = Client(REMOTE_ADDR=HERE)
    browser.force_login(people["viewer"])
    new = "another long pass phrase"
    posted = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert browser.post("/settings/", posted).status_code == 302
    assert browser.get("/settings/").status_code == 200 and log_in("viewer", new) == 302


def test_a_wrong_code_at_the_confirmation_is_audited(people, browsers, stored_snapshot):
    second_factor.begin(people["viewer"])
    factor = SecondFactor.objects.get(user=people["viewer"])
    factor.confirmed = True
    factor.save()
    assert browsers["viewer"].post("/confirm/", {"code": "000000"}).status_code == 422
    assert AuditEntry.objects.get(action="login.failed").actor == "viewer"
