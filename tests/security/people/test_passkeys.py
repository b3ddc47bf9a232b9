"""Passkeys: registered by their owner, accepted once, at one address, for one purpose, and by nobody else's browser."""

import json
import time

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.accounts import access, lockout, passkeys, second_factor
from console.models import AuditEntry, Identity, Passkey, RecoveryCode, SecondFactor
from tests.console.accounts.authenticator import Authenticator, decode, encode
from tests.console.conftest import PASSWORD
from tests.security.people.test_login import code_of
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db
ACCOUNT, OPTIONS = "/settings/second-factor/", "/settings/passkeys/options"
HERE = "192.0.2.7"


@pytest.fixture(autouse=True)
def _at_localhost(settings):
    settings.ALLOWED_HOSTS = ["localhost", "testserver", "127.0.0.1", "weir.example"]


def at_localhost(**more):
    return Client(SERVER_NAME="localhost", **more)


@pytest.fixture
def viewer_at_home(people):
    """The viewer's browser, logged in at http://localhost."""
    browser = at_localhost()
    browser.post("/login/", {"username": "viewer", "password": PASSWORD})
    return browser


def add(browser, authenticator, name="phone", **answer):
    options = browser.post(OPTIONS).json()
    posted = {"do": "add-passkey", "name": name, "passkey": authenticator.register(options, **answer)}
    return browser.post(ACCOUNT, posted)


@pytest.fixture
def phone(viewer_at_home, stored_snapshot):
    """The viewer's passkey."""
    authenticator = Authenticator()
    assert add(viewer_at_home, authenticator).status_code == 200
    return authenticator


def ask(browser, purpose):
    return browser.post("/login/passkey/options", {"purpose": purpose}).json()


def log_in(authenticator, browser=None, **answer):
    browser = browser or at_localhost(REMOTE_ADDR=HERE)
    proof = authenticator.prove(ask(browser, "login"), **answer)
    return browser.post("/login/passkey", {"passkey": proof, "next": "/nodes/"})


def begin_login(username="viewer"):
    browser = at_localhost()
    answer = browser.post("/login/?next=/nodes/", {"username": username, "password": PASSWORD})
    assert answer.url == "/login/code/?next=%2Fnodes%2F"
    return browser


def test_a_passkey_replaces_username_password_and_code(phone, stored_snapshot):
    browser = at_localhost()
    answer = log_in(phone, browser)
    assert answer.url == "/nodes/" and browser.get("/nodes/").status_code == 200
    assert AuditEntry.objects.get(action="login", after={"by": "passkey"}).actor == "viewer"
    assert Passkey.objects.get().used_at is not None


def test_a_passkey_is_the_second_factor_after_the_password(phone, stored_snapshot):
    browser = begin_login()
    assert browser.get("/nodes/").status_code == 302
    options = ask(browser, "second-factor")
    assert [each["id"] for each in options["allowCredentials"]] == [encode(phone.id)]
    phone.verifies = False  # the password came first, so its presence is enough
    answer = browser.post("/login/code/", {"passkey": phone.prove(options), "next": "/nodes/"})
    assert answer.url == "/nodes/" and browser.get("/nodes/").status_code == 200
    assert AuditEntry.objects.filter(action="login", after={"by": "password and passkey"}).exists()


def test_without_user_verification_a_passkey_does_not_replace_the_password(phone, control):
    phone.verifies = False
    assert log_in(phone).status_code == 422


def test_a_passkey_is_registered_only_with_user_verification(viewer_at_home, stored_snapshot):
    answer = add(viewer_at_home, Authenticator(verifies=False))
    assert answer.status_code == 422 and not Passkey.objects.exists()


def test_a_proof_is_accepted_once(phone, control):
    browser = at_localhost()
    phone.counts = False  # the counter would reveal the repetition, too
    proof = phone.prove(ask(browser, "login"))
    assert browser.post("/login/passkey", {"passkey": proof}).status_code == 302
    for other in (browser, at_localhost()):
        answer = other.post("/login/passkey", {"passkey": proof})
        assert answer.status_code == 422 and "already used" in answer.content.decode()


def test_a_registration_is_accepted_once(viewer_at_home, phone, stored_snapshot):
    other = Authenticator()
    answer = other.register(viewer_at_home.post(OPTIONS).json())
    posted = {"do": "add-passkey", "name": "key", "passkey": answer}
    assert [viewer_at_home.post(ACCOUNT, posted).status_code for _ in range(2)] == [200, 422]
    assert Passkey.objects.count() == 2


def test_a_challenge_expires(phone, control):
    browser = at_localhost()
    proof = phone.prove(ask(browser, "login"))
    session = browser.session
    purpose, challenge, at = session[passkeys.CHALLENGE]
    session[passkeys.CHALLENGE] = [purpose, challenge, at - passkeys.CHALLENGE_SECONDS - 1]
    session.save()
    assert browser.post("/login/passkey", {"passkey": proof}).status_code == 422


def test_a_challenge_serves_one_purpose(phone, control):
    browser = begin_login()
    proof = phone.prove(ask(browser, "second-factor"))
    assert browser.post("/login/passkey", {"passkey": proof}).status_code == 422


def test_the_challenge_of_another_browser_is_not_answered(phone, control):
    mine, other = at_localhost(), at_localhost()
    proof = phone.prove(ask(mine, "login"))
    ask(other, "login")
    assert other.post("/login/passkey", {"passkey": proof}).status_code == 422


def test_another_origin_is_refused(phone, control):
    for origin in ("http://localhost:9999", "https://localhost", "http://evil.example"):
        phone.origin = origin
        assert log_in(phone, at_localhost(REMOTE_ADDR=f"192.0.2.{len(origin)}")).status_code == 422
    phone.origin, phone.host = "http://localhost", "evil.example"
    assert log_in(phone).status_code == 422


def test_a_copied_authenticator_is_noticed_by_its_counter(phone, control):
    assert log_in(phone).status_code == 302
    phone.count = 0
    assert log_in(phone).status_code == 422


def test_a_removed_passkey_is_refused_and_the_recovery_codes_end_with_it(phone, viewer_at_home, control):
    viewer_at_home.post(ACCOUNT, {"do": "remove-passkey", "passkey": Passkey.objects.get().pk})
    answer = log_in(phone)
    assert answer.status_code == 422 and "may have been removed" in answer.content.decode()
    assert not RecoveryCode.objects.exists()
    assert AuditEntry.objects.get(action="account.passkey.remove").before == {"name": "phone"}


def test_the_passkey_of_another_account_is_refused(phone, people, stored_snapshot):
    operator = at_localhost()
    operator.post("/login/", {"username": "operator", "password": PASSWORD})
    own = Authenticator()
    assert add(operator, own).status_code == 200
    browser = begin_login("viewer")
    proof = own.prove({**ask(browser, "second-factor")})
    assert browser.post("/login/code/", {"passkey": proof}).status_code == 422
    assert log_in(phone, handle=own.handle).status_code == 422  # it names another user than its owner


@pytest.mark.parametrize("change", ["disabled", "provider"])
def test_an_account_that_may_not_log_in_does_not_by_a_passkey(change, phone, people, control):
    if change == "disabled":
        User.objects.filter(username="viewer").update(is_active=False)
    else:
        Identity.objects.create(user=people["viewer"], issuer="https://id.example", subject="1")
    assert log_in(phone).status_code == 422


def test_rejected_passkeys_count_as_failed_logins(phone, control):
    phone.origin = "http://evil.example"
    tried = [log_in(phone).status_code for _ in range(lockout.AT_ADDRESS)]
    assert tried == [422] * (lockout.AT_ADDRESS - 1) + [429]
    phone.origin = "http://localhost"
    assert log_in(phone).status_code == 429  # even the right one
    assert log_in(phone, at_localhost(REMOTE_ADDR="198.51.100.9")).status_code == 302
    assert AuditEntry.objects.filter(action="login.locked", actor="viewer").count() == 1
    assert "signature" not in str(list(AccessAttempt.objects.values()))


def test_the_first_passkey_comes_with_recovery_codes(viewer_at_home, people, stored_snapshot):
    page = add(viewer_at_home, Authenticator())
    codes = page.context["codes"]
    assert len(codes) == 10 and page["Cache-Control"] == "no-store"
    assert add(viewer_at_home, Authenticator(), "key").context["codes"] == []
    browser = begin_login()
    assert browser.post("/login/code/", {"code": codes[0]}).status_code == 302
    assert begin_login().post("/login/code/", {"code": codes[0]}).status_code == 422


def test_wrong_recovery_codes_of_a_user_without_an_app_count_as_failed_logins(phone, control):
    browser = begin_login()
    tried = [browser.post("/login/code/", {"code": "000000"}).status_code for _ in range(lockout.AT_ADDRESS)]
    assert tried == [422] * (lockout.AT_ADDRESS - 1) + [429]
    assert "000000" not in str(list(AccessAttempt.objects.values()))


def test_an_app_and_a_passkey_stand_beside_each_other(phone, viewer_at_home, people, stored_snapshot):
    second_factor.begin(people["viewer"])
    second_factor.confirm(people["viewer"], code_of(people["viewer"]))
    answer = begin_login().post("/login/code/", {"code": code_of(people["viewer"], 1)})
    assert answer.status_code == 302
    viewer_at_home.post(ACCOUNT, {"do": "remove"})
    assert not SecondFactor.objects.exists() and second_factor.count_unused_codes(people["viewer"]) == 10
    assert log_in(phone).status_code == 302


def test_a_passkey_that_is_not_stored_is_a_second_factor_only(viewer_at_home, stored_snapshot):
    key = Authenticator()
    add(viewer_at_home, key, "key", discoverable=False)
    assert Passkey.objects.get().is_discoverable is False
    assert log_in(key, handle=b"").status_code == 422
    browser = begin_login()
    proof = key.prove(ask(browser, "second-factor"), handle=b"")
    assert browser.post("/login/code/", {"passkey": proof}).status_code == 302


def test_a_passkey_meets_the_policy_for_administrators(people, stored_snapshot):
    plant_settings.change("login.second_factor", 1, people["administrator"], timezone.now())
    assert access.build_user_actor(people["administrator"]).role == "viewer"
    browser = at_localhost()
    browser.post("/login/", {"username": "administrator", "password": PASSWORD})
    add(browser, Authenticator())
    assert access.build_user_actor(people["administrator"]).role == "administrator"


def test_changes_of_passkeys_need_a_confirmed_identity_and_a_passkey_confirms_it(phone, viewer_at_home, control):
    session = viewer_at_home.session
    session[access.CONFIRMED_AT] = time.time() - access.CONFIRMED_SECONDS - 1
    session.save()
    refused = viewer_at_home.post(OPTIONS, headers={"accept": "application/json"})
    assert refused.status_code == 403 and refused.json()["confirm"] == "/confirm/"
    passkey = Passkey.objects.get()
    for do in ("rename-passkey", "remove-passkey", "add-passkey"):
        posted = {"do": do, "passkey": passkey.pk, "name": "other"}
        assert viewer_at_home.post(ACCOUNT, posted).url.startswith("/confirm/")
    asked = f"/api/v1/passkeys/{passkey.pk}/remove"
    assert viewer_at_home.post(asked, content_type="application/json").status_code == 403
    proof = phone.prove(ask(viewer_at_home, "confirm"))
    assert viewer_at_home.post("/confirm/", {"passkey": proof, "next": ACCOUNT}).url == ACCOUNT
    assert AuditEntry.objects.get(action="login.confirm").after == {"by": "passkey"}
    assert (
        viewer_at_home.post(ACCOUNT, {"do": "rename-passkey", "passkey": passkey.pk, "name": "desk"}).status_code == 200
    )
    assert Passkey.objects.get().name == "desk"


def test_the_mere_presence_of_a_device_does_not_confirm_an_identity(phone, viewer_at_home, control):
    phone.verifies = False
    proof = phone.prove(ask(viewer_at_home, "confirm"))
    assert viewer_at_home.post("/confirm/", {"passkey": proof}).status_code == 422


def test_nobody_changes_the_passkey_of_another_user(phone, people, stored_snapshot):
    passkey, operator = Passkey.objects.get(), at_localhost()
    operator.post("/login/", {"username": "operator", "password": PASSWORD})
    for do in ("rename-passkey", "remove-passkey"):
        posted = {"do": do, "passkey": passkey.pk, "name": "other"}
        assert operator.post(ACCOUNT, posted).status_code == 422
    assert operator.post(f"/api/v1/passkeys/{passkey.pk}/remove", content_type="application/json").status_code == 404
    assert operator.get("/api/v1/passkeys").json() == {"passkeys": []}
    assert Passkey.objects.get().name == "phone"


def test_an_administrator_removes_one_passkey_or_all_second_factors(phone, viewer_at_home, people, stored_snapshot):
    add(viewer_at_home, Authenticator(), "key")
    manager = at_localhost()
    manager.post("/login/", {"username": "administrator", "password": PASSWORD})
    listed = manager.get("/api/v1/users/viewer/passkeys").json()["passkeys"]
    assert [row["name"] for row in listed] == ["phone", "key"]
    body = {"reason": "a lost phone"}
    address = f"/api/v1/users/viewer/passkeys/{listed[0]['id']}/remove"
    assert manager.post(address, body, content_type="application/json").json() == {
        "id": listed[0]["id"],
        "removed": True,
    }
    assert viewer_at_home.get("/nodes/").status_code == 302  # its sessions have ended
    entry = AuditEntry.objects.get(action="user.passkey.remove")
    assert (entry.target, entry.reason, entry.before) == ("viewer", "a lost phone", {"name": "phone"})
    user = manager.post("/api/v1/users/viewer/second-factor", body, content_type="application/json").json()
    assert user["second_factor"] is False
    assert not Passkey.objects.exists() and not RecoveryCode.objects.exists()


def test_the_page_of_users_removes_a_passkey(phone, people, stored_snapshot):
    manager = at_localhost()
    manager.post("/login/", {"username": "administrator", "password": PASSWORD})
    assert "Passkeys (1)" in manager.get("/settings/users/").content.decode()
    posted = {"change": "passkey", "passkey": Passkey.objects.get().pk, "reason": "a lost phone"}
    assert manager.post(f"/settings/users/{people['viewer'].pk}", posted).status_code == 302
    assert not Passkey.objects.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("weir.example", "need HTTPS. Open Weir at https://weir.example"),
        ("127.0.0.1:8000", "Open Weir at http://localhost:8000"),
    ],
)
def test_a_page_at_which_browsers_use_no_passkeys_says_so(address, said, people, stored_snapshot):
    browser = Client(headers={"host": address})
    browser.post("/login/", {"username": "viewer", "password": PASSWORD})
    assert said in browser.get(ACCOUNT).content.decode()
    refused = browser.post(OPTIONS)
    assert refused.status_code == 422 and said in refused.json()["errors"]["passkeys"][0]
    assert Client(headers={"host": address}).post("/login/passkey/options", {"purpose": "login"}).status_code == 422


def test_with_https_the_passkeys_belong_to_the_configured_host(people, stored_snapshot):
    browser, phone = Client(SERVER_NAME="weir.example"), Authenticator("https://weir.example", "weir.example")
    browser.post("/login/", {"username": "viewer", "password": PASSWORD}, secure=True)
    options = browser.post(OPTIONS, secure=True).json()
    assert options["rp"] == {"name": "Weir", "id": "weir.example"}
    posted = {"do": "add-passkey", "name": "phone", "passkey": phone.register(options)}
    assert browser.post(ACCOUNT, posted, secure=True).status_code == 200
    assert Passkey.objects.get().host == "weir.example"
    page = begin_login().get("/login/code/").content.decode()
    assert "don&#x27;t work at this address" in page or "don't work at this address" in page


def test_a_user_has_a_limited_number_of_passkeys_with_names_and_each_authenticator_once(
    viewer_at_home, phone, stored_snapshot, monkeypatch
):
    options = viewer_at_home.post(OPTIONS).json()
    assert [each["id"] for each in options["excludeCredentials"]] == [encode(phone.id)]
    assert add(viewer_at_home, phone, "again").status_code == 422
    assert add(viewer_at_home, Authenticator(), " ").status_code == 422
    assert add(viewer_at_home, Authenticator(), "x" * 65).status_code == 422
    monkeypatch.setattr(passkeys, "MAX_PASSKEYS", 1)
    assert viewer_at_home.post(OPTIONS).json()["errors"] == {
        "passkeys": ["are limited to 1 per user. Remove one first."]
    }


def mutations(answer):
    """The answer with each of its parts missing, of another type, or with other bytes."""
    document = json.loads(answer)
    for holder, within in ((document, ()), (document["response"], ("response",))):
        for name in holder:
            for value in (None, 7, "", "AAAA", "é", [], {}, True, "A" * 9_000):
                changed = json.loads(answer)
                place = changed["response"] if within else changed
                place[name] = value
                yield json.dumps(changed)
            if isinstance(holder[name], str):
                raw = decode(holder[name]) if within else holder[name].encode()
                for at in range(0, len(raw), max(1, len(raw) // 40)):
                    changed = json.loads(answer)
                    place = changed["response"] if within else changed
                    flipped = raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :]
                    place[name] = encode(flipped) if within else flipped.decode("latin-1")
                    yield json.dumps(changed)
    yield from ("", "null", "[]", "{", '"a"', "[" * 5_000, "x" * 20_000, "{}")


def test_a_malformed_answer_is_refused_and_nothing_else(phone, people, rf):
    """Each is refused as invalid input or as a wrong passkey. None is an error of the program."""
    request, other = rf.get("/", SERVER_NAME="localhost"), Authenticator()
    request.session, request.user = at_localhost().session, people["viewer"]

    def refuse(purpose, answer):
        request.session[passkeys.CHALLENGE] = [purpose, challenge, time.time()]
        try:
            if purpose == "register":
                return passkeys.verify_registration(request, people["viewer"], "x", answer).pk
            proof = passkeys.PasskeyProof(json.loads(answer), decode(challenge), site, passkeys.Purpose.LOGIN)
            return passkeys.PasskeyBackend().authenticate(request, "viewer", proof) and "accepted"
        except passkeys.BadInput:
            return None

    site = passkeys.find_site(request)
    registration = passkeys.create_registration_options(request, people["viewer"])
    challenge = registration["challenge"]
    # Its own description of how it is reached, and of what it stores, is not signed.
    tried = [refuse("register", answer) for answer in mutations(other.register(registration))]
    assert len(tried) > 150 and set(tried) == {None}
    proof = phone.prove({"challenge": challenge})
    objects = [answer for answer in mutations(proof) if answer.startswith("{") and answer != "{"]
    accepted = [answer for answer in objects if refuse("login", answer)]
    assert len(objects) > 150
    assert all(json.loads(answer)["response"] == json.loads(proof)["response"] for answer in accepted)
