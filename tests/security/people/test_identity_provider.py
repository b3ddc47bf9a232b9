"""Login by OpenID Connect, end to end against a provider served on this machine."""

import json
import time
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import oidc_provider_mock
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.test import Client
from jwt.algorithms import ECAlgorithm

from console.accounts import identity_provider, identity_settings
from console.accounts.access import CONFIRMED_AT, CONFIRMED_SECONDS
from console.models import AuditEntry, Identity, QueueLimit

pytestmark = [
    pytest.mark.django_db,
    # The provider's libraries, not ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ENVIRONMENT = {
    "WEIR_OIDC_CLIENT_ID": "weir",
    "WEIR_OIDC_CLIENT_SECRET": "a secret",
    "WEIR_OIDC_ROLES": "ops=operator admins=administrator",
}


@pytest.fixture(scope="module")
def provider():
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def configured(provider, settings):
    settings.WEIR_OIDC = identity_settings.read({**ENVIRONMENT, "WEIR_OIDC_ISSUER": provider})
    settings.OIDC_RP_SCOPES = "openid profile email"
    identity_provider._fetch_discovery.cache_clear()
    return provider


def known(provider, subject, **claims):
    """The provider knows somebody, with these claims."""
    httpx.put(f"{provider}/users/{subject}", json=claims).raise_for_status()


def begun(browser, address="/oidc/begin/?next=/settings/"):
    answer = browser.get(address)
    assert answer.status_code == 302, answer.content
    return answer.url


def vouched(address, subject):
    """Where the provider leads back to once `subject` has logged in there."""
    answer = httpx.post(address, data={"sub": subject}, follow_redirects=False)
    assert answer.status_code in (302, 303), answer.text
    return answer.headers["location"].removeprefix("http://testserver")


def log_in(browser, subject, address="/oidc/begin/?next=/settings/"):
    return browser.get(vouched(begun(browser, address), subject))


def test_without_a_provider_there_is_no_such_login(db, control):
    assert Client().get("/oidc/begin/").status_code == 404
    assert Client().get("/oidc/callback/?code=x&state=y").status_code == 404
    assert "oidc" not in Client().get("/login/").content.decode()


def test_a_first_login_makes_an_account_with_the_role_of_its_groups(configured, control):
    known(configured, "s-1", preferred_username="ada", groups=["staff", "ops"])
    browser = Client()
    assert f"Log in with {identity_provider.get_provider_name()}" in browser.get("/login/").content.decode()
    assert log_in(browser, "s-1").url == "/settings/"
    user = User.objects.get(username="ada")
    assert [each.name for each in user.groups.all()] == ["operator"] and not user.has_usable_password()
    assert browser.get("/settings/").status_code == 200
    assert [(each.actor, each.action) for each in AuditEntry.objects.order_by("pk")] == [
        ("oidc", "user.create"),
        ("oidc", "user.role"),
        ("ada", "login"),
    ]


def test_the_role_follows_the_groups_at_each_login_and_is_gone_with_them(configured, control):
    known(configured, "s-2", preferred_username="bob", groups=["admins"])
    browser = Client()
    log_in(browser, "s-2")
    assert browser.get("/settings/users/").status_code == 200
    known(configured, "s-2", preferred_username="bob", groups=["ops"])
    log_in(Client(), "s-2")
    assert browser.get("/settings/users/").status_code == 403
    known(configured, "s-2", preferred_username="bob", groups=[])
    assert log_in(Client(), "s-2").status_code == 403
    assert browser.get("/settings/").status_code == 302
    assert not User.objects.get(username="bob").groups.exists()


def test_a_limit_to_some_queues_ends_where_the_provider_makes_an_administrator(configured, control):
    known(configured, "s-9", preferred_username="ada", groups=["ops"])
    log_in(Client(), "s-9")
    QueueLimit.objects.create(user=User.objects.get(username="ada"), queues=["alert"])
    known(configured, "s-9", preferred_username="ada", groups=["admins"])
    browser = Client()
    log_in(browser, "s-9")
    assert browser.get("/settings/users/").status_code == 200 and not QueueLimit.objects.exists()


def test_nobody_without_a_mapped_group_gets_an_account(configured, control):
    known(configured, "s-3", preferred_username="eve", groups=["strangers"])
    assert log_in(Client(), "s-3").status_code == 403
    assert not User.objects.filter(username="eve").exists()
    assert AuditEntry.objects.get().action == "refused.login"


def test_a_local_account_of_the_same_name_is_not_taken_over(configured, people, control):
    known(configured, "s-4", preferred_username="Administrator", email="x@example.org", groups=["ops"])
    log_in(Client(), "s-4")
    assert not Identity.objects.filter(user=people["administrator"]).exists()
    assert Identity.objects.get(subject="s-4").user.username == "Administrator+2"


def test_who_is_disabled_here_stays_out(configured, control):
    known(configured, "s-5", preferred_username="max", groups=["ops"])
    log_in(Client(), "s-5")
    User.objects.filter(username="max").update(is_active=False)
    assert log_in(Client(), "s-5").status_code == 403


def test_the_request_has_state_nonce_and_a_pkce_challenge(configured, control):
    asked = parse_qs(urlsplit(begun(Client())).query)
    assert asked["code_challenge_method"] == ["S256"] and len(asked["code_challenge"][0]) == 43
    assert asked["state"] and asked["nonce"] and asked["response_type"] == ["code"]


def test_an_answer_to_nobodys_question_logs_nobody_in(configured, control):
    """A code that somebody else's browser asked for, or that is used again."""
    known(configured, "s-6", preferred_username="mia", groups=["ops"])
    mine, theirs = Client(), Client()
    address = vouched(begun(theirs), "s-6")
    begun(mine)
    assert mine.get(address).status_code >= 400
    assert mine.get("/settings/").status_code == 302
    assert theirs.get(address).url == "/settings/"
    assert theirs.get(address).status_code >= 400
    code = address.partition("?")[2]
    assert Client().post(f"/login/?{code}", {"username": "mia", "password": "x"}).status_code == 200


def test_errors_that_anybody_makes_up_do_not_fill_the_audit(configured, control):
    answers = [Client().get(f"/oidc/callback/?error=made-up-{number}") for number in range(5)]
    assert [each.status_code for each in answers] == [403] * 5
    (entry,) = AuditEntry.objects.all()
    assert (entry.action, entry.after) == ("refused.login", {"error": "made-up-0"})


def test_a_login_here_never_leads_to_another_site(configured, control):
    known(configured, "s-7", preferred_username="zoe", groups=["ops"])
    assert log_in(Client(), "s-7", "/oidc/begin/?next=https://elsewhere/").url == "/"


def test_passwords_and_roles_of_such_accounts_are_not_set_here(configured, browsers, control):
    known(configured, "s-8", preferred_username="kim", groups=["ops"])
    log_in(Client(), "s-8")
    address = f"/settings/users/{User.objects.get(username='kim').pk}"
    assert browsers["administrator"].post(f"{address}/reset", {"reason": "a test"}).status_code == 422
    posted = {"change": "role", "role": "administrator", "reason": "a test"}
    assert browsers["administrator"].post(address, posted).status_code == 422
    page = browsers["administrator"].get("/settings/users/").content.decode()
    assert "Role set by the provider's groups" in page and 'aria-label="Role of kim"' not in page


def test_a_confirmation_takes_the_same_person_and_a_fresh_proof(configured, control):
    known(configured, "s-9", preferred_username="lou", groups=["admins"])
    browser = Client()
    log_in(browser, "s-9")
    asked = parse_qs(urlsplit(begun(browser, "/oidc/begin/?confirm&next=/settings/")).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    known(configured, "s-9", preferred_username="lou", groups=["admins"], auth_time=1_000)
    answer = log_in(browser, "s-9", "/oidc/begin/?confirm&next=/settings/")
    assert answer.status_code == 403
    known(configured, "s-9", preferred_username="lou", groups=["admins"], auth_time=4_000_000_000)
    assert log_in(browser, "s-9", "/oidc/begin/?confirm&next=/settings/").url == "/settings/"
    known(configured, "s-10", preferred_username="pat", groups=["admins"], auth_time=4_000_000_000)
    assert log_in(browser, "s-10", "/oidc/begin/?confirm&next=/settings/").status_code == 403


@pytest.mark.parametrize(
    ("seconds_ago", "is_proof"), [(None, False), (3_600, False), (CONFIRMED_SECONDS - 60, True), (-600, True)]
)
def test_a_login_without_a_question_is_no_proof(seconds_ago, is_proof, configured, control, people):
    """The provider's own session lets in whoever sits at the browser; acts of consequence take a person."""
    asked_at = None if seconds_ago is None else int(time.time() - seconds_ago)
    known(configured, "s-12", preferred_username="kay", groups=["admins"], auth_time=asked_at)
    browser = Client()
    for _ in range(2):  # also over a session that is there
        log_in(browser, "s-12")
    body = {"username": "mallory", "role": "administrator", "reason": "a test"}
    answer = browser.post("/api/v1/users", body, content_type="application/json")
    assert answer.status_code == (201 if is_proof else 403), answer.content
    assert ("/confirm/" in answer.content.decode()) is not is_proof
    assert browser.session[CONFIRMED_AT] <= time.time()


def test_a_logout_says_that_the_provider_still_knows_them(configured, control):
    known(configured, "s-11", preferred_username="ann", groups=["ops"])
    browser = Client()
    log_in(browser, "s-11")
    assert browser.post("/logout/").url == "/logged-out/"
    page = browser.get("/logged-out/").content.decode()
    assert configured in page and browser.get("/settings/").status_code == 302


def test_a_provider_that_does_not_answer_is_said_and_not_raised(settings, db, control):
    settings.WEIR_OIDC = identity_settings.read({**ENVIRONMENT, "WEIR_OIDC_ISSUER": "http://localhost:9"})
    answer = Client().get("/oidc/begin/")
    assert answer.status_code == 502 and "failed. Try again" in answer.content.decode()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"iss": "https://elsewhere"}, jwt.InvalidIssuerError),
        ({"aud": "another client"}, jwt.InvalidAudienceError),
        ({"exp": 1}, jwt.ExpiredSignatureError),
        ({"sub": None}, jwt.PyJWTError),
        ({"aud": ["weir", "another"]}, SuspiciousOperation),
    ],
)
def test_a_signed_token_for_another_purpose_is_refused(change, error, configured, monkeypatch):
    claims = {"iss": configured, "aud": "weir", "exp": 4_000_000_000, "iat": 1, "sub": "s", "nonce": "n"}
    private = ec.generate_private_key(ec.SECP256R1())
    public = jwt.PyJWK(json.loads(ECAlgorithm.to_jwk(private.public_key())), "ES256")
    monkeypatch.setattr(identity_provider, "list_signature_algorithms", lambda: ["ES256"])
    backend = identity_provider.Backend()
    assert backend._verify_jws(jwt.encode(claims, private, "ES256"), public)["sub"] == "s"
    wrong = {name: value for name, value in {**claims, **change}.items() if value is not None}
    with pytest.raises(error):
        backend._verify_jws(jwt.encode(wrong, private, "ES256"), public)


def test_groups_that_the_provider_left_out_change_no_role(configured, control):
    """Entra ID names where the groups are to be asked for, once somebody has more than 200."""
    known(configured, "s-13", preferred_username="gus", groups=["admins"])
    browser = Client()
    log_in(browser, "s-13")
    known(configured, "s-13", preferred_username="gus", _claim_names={"groups": "src1"})
    assert log_in(Client(), "s-13").status_code == 502
    assert browser.get("/settings/users/").status_code == 200
    entry = AuditEntry.objects.get(action="refused.login")
    assert "too many groups" in entry.reason
    known(configured, "s-14", preferred_username="hal", hasgroups=True)
    assert log_in(Client(), "s-14").status_code == 502
    assert not User.objects.filter(username="hal").exists()


@pytest.mark.parametrize("bound", [{"MAX_ANSWER_BYTES": 100}, {"MAX_ANSWER_SECONDS": -1.0}])
def test_an_answer_that_is_too_large_or_too_slow_is_read_no_further(bound, configured, control, monkeypatch):
    known(configured, "s-17", preferred_username="kit", groups=["ops"])
    browser = Client()
    address = vouched(begun(browser), "s-17")
    for name, value in bound.items():
        monkeypatch.setattr(identity_provider, name, value)
    assert browser.get(address).status_code == 502
    assert "too large or too slow" in AuditEntry.objects.get().reason


def test_a_group_may_stand_alone_as_a_text(configured, control):
    known(configured, "s-15", preferred_username="ida", groups="ops")
    assert log_in(Client(), "s-15").url == "/settings/"


def test_an_answer_in_the_name_of_another_issuer_is_refused(configured, control):
    known(configured, "s-16", preferred_username="jon", groups=["ops"])
    browser = Client()
    address = vouched(begun(browser), "s-16")
    assert browser.get(f"{address}&iss=https://elsewhere.example").status_code == 403
    issuer = identity_provider.discover()["issuer"]
    assert browser.get(address, {"iss": issuer, **query_of(address)}).url == "/settings/"


def query_of(address):
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


@pytest.mark.parametrize(
    ("endpoint", "led"),
    [
        ("https://id.example/end?policy=b2c", "https://id.example/end?policy=b2c&client_id=weir&"),
        ("https://id.example/end", "https://id.example/end?client_id=weir&"),
        ("javascript:alert(1)", ""),
        ("data:text/html,x", ""),
        (None, ""),
    ],
)
def test_a_logout_leads_to_an_address_of_the_web_alone(endpoint, led, configured, monkeypatch):
    described = {**identity_provider.discover(), "end_session_endpoint": endpoint}
    monkeypatch.setattr(identity_provider, "discover", lambda: described)
    assert identity_provider.end_url("http://testserver/").startswith(led)
    assert bool(identity_provider.end_url("http://testserver/")) is bool(led)


def test_an_authorization_endpoint_with_a_query_keeps_it(configured, control, monkeypatch):
    described = {**identity_provider.discover(), "authorization_endpoint": "https://id.example/go?p=b2c"}
    monkeypatch.setattr(identity_provider, "discover", lambda: described)
    asked = parse_qs(urlsplit(begun(Client())).query)
    assert (asked["p"], asked["response_type"]) == (["b2c"], ["code"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"WEIR_OIDC_ISSUER": "http://login.example.org"}, "WEIR_OIDC_ISSUER"),
        ({"WEIR_OIDC_CLIENT_SECRET": ""}, "WEIR_OIDC_CLIENT_SECRET"),
        ({"WEIR_OIDC_ROLES": "ops=king"}, "WEIR_OIDC_ROLES"),
        ({"WEIR_OIDC_ROLES": "operator"}, "WEIR_OIDC_ROLES"),
    ],
)
def test_half_a_configuration_is_refused_by_the_name_of_its_variable(change, named):
    with pytest.raises(ValueError, match=named):
        identity_settings.read({**ENVIRONMENT, "WEIR_OIDC_ISSUER": "https://login.example.org", **change})
