"""What another site can have a browser do with our cookies: forms, sockets, and ways to lead people away."""

import pytest
from django.test import Client

from console.live.consumer import is_ours
from console.models import ApiToken

pytestmark = pytest.mark.django_db
HOST = "weir.example"
FORGED_BODIES = {
    "JSON as plain text": ("text/plain", '{"name": "stolen", "role": "viewer", "days": 1}'),
    "JSON in a form's field": ("text/plain", '{"name": "stolen", "role": "viewer", "days": 1, "x": "="}'),
    "JSON": ("application/json", '{"name": "stolen", "role": "viewer", "days": 1}'),
    "JSON with a parameter": ("text/plain; x=application/json", '{"name": "stolen", "role": "viewer"}'),
    "a form": ("application/x-www-form-urlencoded", "name=stolen&role=viewer&days=1"),
    "no type": ("", '{"name": "stolen", "role": "viewer", "days": 1}'),
}
AWAY = [
    "//evil.example/", "///evil.example/", "/\\evil.example/", "https://evil.example/", "https:evil.example",
    "http://testserver@evil.example/", "javascript:alert(1)", "data:text/html,x", "\t//evil.example/",
    "/\t/evil.example/", "/%0d%0aLocation:%20https://evil.example/", "/\r\nSet-Cookie: a=b",
]  # fmt: skip
FOREIGN_ORIGINS = [
    "null", "", "https://evil.example", f"https://{HOST}.evil.example", f"https://{HOST}@evil.example",
    f"https://{HOST}:8443", f"http://{HOST}:80@evil.example", f"https://evil.example#{HOST}", "http://[",
    f"file://{HOST}.",
]  # fmt: skip


@pytest.fixture
def browser(people):
    """A person's browser, as another site's page uses it: with the cookies, without the CSRF token."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["operator"])
    return client


@pytest.mark.parametrize(("kind", "body"), FORGED_BODIES.values(), ids=FORGED_BODIES)
@pytest.mark.parametrize("address", ["/api/v1/tokens", "/settings/"])
def test_another_sites_form_changes_nothing(address, kind, body, browser, control):
    answer = browser.post(address, body, content_type=kind, headers={"Origin": "https://evil.example"})
    assert answer.status_code in (403, 404, 405)
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("following", AWAY)
def test_a_login_leads_to_no_other_site(following, people):
    people["operator"].set_password("a long password of a test")
    people["operator"].save()
    answer = Client().post(
        "/login/", {"username": people["operator"].username, "password": "a long password of a test", "next": following}
    )
    location = answer.headers.get("Location", "/")
    assert "evil.example" not in location.split("?")[0] or location.startswith("/%0d")
    assert not {"\r", "\n"} & set(location)
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "host", ["evil.example", "testserver.evil.example", "evil.example#testserver", "testserver:80@evil.example"]
)
@pytest.mark.parametrize("page", ["/login/", "/", "/api/v1/plant"])
def test_a_host_of_another_name_gets_no_page(host, page):
    answer = Client().get(page, headers={"Host": host})
    assert answer.status_code == 400
    assert "evil.example" not in answer.content.decode() and "evil.example" not in str(answer.headers)


def test_a_forwarded_host_is_not_believed():
    answer = Client().get("/", headers={"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"})
    assert "evil.example" not in answer.content.decode() + str(answer.headers)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_another_origin_opens_no_socket(origin, settings):
    settings.ALLOWED_HOSTS = [HOST]
    assert not is_ours({"host": HOST, "origin": origin, "authorization": "Bearer weir_x"})


@pytest.mark.parametrize("scheme", ["ftp", "file", "chrome-extension", "javascript", ""])
def test_an_origin_of_our_name_by_another_scheme_opens_no_socket(scheme, settings):
    settings.ALLOWED_HOSTS = [HOST]
    assert not is_ours({"host": HOST, "origin": f"{scheme}://{HOST}"})


def test_in_production_an_origin_by_http_opens_no_socket(settings):
    """Whoever may answer for http on the way has no session of https."""
    settings.ALLOWED_HOSTS, settings.SESSION_COOKIE_SECURE = [HOST], True
    assert not is_ours({"host": HOST, "origin": f"http://{HOST}"})
    assert is_ours({"host": HOST, "origin": f"https://{HOST}"})
