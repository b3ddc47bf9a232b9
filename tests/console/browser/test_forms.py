"""Forms that steer: sent once, never lost, given as a command; what others typed is text and nothing else."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, live
from tests.console.served import PASSWORD

pytestmark = BROWSER
BREAKS = "document.body.dataset.broken = 1"
SCRIPT = f"<script>{BREAKS}</script><img src=x onerror='{BREAKS}'>"


def choose_scope(page, reason):
    form = page.locator("form[data-scope]")
    form.locator("select[name=queue]").select_option("alert")
    form.locator("select[name=name]").select_option("worker_rate/upper_limit")
    form.locator("input[name=value]").fill("700")
    form.get_by_label("Reason").fill(reason)


@pytest.mark.thorough
def test_many_loops_are_overridden_at_once_and_the_form_says_which(open_page, observer, ended):
    page = open_page("/manual-changes/")
    live(page, observer)
    choose_scope(page, "a sale")
    expect(page.locator("[data-covers]")).to_contain_text("worker rate/alert/n1")
    expect(page.locator("[data-covers]")).to_contain_text("must be a number from 1")
    button = page.get_by_role("button", name="Override upper limit on 1 loop")
    button.click()
    held = page.locator("[data-override]")
    expect(held).to_contain_text("Upper limit of worker rate, queue alert")
    expect(held).to_contain_text("1,000 → 700")
    page.locator("[data-override] summary", has_text="End now").click()
    page.locator("[data-override]").get_by_role("button", name="End now").click()
    expect(held).to_have_count(0)


def test_a_double_click_changes_once(open_page, observer, ask, ended):
    page = open_page("/manual-changes/")
    live(page, observer)
    choose_scope(page, "twice")
    page.locator("form[data-scope] .primary").dblclick()
    expect(page.locator("[data-override]")).to_have_count(1)
    assert len(ask("GET", "audit?action=override.set&text=twice")["entries"]) == 1


@pytest.mark.thorough
@pytest.mark.parametrize(("answer", "said"), [(None, "runs only once"), (502, "The outcome is unknown")])
def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_happens_twice(
    answer, said, open_page, observer, ask, ended
):
    """The change is made; its answer never arrives, or a proxy answers for the console. Who presses again gets it."""
    page, lost, reason = open_page("/manual-changes/"), [], f"lost answer {answer}"
    live(page, observer)
    choose_scope(page, reason)

    def lose(route):
        route.fetch()
        lost.append(route.request.headers["idempotency-key"])
        if answer:
            route.fulfill(status=answer, content_type="text/html", body="<h1>Bad gateway</h1>")
        else:
            route.abort()

    page.route("**/overrides/create", lose, times=1)
    button = page.locator("form[data-scope] .primary")
    button.click()
    expect(page.locator("form[data-scope] .error")).to_contain_text(said)
    with page.expect_request("**/overrides/create") as again:
        button.click()
    assert again.value.headers["idempotency-key"] == lost[0]
    expect(page.locator(".toast")).to_contain_text("Upper limit of worker rate, queue alert is 700")
    assert len(ask("GET", f"audit?action=override.set&text={reason.replace(' ', '+')}")["entries"]) == 1


@pytest.mark.thorough
def test_another_button_after_a_lost_answer_is_another_change(open_page, observer):
    page = open_page("/nodes/n1/")
    live(page, observer)
    form = page.locator("form[action$='/nodes/use']")
    form.get_by_label("Reason").fill("its disk is slow")
    keys = []

    def lose(route):
        keys.append(route.request.headers["idempotency-key"])
        route.abort()

    page.route("**/nodes/use", lose)
    for pressed in ("Cordon n1", "Cordon n1", "Drain n1"):
        form.get_by_role("button", name=pressed).click()
        expect(form.locator(".error")).to_contain_text("unknown")
    first, again, other = keys
    assert first == again != other


@pytest.mark.thorough
def test_what_is_wrong_with_a_field_that_is_not_shown_is_said_all_the_same(open_page, observer):
    page = open_page("/manual-changes/")
    live(page, observer)
    choose_scope(page, "a hidden field")
    body = '{"errors": {"expires_at": ["takes a time from now on."]}}'
    answer = {"status": 422, "content_type": "application/json", "body": body}
    page.route("**/overrides/create", lambda route: route.fulfill(**answer))
    page.locator("form[data-scope] .primary").click()
    expect(page.locator("form[data-scope] .error")).to_have_text("expires at: takes a time from now on.")
    expect(page.locator("form[data-scope] .error")).to_be_visible()


def test_a_time_is_typed_in_the_readers_zone(open_page, observer, ended):
    page = open_page("/manual-changes/", timezone_id="America/New_York")
    live(page, observer)
    choose_scope(page, "until the evening")
    page.locator("form[data-scope]").get_by_label("Expires").select_option("until")
    zone = page.evaluate("new Date().getTimezoneOffset()")
    assert zone >= 240
    there = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + 7200 - zone * 60))
    page.get_by_label("Until").fill(there)
    page.locator("form[data-scope] .primary").click()
    left = page.locator("[data-override] [data-until]")
    expect(left).to_have_text(re.compile(r"^(1:5\d:\d\d|2:00:00)$"))


@pytest.mark.thorough
def test_what_a_colleague_overrides_while_a_form_is_filled_in_stays_in_force(
    open_page, observer, worker_loop, ask, ended
):
    page = open_page(worker_loop)
    live(page, observer)
    form = page.locator("#steer")
    form.get_by_label("Reason").fill("a test of two")  # with the focus in it the form is not written anew
    new = {"loop": "worker_rate/alert/n1", "minutes": 5, "reason": "a colleague's"}
    ask("POST", "overrides", {**new, "name": "upper_limit", "value": 700})
    observer.publish(reverting(observer, 300))
    page.get_by_label("Events per worker").fill("50")
    form.locator("button.primary").click()
    expect(page.locator("[data-override]")).to_have_count(2)
    held = {row["name"]: row["value"] for row in ask("GET", "overrides")["overrides"]}
    assert held == {"upper_limit": 700, "events_per_worker": 50}


def log_in_again(page):
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_a_session_that_ends_in_the_middle_of_a_form_loses_nothing(open_page, observer, ask, ended):
    page = open_page("/manual-changes/?x=1")
    live(page, observer)
    choose_scope(page, "typed before the session ended")
    page.context.clear_cookies(name="sessionid")
    page.locator("form[data-scope] .primary").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    log_in_again(page)
    expect(page).to_have_url(re.compile(r"/manual-changes/\?x=1$"))
    form = page.locator("form[data-scope]")
    expect(form.get_by_label("Reason")).to_have_value("typed before the session ended")
    expect(form.locator("input[name=value]")).to_have_value("700")
    expect(form.locator("select[name=queue]")).to_have_value("alert")
    expect(page.locator(".toast")).to_contain_text("Your input was restored")
    form.locator(".primary").click()
    expect(page.locator("[data-override]")).to_contain_text("typed before the session ended")
    assert len(ask("GET", "audit?action=override.set&text=typed+before")["entries"]) == 1


@pytest.mark.thorough
def test_a_form_without_fetch_is_filled_again_after_the_login_and_secrets_are_not(open_page, observer):
    page = open_page("/settings/")
    live(page, observer)
    page.get_by_label("Name").fill("typed-before")
    page.get_by_label("Old password").fill(PASSWORD)
    page.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Create token").click()
    log_in_again(page)
    expect(page).to_have_url(re.compile("/settings/$"))
    expect(page.get_by_label("Name")).to_have_value("typed-before")
    expect(page.get_by_label("Old password")).to_have_value("")
    assert page.evaluate("JSON.stringify({...sessionStorage})") == "{}"


@pytest.mark.thorough
def test_a_form_is_copied_as_a_command(open_page, observer):
    page = open_page("/manual-changes/", permissions=["clipboard-read", "clipboard-write"])
    live(page, observer)
    choose_scope(page, "the owner's sale")
    page.locator("form[data-scope]").get_by_role("button", name="Copy as command").click()
    expect(page.locator(".toast")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == (
        "manage.py weir overrides create --queue alert --name worker_rate/upper_limit --value 700"
        " --reason 'the owner'\\''s sale' --minutes 30"
    )


def reverting(observer, seconds):
    def change(snapshot):
        now = time.time()
        snapshot["overrides"] = [
            {
                "id": 1, "scope": "queue alert", "loop": None, "node": None, "name": "upper_limit", "value": 700,
                "instead_of": 1000, "owner": "desk-2", "reason": SCRIPT, "created_at": now - 600,
                "expires_at": now + seconds, "notice_at": now + seconds - 120,
            },
        ]  # fmt: skip
        title, until = "Upper limit of all laws, queue alert", now + seconds
        snapshot["hands"] = [
            {"key": "override/1", "kind": "override", "of": "queue/alert", "title": title, "value": "700",
             "until": until},
        ]  # fmt: skip

    return change


@pytest.mark.thorough
def test_before_an_override_reverts_the_strip_says_so_and_offers_more_time(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    observer.publish(reverting(observer, 300))
    strip = page.locator("#strip-overrides")
    expect(strip).to_contain_text(re.compile(r"1 manual change\s+next ends 4:5\d"))
    observer.publish(reverting(observer, 90))
    expect(strip).to_have_attribute("title", "The override of upper limit ends soon")
    expect(strip).to_contain_text(re.compile(r"next ends 1:[23]\d"))
    toast = page.locator(".toast")
    expect(toast).to_contain_text("The manual change “Upper limit of all laws, queue alert: 700” ends in 1:")
    left = toast.locator("[data-until]")
    before = left.text_content()
    expect(left).not_to_have_text(before)  # it stood still once
    expect(toast.get_by_role("button", name="Extend by 30 min")).to_be_visible()


def test_script_in_a_reason_is_text_wherever_it_stands(open_page, observer, ask, ended):
    body = {"queue": "alert", "name": "upper_limit", "value": 600, "reason": SCRIPT, "minutes": 5}
    made = ask("POST", "overrides", body)
    for path in ("/manual-changes/", "/loops/", "/", "/audit/?action=override.set"):
        page = open_page(path)
        live(page, observer)
        observer.publish(reverting(observer, 60))
        expect(page.locator("body")).not_to_have_attribute("data-broken", "1")
    ask("POST", f"overrides/{made['id']}/end")
    page = open_page("/manual-changes/")
    expect(page.locator("#manual-ended")).to_contain_text("Upper limit")
