"""Logging in with a second factor, proving anew who one is, and sessions that nobody else has."""

import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.utils import timezone
from django_otp.oath import TOTP

from console.accounts import access, second_factor
from console.models import AuditEntry, SecondFactor
from tests.console.conftest import PASSWORD
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db


WHY = {"reason": "a test"}


def code_of(user, steps_ahead=0):
    """What the app shows; of a later step, since each code holds once."""
    app = TOTP(SecondFactor.objects.get(user=user).bin_key)
    app.time = time.time() + 30 * steps_ahead
    return f"{app.token():06}"


@pytest.fixture
def codes(people):
    """The viewer has a second factor; its recovery codes."""
    second_factor.begin(people["viewer"])
    return second_factor.confirm(people["viewer"], code_of(people["viewer"]))


def unthrottled():
    """As if the seconds after a wrong code had passed."""
    SecondFactor.objects.update(throttling_failure_timestamp=None, throttling_failure_count=0)


def begin_login(username="viewer"):
    browser = Client()
    answer = browser.post("/login/?next=/nodes/", {"username": username, "password": PASSWORD})
    assert answer.url == "/login/code/?next=%2Fnodes%2F"
    return browser


def test_the_password_alone_logs_nobody_in(people, codes, stored_snapshot):
    browser = begin_login()
    assert browser.get("/nodes/").status_code == 302
    answer = browser.post("/login/code/", {"code": code_of(people["viewer"], 1), "next": "/nodes/"})
    assert answer.url == "/nodes/" and browser.get("/nodes/").status_code == 200


def test_a_code_holds_once(people, codes, control):
    code = code_of(people["viewer"], 1)
    assert begin_login().post("/login/code/", {"code": code}).status_code == 302
    assert begin_login().post("/login/code/", {"code": code}).status_code == 422


def test_after_a_wrong_code_the_right_one_has_to_wait(people, codes, control):
    browser = begin_login()
    assert browser.post("/login/code/", {"code": "000000"}).status_code == 422
    assert browser.post("/login/code/", {"code": code_of(people["viewer"], 1)}).status_code == 422
    assert browser.post("/login/code/", {"code": codes[0]}).status_code == 422
    unthrottled()
    assert browser.post("/login/code/", {"code": code_of(people["viewer"], 1)}).status_code == 302
    # What is tried while no code is checked is folded: whoever tries on must not fill the audit.
    noted = AuditEntry.objects.filter(actor="viewer")
    assert [noted.filter(action=each).count() for each in ("login.failed", "refused.login")] == [1, 1]


def test_each_recovery_code_stands_in_once(people, codes, control):
    assert len(codes) == 10 == second_factor.count_unused_codes(people["viewer"])
    assert begin_login().post("/login/code/", {"code": codes[3].upper()}).status_code == 302
    assert begin_login().post("/login/code/", {"code": codes[3]}).status_code == 422


@pytest.mark.parametrize("end", ["too late", "another password", "disabled"])
def test_a_right_password_is_worth_nothing_later(end, people, codes, control):
    browser = begin_login()
    if end == "too late":
        session = browser.session
        session["weir_pending"] = [*session["weir_pending"][:2], time.time() - 301]
        session.save()
    if end == "another password":
        people["viewer"].set_password("another long pass phrase")
        people["viewer"].save()
    if end == "disabled":
        User.objects.filter(username="viewer").update(is_active=False)
    answer = browser.post("/login/code/", {"code": code_of(people["viewer"], 1)})
    assert answer.url.startswith("/login/?next=") and browser.get("/settings/").status_code == 302


@pytest.mark.parametrize("code", ["", " ", "12345678901234567890" * 300, "١٢٣٤٥٦", "\ud800", "-1", "1e9"])
def test_an_odd_code_is_wrong_and_nothing_else(code, people, codes):
    assert second_factor.is_right(people["viewer"], code, timezone.now()) is False


def test_the_database_holds_neither_key_nor_recovery_code(people, codes):
    held = SecondFactor.objects.get()
    kept = str(list(SecondFactor.objects.values()))
    assert held.bin_key.hex() not in kept and len(held.bin_key) == 20
    other = second_factor.begin(people["operator"])
    SecondFactor.objects.filter(pk=other.pk).update(key=held.key)
    with pytest.raises(ValueError, match="can't be read"):  # nor is it of use under another's name
        SecondFactor.objects.get(pk=other.pk).bin_key  # noqa: B018


def test_it_is_set_up_with_a_picture_and_a_first_code_and_switched_off_again(browsers, people, stored_snapshot):
    browser, address = browsers["viewer"], "/settings/second-factor/"
    page = browser.post(address, {"do": "begin"})
    assert "<svg" in page.context["picture"] and page["Cache-Control"] == "no-store"
    assert browser.post(address, {"do": "confirm", "code": "12"}).status_code == 422
    assert second_factor.find_confirmed(people["viewer"]) is None
    unthrottled()
    page = browser.post(address, {"do": "confirm", "code": code_of(people["viewer"])})
    assert len(page.context["codes"]) == 10
    assert browser.get(address).context["codes"] is None
    browser.post(address, {"do": "remove"})
    assert not SecondFactor.objects.exists()
    assert list(AuditEntry.objects.filter(action="account.second_factor").values_list("after", flat=True)) == [
        {"on": True},
        {"on": False},
    ]


def test_administrators_without_one_act_as_viewers_where_the_setting_says_so(browsers, people, stored_snapshot):
    plant_settings.change("login.second_factor", 1, people["administrator"], timezone.now())
    assert browsers["administrator"].get("/settings/users/").status_code == 403
    assert browsers["administrator"].get("/settings/second-factor/").status_code == 200
    second_factor.begin(people["administrator"])
    second_factor.confirm(people["administrator"], code_of(people["administrator"]))
    assert browsers["administrator"].get("/settings/users/").status_code == 200


def aged(browser, seconds=access.CONFIRMED_SECONDS + 1):
    """The browser, its person's last proof so long ago."""
    session = browser.session
    session[access.CONFIRMED_AT] = time.time() - seconds
    session.save()
    return browser


CREATE = {"username": "mallory", "role": "administrator", **WHY}
DANGEROUS = {
    "/settings/users/create": CREATE,
    "/settings/plant/plan.expires_seconds": {"value": 600, **WHY},
    "/settings/tokens": {"name": "t", "role": "administrator", "days": 3},
    "/alerts/receivers/change": {"name": "desk", "channel": "browser", **WHY},
    "/plants/register": {"name": "east", "kind": "weir", "url": "http://east", **WHY},
    "/settings/second-factor/": {"do": "begin"},
}


@pytest.mark.parametrize("address", DANGEROUS)
def test_an_old_login_does_nothing_of_consequence_before_a_new_proof(address, browsers, stored_snapshot):
    browser = aged(browsers["administrator"])
    referer = {"referer": "http://testserver/settings/users/?a=1"}
    posted = {**DANGEROUS[address], "submission": "form-0123456789"}
    answer = browser.post(address, posted, headers=referer)
    assert answer.url == "/confirm/?next=%2Fsettings%2Fusers%2F%3Fa%3D1"
    told = browser.post(address, posted, headers={"accept": "application/json"})
    assert (told.status_code, told.json()["confirm"]) == (403, "/confirm/")
    assert AuditEntry.objects.count() == 0 and User.objects.count() == 4
    proved = browser.post("/confirm/", {"password": PASSWORD, "next": "/settings/users/?a=1"})
    assert proved.url == "/settings/users/?a=1"
    assert browser.post(address, posted).status_code in (200, 302, 422)  # 422: that plant does not answer


@pytest.mark.parametrize("referer", ["http://[", "http://[::1", "http://testserver@[", "//[/", ""])
def test_a_form_from_a_page_that_is_no_address_leads_to_the_login_and_the_overview(referer, stored_snapshot):
    answer = Client().post("/settings/users/create", CREATE, headers={"referer": referer})
    assert answer.url == "/login/?next=/"


def test_a_proof_of_before_the_clock_was_set_back_does_nothing_of_consequence(browsers, stored_snapshot):
    browser = aged(browsers["administrator"], -3_600)
    assert browser.post("/settings/users/create", CREATE).url.startswith("/confirm/")
    assert browser.post("/confirm/", {"password": PASSWORD}).status_code == 302
    assert browser.post("/settings/users/create", CREATE).status_code in (200, 302)
    assert User.objects.filter(username="mallory").exists()


def test_a_wrong_code_of_before_the_clock_was_set_back_lets_the_right_one_in(people, codes, control):
    ahead = timezone.now() + timedelta(hours=1)
    SecondFactor.objects.update(throttling_failure_timestamp=ahead, throttling_failure_count=1)
    browser = begin_login()
    assert browser.post("/login/code/", {"code": code_of(people["viewer"], 1)}).status_code == 422
    waited = F("throttling_failure_timestamp") - timedelta(seconds=1)
    SecondFactor.objects.update(throttling_failure_timestamp=waited)
    assert browser.post("/login/code/", {"code": code_of(people["viewer"], 1)}).status_code == 302


def test_a_second_factor_that_was_begun_is_not_bound_from_a_browser_that_was_left_open(
    browsers, people, stored_snapshot
):
    second_factor.begin(people["operator"])
    posted = {"do": "confirm", "code": code_of(people["operator"])}
    answer = aged(browsers["operator"]).post("/settings/second-factor/", posted)
    assert answer.url.startswith("/confirm/") and second_factor.find_confirmed(people["operator"]) is None


def test_a_wrong_password_confirms_nothing_and_counts_as_a_failed_login(browsers, stored_snapshot):
    browser = aged(browsers["administrator"])
    assert browser.post("/confirm/", {"password": "wrong"}).status_code == 422
    browser.post("/settings/users/create", CREATE)
    assert not User.objects.filter(username="mallory").exists()
    assert AuditEntry.objects.filter(action="login.failed", actor="administrator").count() == 1


def test_who_has_a_second_factor_confirms_by_its_code_not_by_the_password(browsers, people, codes, control):
    browser = aged(browsers["viewer"])
    assert browser.post("/confirm/", {"password": PASSWORD}).status_code == 422
    unthrottled()
    assert browser.post("/confirm/", {"code": code_of(people["viewer"], 1)}).status_code == 302


def test_the_api_asks_an_old_login_too_and_a_token_not(browsers, people, control):
    browser = aged(browsers["administrator"])
    answer = browser.post("/api/v1/users", CREATE, content_type="application/json")
    assert answer.status_code == 403 and "/confirm/" in answer.content.decode()
    secret = access.create_token(
        people["administrator"], "t", "administrator", timezone.now() + timedelta(1), actions=["user"]
    )[1]
    assert post_by(secret).status_code == 403
    secret = access.create_token(
        people["administrator"], "u", "administrator", timezone.now() + timedelta(1), actions=["user.manage"]
    )[1]
    assert post_by(secret).status_code == 201


def post_by(secret):
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().post("/api/v1/users", CREATE, content_type="application/json", headers=headers)


@pytest.mark.parametrize("where", ["https://elsewhere/", "//elsewhere/", "javascript:alert(1)", "/\\elsewhere"])
def test_neither_code_nor_confirmation_leads_to_another_site(where, browsers, people, codes, control):
    assert begin_login().post("/login/code/", {"code": codes[0], "next": where}).url == "/"
    assert browsers["operator"].post("/confirm/", {"password": PASSWORD, "next": where}).url == "/"


def test_a_session_that_nobody_uses_ends(people, browsers, stored_snapshot):
    browser = browsers["viewer"]
    row = people["viewer"].weir_sessions
    for minutes, status in ((479, 200), (481, 302)):
        row.update(seen_at=timezone.now() - timedelta(minutes=minutes), address="127.0.0.1")
        assert browser.get("/nodes/", headers={"X-Weir-Parts": "1"}).status_code == status


def test_a_page_that_follows_the_plant_by_itself_does_not_keep_a_session(people, browsers, stored_snapshot):
    browser, row = browsers["viewer"], people["viewer"].weir_sessions
    browser.get("/nodes/")
    row.update(seen_at=timezone.now() - timedelta(minutes=60))
    before = row.get().seen_at
    browser.get("/nodes/", headers={"X-Weir-Parts": "1"})
    browser.get("/api/v1/live")
    assert row.get().seen_at == before
    browser.get("/nodes/")
    assert row.get().seen_at > before


def everything_kept():
    """All rows of all tables, as text."""
    with connection.cursor() as cursor:
        rows = []
        for table in connection.introspection.django_table_names(only_existing=True):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += cursor.fetchall()
    return str(rows)


def test_the_database_holds_no_key_of_a_session(browsers, stored_snapshot):
    browser = browsers["viewer"]
    assert browser.get("/nodes/").status_code == 200
    assert browser.cookies["sessionid"].value not in everything_kept()


def test_a_session_that_was_never_used_stays_dead_when_its_owner_is_enabled_again(people, browsers, stored_snapshot):
    unused = Client()
    unused.post("/login/", {"username": "operator", "password": PASSWORD})
    for change in ("disable", "enable"):
        posted = {"change": change, "reason": "a test"}
        browsers["administrator"].post(f"/settings/users/{people['operator'].pk}", posted)
    assert unused.get("/nodes/").status_code == 302
