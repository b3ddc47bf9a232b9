"""Users, their sessions, and what administrators set for good: done, refused, noted."""

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client

from common.errors import BadInput
from console.accounts import people
from console.accounts.access import build_user_actor, find_user_role
from console.models import AuditEntry, UserSession
from tests.console.conftest import PASSWORD
from tests.console.page_form import fetch
from tests.races import another_thread, until_another_waits
from workers.models import Loop, Setting
from workers.steering import plant_settings

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("control")]
WHY = {"reason": "a test"}


def audited():
    changes = AuditEntry.objects.exclude(action__startswith="log").order_by("id")
    return [(each.actor, each.action, each.target) for each in changes]


def logs_in(username, password):
    answer = Client().post("/login/", {"username": username, "password": password})
    return answer.status_code == 302


def test_a_new_user_gets_a_password_shown_once_and_a_role(administrator):
    posted = {"username": "desk-9", "role": "operator", **WHY}
    page = administrator.post("/settings/users/create", posted)
    password = page.context["new_password"].password
    assert page["Cache-Control"] == "no-store" and len(password) >= 12
    assert logs_in("desk-9", password)
    assert [each.name for each in User.objects.get(username="desk-9").groups.all()] == ["operator"]
    assert audited() == [("administrator", "user.create", "desk-9")]
    assert password not in str(AuditEntry.objects.values())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"username": "a b"}, "username"),
        ({"username": ""}, "username"),
        ({"username": "VIEWER"}, "username"),
        ({"role": "king"}, "role"),
        ({"reason": " "}, "reason"),
        ({"password": "short"}, "password"),
        ({"password": "password1234"}, "password"),
    ],
)
def test_a_bad_user_is_refused_at_its_field_and_nothing_typed_is_lost(change, field, administrator):
    posted = {"username": "desk-9", "role": "operator", **WHY, **change}
    page = administrator.post("/settings/users/create", posted)
    assert (page.status_code, list(page.context["errors"])) == (422, [field])
    assert page.context["submitted"]["role"] == posted["role"]
    assert User.objects.count() == 4 and audited() == []


def test_a_role_is_changed_and_holds_from_the_next_request(administrator, browsers, people, stored_snapshot):
    address = f"/settings/users/{people['operator'].pk}"
    assert browsers["viewer"].get("/audit/").status_code == 403
    assert fetch(administrator, address, {"change": "role", "role": "viewer", **WHY}).status_code == 200
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    answer = fetch(browsers["operator"], f"/loops/{loop.pk}/mode", {"mode": "advise", **WHY})
    assert answer.status_code == 403
    assert AuditEntry.objects.get(action="user.role").before == {"role": "operator"}


def test_who_is_disabled_is_out_at_once_everywhere(administrator, browsers, people, secrets, stored_snapshot):
    assert browsers["operator"].get("/nodes/").status_code == 200
    address = f"/settings/users/{people['operator'].pk}"
    assert fetch(administrator, address, {"change": "disable", **WHY}).status_code == 200
    assert browsers["operator"].get("/nodes/").status_code == 302
    headers = {"Authorization": f"Bearer {secrets['operator']}"}
    assert Client().get("/api/v1/loops", headers=headers).status_code == 401
    assert not logs_in("operator", PASSWORD)
    assert fetch(administrator, address, {"change": "disable", **WHY}).status_code == 422
    assert fetch(administrator, address, {"change": "enable", **WHY}).status_code == 200
    assert logs_in("operator", PASSWORD)


@pytest.mark.parametrize("change", [{"change": "disable"}, {"change": "role", "role": "viewer"}])
def test_there_is_always_an_administrator(change, administrator, people):
    address = f"/settings/users/{people['administrator'].pk}"
    assert fetch(administrator, address, {**change, **WHY}).status_code == 422
    assert audited() == [] and User.objects.get(username="administrator").is_active


def test_a_reset_gives_a_new_password_and_ends_their_sessions(administrator, browsers, people, stored_snapshot):
    page = administrator.post(f"/settings/users/{people['viewer'].pk}/reset", WHY)
    password = page.context["new_password"].password
    assert browsers["viewer"].get("/nodes/").status_code == 302
    assert not UserSession.objects.filter(user=people["viewer"]).exists()
    assert logs_in("viewer", password) and not logs_in("viewer", PASSWORD)


def test_sessions_are_listed_without_their_keys_and_ended(browsers, people, stored_snapshot):
    mine, other = browsers["viewer"], Client()
    other.force_login(people["viewer"], backend="django.contrib.auth.backends.ModelBackend")
    for browser in (mine, other):
        assert browser.get("/nodes/", headers={"user-agent": "a browser"}).status_code == 200
    page = mine.get("/settings/")
    assert len(page.context["sessions"]) == 2
    assert other.session.session_key not in page.content.decode()
    found = UserSession.objects.get(digest=other.session.digest)
    assert (found.agent, found.address) == ("a browser", "127.0.0.1")
    assert fetch(mine, f"/settings/sessions/{found.pk}/end", {}).status_code == 200
    assert other.get("/nodes/").status_code == 302
    assert mine.get("/nodes/").status_code == 200
    assert audited() == [("viewer", "session.end", "viewer")]


def test_a_changed_password_ends_the_other_sessions_and_they_are_gone_from_the_list(people, control):
    mine, other = Client(), Client()
    for browser in (mine, other):
        browser.post("/login/", {"username": "viewer", "password": PASSWORD})
        browser.get("/settings/")
    new = "another long pass phrase"
    posted = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert mine.post("/settings/", posted, follow=True).status_code == 200
    assert other.get("/nodes/").status_code == 302
    assert [each.digest for each in UserSession.objects.all()] == [mine.session.digest]
    assert len(mine.get("/settings/").context["sessions"]) == 1


def test_nobody_ends_the_session_of_somebody_else_but_an_administrator(browsers, stored_snapshot):
    browsers["viewer"].get("/nodes/")
    found = UserSession.objects.get(user__username="viewer")
    assert fetch(browsers["operator"], f"/settings/sessions/{found.pk}/end", {}).status_code == 404
    assert fetch(browsers["administrator"], f"/settings/sessions/{found.pk}/end", {}).status_code == 200
    assert browsers["viewer"].get("/nodes/").status_code == 302


def test_a_login_lasts_as_long_as_the_setting_says(people, control):
    plant_settings.change("session.hours", 2, people["administrator"], people["viewer"].date_joined)
    browser = Client()
    browser.post("/login/", {"username": "viewer", "password": PASSWORD})
    assert 7_100 < browser.session.get_expiry_age() <= 7_200


@pytest.mark.sweep(4)
@pytest.mark.parametrize("declared", plant_settings.DECLARED, ids=lambda each: each.name)
def test_each_setting_is_shown_with_its_help_and_range_and_is_changed_within_it(declared, administrator):
    assert declared.help.endswith(".") and declared.unit and declared.minimum < declared.maximum
    page = administrator.get("/settings/plant/").content.decode()
    assert declared.name.removesuffix("_seconds").replace("_", " ") in page
    address = f"/settings/plant/{declared.name}"
    names = "orders=" if declared.kind == "map" else ""
    assert fetch(administrator, address, {"value": f"{names}{declared.maximum * 2}", **WHY}).status_code == 422
    unset = declared.default or (0 if declared.default == 0 else "")
    assert fetch(administrator, address, {"value": unset, **WHY}).status_code == 422
    assert plant_settings.get_setting_value(declared.name) == declared.default and not Setting.objects.exists()
    wanted = declared.maximum if declared.default != declared.maximum else declared.minimum
    assert fetch(administrator, address, {"value": f"{names}{wanted}", **WHY}).status_code == 200
    wanted = {"orders": wanted} if names else wanted
    assert plant_settings.get_setting_value(declared.name) == wanted
    noted = AuditEntry.objects.get()
    assert (noted.before, noted.after, noted.target) == (declared.default, wanted, declared.name)


def test_a_setting_that_is_none_is_refused(administrator):
    answer = fetch(administrator, "/settings/plant/plant.colour", {"value": 1, **WHY})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["name"])


def test_a_loops_own_value_is_set_for_good_and_back_to_its_default(administrator, loop):
    address = f"/settings/plant/loops/{loop.pk}"
    assert fetch(administrator, address, {"name": "upper_limit", "value": "700", **WHY}).status_code == 200
    posted = {"name": "guard.direction", "value": "up only", **WHY}
    assert fetch(administrator, address, posted).status_code == 200
    loop.refresh_from_db()
    assert (loop.parameters, loop.guard) == ({"upper_limit": 700}, {"direction": "up only"})
    page = administrator.get(f"/settings/plant/?loop={loop.pk}")
    row = next(row for row in page.context["own"] if row.name == "upper_limit")
    assert (row.value, row.changed.actor) == (700, "administrator")
    assert fetch(administrator, address, {"name": "upper_limit", "value": "", **WHY}).status_code == 200
    loop.refresh_from_db()
    assert loop.parameters == {}
    assert [(each.before, each.after) for each in AuditEntry.objects.filter(target__endswith="limit")] == [
        (1000, 700),
        (700, 1000),
    ]


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"name": "upper_limit", "value": "-1"}, "value"),
        ({"name": "minimum_rate", "value": "9000"}, "value"),
        ({"name": "start", "value": "3"}, "name"),
        ({"name": "nothing", "value": "3"}, "name"),
        ({"name": "guard.direction", "value": "sideways"}, "value"),
        ({"name": "upper_limit", "value": "5", "reason": ""}, "reason"),
    ],
)
def test_a_bad_own_value_is_refused_at_its_field_and_changes_nothing(posted, field, administrator, loop):
    answer = fetch(administrator, f"/settings/plant/loops/{loop.pk}", {**WHY, **posted})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    loop.refresh_from_db()
    assert (loop.parameters, loop.guard) == ({}, {}) and audited() == []


@pytest.mark.django_db(transaction=True)
def test_of_two_administrators_who_take_the_role_from_each_other_at_once_one_keeps_it(django_user_model):
    group = Group.objects.get_or_create(name="administrator")[0]
    ann, bob = (django_user_model.objects.create(username=name) for name in ("ann", "bob"))
    group.user_set.set([ann, bob])
    as_ann, as_bob = build_user_actor(ann), build_user_actor(bob)
    with another_thread() as begin:
        with transaction.atomic():
            people.change_role(as_ann, bob, "viewer", "A test.")
            other = begin(people.change_role, as_bob, ann, "viewer", "A test.")
            until_another_waits()
        with pytest.raises(BadInput, match="ann is the last administrator"):
            other.result()
    assert [find_user_role(each) for each in (ann, bob)] == ["administrator", "viewer"]


def test_a_superuser_who_gets_another_role_has_no_more_than_that(administrator):
    root = User.objects.create_superuser("root", password=PASSWORD)
    answer = fetch(administrator, f"/settings/users/{root.pk}", {"change": "role", "role": "viewer", **WHY})
    assert answer.status_code == 200
    assert find_user_role(User.objects.get(username="root")) == "viewer"
