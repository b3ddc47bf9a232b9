"""Pages in a real Chromium on a real console, started once for all modules of this folder."""

import time
from contextlib import closing

import orjson
import pytest
from playwright.sync_api import expect

from bench.console import browser
from console.accounts.access import CONFIRMED_SECONDS
from tests.console.browser.screen import DESKTOP, Observer, whole_snapshot
from tests.console.served import PASSWORD

# A busy host paints late. What has to come soon says so where it is asked for.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="package")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="package")
def logins():
    """When somebody logged in (monotonic, s), and the cookies of that; the newest last."""
    return []


@pytest.fixture(scope="package")
def session(chromium, served, logins):
    """The cookies of a login, for all tests: argon2 is slow on purpose."""
    logins.append((time.monotonic(), login(chromium, served)))
    return logins[-1][1]


@pytest.fixture
def fresh_session(chromium, served, session, logins):
    """The same, of a login that is new enough for what asks who it is."""
    if time.monotonic() - logins[-1][0] > CONFIRMED_SECONDS / 2:
        logins.append((time.monotonic(), login(chromium, served)))
    return logins[-1][1]


def login(chromium, served):
    """Through the form."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/nodes/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="package")
def shared(chromium, served):
    """A context for pages that ask for nothing unusual: as a browser does, it keeps scripts and styles."""
    context = chromium.new_context(base_url=served.address)
    yield context
    context.close()


@pytest.fixture
def open_page(chromium, shared, served, fresh_session):
    """Opens an address, logged in; the test fails when the page logs an error. before: what is done to the
    page first; unusual: options of a context, which is then its own.
    """
    errors = []
    contexts, pages = [], []
    shared.add_cookies(fresh_session["cookies"])

    def new_page(unusual):
        context = chromium.new_context(base_url=served.address, storage_state=fresh_session, **unusual)
        contexts.append(context)
        return context.new_page()

    def opened(path, before=None, viewport=DESKTOP, color_scheme=None, reduced_motion=None, **unusual):
        page = new_page(unusual) if before or unusual else shared.new_page()
        pages.append(page)
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if before:
            before(page)
        page.goto(path)
        return page

    yield opened
    for page in pages:
        if not page.is_closed() and page.context is shared:
            page.evaluate("localStorage.clear()")
        page.close()
    for context in contexts:
        context.close()
    shared.clear_cookies()
    assert errors == []


@pytest.fixture
def observer(control):
    return Observer(control, whole_snapshot())


@pytest.fixture(scope="package")
def worker_loop(served):
    """The page of the loop of alert's workers on n1."""
    with closing(served.connection()) as connection:
        connection.request("GET", "/api/v1/loops", headers={"Cookie": served.log_in()})
        loops = orjson.loads(connection.getresponse().read())["loops"]
    return next(f"/loops/{loop['id']}/" for loop in loops if loop["name"] == "worker_rate/alert/n1")


@pytest.fixture
def ask(served):
    """The API, as the administrator asks it."""
    cookie = served.log_in()
    token = next(part.split("=")[1] for part in cookie.split("; ") if part.startswith("csrftoken="))

    def asked(method, path, body=None):
        headers = {"Cookie": cookie, "X-CSRFToken": token, "Content-Type": "application/json"}
        with closing(served.connection()) as connection:
            connection.request(method, f"/api/v1/{path}", orjson.dumps(body), headers)
            answer = connection.getresponse()
            document = orjson.loads(answer.read())
            assert answer.status < 300, document
            return document

    return asked


@pytest.fixture
def ended(ask):
    """Neither before the test nor after it is any override in force, whoever set it."""

    def end():
        for row in ask("GET", "overrides")["overrides"]:
            ask("POST", f"overrides/{row['id']}/end")

    end()
    yield
    end()
