"""Passkeys in a real browser with a virtual authenticator: registered, used in each way, removed, and not misused."""

import itertools
import json
import re
from contextlib import contextmanager
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, overhang, unreadable, violations

pytestmark = BROWSER
NUMBERS = itertools.count(1)
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
PASSKEYS_PAGE = "/settings/second-factor/"


@pytest.fixture
def holder(ask):
    """A user of the console with a password: {"username", "password"}."""
    name = f"holder-{next(NUMBERS)}"
    yield ask("POST", "users", {"username": name, "role": "operator", "reason": "a test of passkeys"})
    ask("POST", f"users/{name}/disable", {"reason": "the test is over"})


@contextmanager
def opened(chromium, address, device=DEVICE):
    """A page at localhost, in a browser with an authenticator of its own; the page logs no error."""
    context = chromium.new_context(base_url=address)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    session = context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": device})
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def page(chromium, served):
    with opened(chromium, f"http://localhost:{served.port}") as page:
        yield page


def enter_password(page, holder, path=PASSKEYS_PAGE):
    page.goto(path)
    page.get_by_label("Username").fill(holder["username"])
    page.get_by_label("Password").fill(holder["password"])
    page.get_by_role("button", name="Log in", exact=True).click()


def register(page, holder, name="Laptop"):
    enter_password(page, holder)
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Add passkey").click()
    expect(page.get_by_role("row", name=re.compile(name))).to_be_visible()


def log_out(page):
    page.context.clear_cookies(name="sessionid")


def log_in_with_passkey(page):
    page.goto("/login/?next=/nodes/")
    page.get_by_role("button", name="Log in with a passkey").click()


def test_a_passkey_is_added_and_used_in_each_way_until_it_is_removed(page, holder, ask):
    register(page, holder)
    expect(page.locator("#secret")).to_have_text(re.compile(r"^(\w{4}-){3}\w{4}"))  # recovery codes
    log_out(page)
    log_in_with_passkey(page)
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    log_out(page)
    enter_password(page, holder, "/nodes/")
    expect(page).to_have_url(re.compile("/login/code/"))
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    page.goto(f"/confirm/?next={PASSKEYS_PAGE}")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("row", name=re.compile("Laptop"))).to_be_visible()
    page.get_by_label("New name of Laptop").fill("Desk")
    page.get_by_role("button", name="Rename").click()
    page.get_by_role("button", name="Remove passkey Desk").click()
    expect(page.get_by_text("No passkeys.")).to_be_visible()
    by = [row["after"] for row in ask("GET", f"audit?action=login&actor={holder['username']}")["entries"]]
    assert {"by": "passkey"} in by and {"by": "password and passkey"} in by


def test_a_passkey_that_an_administrator_removed_is_refused(page, holder, ask):
    register(page, holder)
    passkey = ask("GET", f"users/{holder['username']}/passkeys")["passkeys"][0]
    log_out(page)
    page.goto("/login/?next=/nodes/")
    ask("POST", f"users/{holder['username']}/passkeys/{passkey['id']}/remove", {"reason": "a lost laptop"})
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The passkey was not accepted. It may have been removed")


def test_a_login_that_was_recorded_is_not_repeated(page, holder):
    register(page, holder)
    log_out(page)
    with page.expect_request("**/login/passkey") as sent:
        log_in_with_passkey(page)
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    log_out(page)
    page.goto("/login/")
    token = page.locator("input[name=csrfmiddlewaretoken]").first.input_value()
    form = {**dict(parse_qsl(sent.value.post_data)), "csrfmiddlewaretoken": token}
    answer = page.request.post("/login/passkey", form=form)
    assert answer.status == 422 and "already used" in answer.text()


def test_another_site_of_the_same_machine_gets_no_login(page, holder):
    """Browsers let each port of localhost use the passkeys of localhost, so Weir compares the whole origin."""
    register(page, holder)
    log_out(page)
    page.goto("/login/")
    token = page.locator("input[name=csrfmiddlewaretoken]").first.input_value()
    fields = {"csrfmiddlewaretoken": token, "purpose": "login"}
    options = page.request.post("/login/passkey/options", form=fields).json()
    page.route("http://localhost:9/", lambda route: route.fulfill(status=200, content_type="text/html", body="<p>x"))
    here = page.url
    page.goto("http://localhost:9/")
    stolen = page.evaluate(
        """async (options) => JSON.stringify(await navigator.credentials.get(
          {publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options)}))""",
        options,
    )
    assert json.loads(stolen)["type"] == "public-key"
    fields = {"csrfmiddlewaretoken": token, "passkey": stolen}
    answer = page.request.post(here.replace("/login/", "/login/passkey"), form=fields)
    assert answer.status == 422 and "was not accepted" in answer.text()


def test_a_request_that_the_user_cancels_changes_nothing_and_says_so(chromium, served, holder):
    with opened(chromium, f"http://localhost:{served.port}", {**DEVICE, "isUserVerified": False}) as page:
        enter_password(page, holder)
        page.get_by_label("Name", exact=True).fill("Laptop")
        page.get_by_role("button", name="Add passkey").click()
        expect(page.get_by_role("alert")).to_contain_text("The browser didn't return a passkey")
        expect(page.get_by_text("No passkeys.")).to_be_visible()


def test_an_address_without_passkeys_says_where_there_are_some(open_page, served):
    page = open_page(PASSKEYS_PAGE)
    expect(page.get_by_text(f"Open Weir at http://localhost:{served.port}")).to_be_visible()
    expect(page.get_by_role("button", name="Add passkey")).to_have_count(0)


def test_the_pages_of_passkeys_can_be_used_by_everybody(page, holder):
    register(page, holder, "A security key with a name as long as a name may be, in full")
    seen_well(page)
    page.goto(f"/confirm/?next={PASSKEYS_PAGE}")
    seen_well(page)
    log_out(page)
    page.goto("/login/")
    expect(page.get_by_role("button", name="Log in with a passkey")).to_be_visible()
    seen_well(page)
    enter_password(page, holder, "/nodes/")
    expect(page.get_by_role("button", name="Use a passkey")).to_be_visible()
    seen_well(page)


def seen_well(page):
    for viewport, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == [] and overhang(page) <= 0 and unreadable(page) == [], (page.url, scheme)
