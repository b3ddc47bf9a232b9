"""Chat and pagers by apprise: its real services send to endpoints of this machine, by their own process."""

import threading

import orjson
import pytest

from common.errors import BadInput
from tests.waiting import MAX_SECONDS
from tests.workers.alerts.checks import deliver, fire, rule
from tests.workers.alerts.receiving import hook
from workers.alerts.delivery import apprise, apprise_process, dispatcher, outbox, receivers, webhook
from workers.alerts.delivery.apprise_process import EgressGuard, remove_secrets
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Alert, Message, Receiver

pytestmark = pytest.mark.django_db
NAME = "WEIR_SECRET_CHAT"
TOKEN = "3ccdd113474722377935511fc85d3dd4"
NAMES = ("gone", "desk", "home")


def chat(monkeypatch, address: str) -> Receiver:
    monkeypatch.setenv(NAME, address)
    made = receivers.define("chat", "apprise", {"secret_environment": NAME})
    rule(escalation=[{"after_minutes": 0, "receivers": ["chat"]}])
    return made


def test_a_message_to_an_address_of_apprise_says_what_is_wrong_and_links_to_what_can_be_done(
    looks, posts, monkeypatch, settings
):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    chat(monkeypatch, f"json://127.0.0.1:{posts.port}/alerts")
    fire(looks)
    assert deliver(looks) == 1, Message.objects.get().error
    ((_, body),) = posts.posts
    document = orjson.loads(body)
    alert = Message.objects.get().content["alerts"][0]["id"]
    assert document["title"] == "[critical] Node n1 is lost" and document["type"] == "failure"
    for part in (
        "has not reported for 14 s",
        f"Acknowledge: https://weir.example/alerts/{alert}/?act=acknowledge",
        f"Silence: https://weir.example/alerts/silences/?alert={alert}",
    ):
        assert part in document["message"], part
    assert "Start a reply" not in document["message"]


def test_a_message_to_a_chat_whose_answers_are_taken_says_how_to_answer(looks, posts, monkeypatch):
    made = chat(monkeypatch, f"json://127.0.0.1:{posts.port}/alerts")
    receivers.define("chat", "apprise", {**made.settings, "answers_environment": "WEIR_SECRET_ANSWERS"})
    fire(looks)
    assert deliver(looks) == 1, Message.objects.get().error
    ((_, body),) = posts.posts
    alert = Message.objects.get().content["alerts"][0]["id"]
    said = f"Start a reply with {alert} to add it to the alert."
    assert said in orjson.loads(body)["message"]


def test_what_a_service_refuses_is_noted_without_the_address_and_tried_again(looks, posts, monkeypatch):
    """Mattermost's webhook: the services of Slack's kind, at an address of one's own."""
    token = "3ccdd113474722377935511fc85d3dd4"
    chat(monkeypatch, f"mmost://127.0.0.1:{posts.port}/{token}")
    posts.answers = [403]
    fire(looks)
    assert deliver(looks) == 0
    message = Message.objects.get()
    assert message.state == "waiting" and "403" in message.error and "Mattermost" in message.error
    assert token not in message.error
    looks.now += 10
    assert deliver(looks) == 1 and posts.paths == [f"/hooks/{token}"] * 2
    assert "Node n1 is lost" in orjson.loads(posts.posts[0][1])["text"]


def test_of_several_that_an_address_names_those_that_took_a_message_do_not_get_it_again(looks, posts, monkeypatch):
    """One refuses it at first: the next try is for that one alone."""
    chat(monkeypatch, f"mmost://127.0.0.1:{posts.port}/{TOKEN}?to=gone,desk,home")
    posts.answers = [200, 404]
    fire(looks)
    assert deliver(looks) == 0
    message = Message.objects.get()
    assert len(posts.paths) == 3 and len(set(channels(posts))) == 2
    assert message.state == "waiting" and "404" in message.error
    assert message.error.startswith("Not delivered to all targets of the address: Mattermost: ")
    assert len(message.reached) == 2 and not any(name in str(message.reached) for name in NAMES)
    looks.now += 10
    assert deliver(looks) == 1, Message.objects.get().error
    assert sorted(channels(posts)) == ["desk", "gone", "home"], "each has it once"
    message.refresh_from_db()
    assert message.state == "sent" and message.error == ""


def test_one_of_several_that_never_takes_a_message_is_left_out_at_last_and_the_alert_says_so(looks, posts, monkeypatch):
    chat(monkeypatch, f"mmost://127.0.0.1:{posts.port}/{TOKEN}?to=gone,desk")
    posts.answers = [200, *[404] * outbox.TRIES_OF_REST]
    fire(looks)
    for _ in range(outbox.TRIES_OF_REST - 1):
        assert deliver(looks) == 0
        looks.now += 40
    assert Message.objects.get().state == "waiting"
    deliver(looks)
    message = Message.objects.get()
    assert len(channels(posts)) == 1 and len(posts.paths) == 1 + outbox.TRIES_OF_REST
    assert message.state == "sent" and "404" in message.error
    said = message.deliveries.get().alert.events.get(kind="told").text
    assert said.endswith(message.error), "the alert says that somebody was left out"


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        "ntfy://127.0.0.1:{port}/a/b?mode=private",
        f"mmost://127.0.0.1:{{port}}/{TOKEN}?to=a,b",
        f"rocket://{TOKEN}/{TOKEN}@127.0.0.1:{{port}}/%23general/%23support",
    ],
)
def test_services_that_do_not_say_which_of_several_have_a_message_repeat_none(address, looks, posts, monkeypatch):
    """Whatever apprise's service logs as it goes on."""
    chat(monkeypatch, address.format(port=posts.port))
    posts.answers = [200, 500]
    fire(looks)
    assert deliver(looks) == 0
    looks.now += 10
    assert deliver(looks) == 1, Message.objects.get().error
    assert len(posts.paths) == 3 and len(posts.posts) == 2


def channels(posts) -> list[str]:
    return [orjson.loads(body)["channel"] for _, body in posts.posts]


def test_a_service_that_hangs_keeps_no_other_receiver_waiting(looks, posts, monkeypatch):
    """What becomes due while it hangs goes out at once."""
    silent, release = threading.Event(), threading.Event()

    def hang(*_):
        silent.set()
        release.wait(MAX_SECONDS)
        raise Failed("it hung")

    receivers.define("chat", "webhook", {"url": "http://127.0.0.1:9999/"})
    desk = receivers.define("desk", "webhook", {"url": f"http://127.0.0.1:{posts.port}/"})
    rule(escalation=[{"after_minutes": 0, "receivers": ["chat"]}])
    fire(looks)
    channels = {
        "webhook": lambda message, now: hang() if message.receiver.name == "chat" else webhook.send(message, now)
    }
    later = iter([None])

    def alive():
        if silent.is_set() and next(later, True) is None:
            outbox.test_message(desk, "operator", looks.at)
        if posts.posts:
            release.set()
        return True

    assert dispatcher.deliver(lambda: looks.at, alive, channels) == 1
    assert len(posts.posts) == 1 and Message.objects.get(receiver__name="chat").error == "it hung"


@pytest.mark.slow
def test_an_address_that_apprise_does_not_know_is_said(looks, monkeypatch):
    chat(monkeypatch, "bogus://x")
    fire(looks)
    assert deliver(looks) == 0
    assert "Apprise does not support the address" in Message.objects.get().error


def test_an_address_that_is_not_set_says_what_to_set(monkeypatch):
    made = chat(monkeypatch, "json://x")
    assert apprise.setup_error(made) == ""
    with pytest.raises(Failed, match="WEIR_SECRET_CHAT is not set"):
        apprise.read_address(made, {})
    with pytest.raises(BadInput, match="secret_environment"):
        receivers.define("chat", "apprise", {"secret_environment": "WEIR_SECRET_KEY"})
    with pytest.raises(BadInput, match="secret_environment"):
        receivers.define("chat", "apprise", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "allowed", "why"),
    [
        ("json://127.0.0.1:{port}/", "", "loopback"),
        ("json://localhost:{port}/", "", "loopback"),
        ("json://127.0.0.1:6379/", "127.0.0.0/8", "port"),
        ("rsyslog://127.0.0.1:5140/", "", "loopback"),
        ("syslog://", "127.0.0.0/8", "of this host"),
    ],
)
def test_the_egress_policy_holds_for_every_service(address, allowed, why, looks, posts, monkeypatch, settings):
    settings.WEIR_EGRESS_ALLOW = allowed
    chat(monkeypatch, address.format(port=posts.port))
    fire(looks)
    assert deliver(looks) == 0 and posts.paths == []
    assert why in Message.objects.get().error


WORKFLOW = "127.0.0.1:{port}/0123456789abcdef0123456789abcdef/AbcdefghIjklmnop-_1234567890abcdefghijklmnopq"


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        f"workflows://{WORKFLOW}/?template={{file}}",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template={file}",
        "vapid://desk@x.example/desk@x.example?keyfile={file}&subfile={file}",
    ],
)
def test_files_of_this_host_that_an_address_names_are_refused(address, looks, posts, monkeypatch, tmp_path):
    file = tmp_path / "of_the_host.json"
    file.write_text('{"text": "a secret of the host"}')
    chat(monkeypatch, address.format(port=posts.port, file=file))
    fire(looks)
    assert deliver(looks) == 0 and posts.paths == []
    error = Message.objects.get().error
    assert "access to files of this host is blocked" in error and file.name not in error


def test_names_from_outside_make_no_tag_no_link_and_no_call_in_a_chat(looks, posts, monkeypatch):
    chat(monkeypatch, f"json://127.0.0.1:{posts.port}/alerts")
    fire(looks)
    Alert.objects.update(sentence="Node <!channel> @here [log in](https://evil)\nAcknowledge: x")
    assert deliver(looks) == 1, Message.objects.get().error
    ((_, body),) = posts.posts
    said = orjson.loads(body)["message"]
    assert "Node \u2039!channel\u203a @\u200bhere [log in] (https://evil) Acknowledge: x\n" in said


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "?redirect=yes"])
def test_redirects_are_not_followed_whatever_the_address_says(more, looks, posts, monkeypatch):
    with hook() as elsewhere:
        posts.answers, posts.location = [307], f"http://127.0.0.1:{elsewhere.port}/"
        chat(monkeypatch, f"json://127.0.0.1:{posts.port}/{more}")
        fire(looks)
        assert deliver(looks) == 0 and elsewhere.paths == []


@pytest.mark.parametrize(
    ("event", "arguments", "passes"),
    [
        ("socket.connect", (None, ("10.1.2.3", 443)), True),
        ("socket.connect", (None, ("169.254.169.254", 80)), False),
        ("socket.connect", (None, ("::1", 8080, 0, 0)), False),
        ("socket.connect", (None, ("fe80::1%eth0", 8080, 0, 2)), False),
        ("socket.connect", (None, ("10.1.2.3", 5432)), False),
        ("socket.connect", (None, ("name.example", 443)), False),
        ("socket.connect", (None, "/run/docker.sock"), False),
        ("socket.sendto", (None, ("127.0.0.1", 5140)), False),
        ("socket.sendmsg", (None, None), True),
        ("subprocess.Popen", ("sh", ["sh"], None, None), False),
        ("os.posix_spawn", ("sh", ["sh"], None), False),
        ("open", ("/etc/hosts", "r", 0), True),
    ],
)
def test_the_guard_sees_each_way_out(event, arguments, passes):
    guard = EgressGuard("")
    if passes:
        guard(event, arguments)
    else:
        with pytest.raises(ConnectionRefusedError):
            guard(event, arguments)
    assert bool(guard.refusals) is not passes


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        (3, True),
        (orjson.__file__, True),
        (b"/etc/resolv.conf", True),
        ("/etc/passwd", False),
        ("/etc/ssl/../passwd", False),
        ("/proc/1/environ", False),
        (__file__, False),
    ],
)
def test_the_guard_lets_libraries_read_themselves_and_nothing_else(path, passes):
    guard = EgressGuard("")
    if passes:
        guard("open", (path, "r", 0))
    else:
        with pytest.raises(PermissionError):
            guard("open", (path, "r", 0))
    assert bool(guard.unread) is not passes and not guard.refusals


def test_a_link_out_of_what_libraries_read_leads_nowhere(tmp_path, monkeypatch):
    readable = tmp_path / "library"
    readable.mkdir()
    (tmp_path / "secret").touch()
    (readable / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(apprise_process, "READABLE", (str(readable),))
    with pytest.raises(PermissionError):
        EgressGuard("")("open", (str(readable / "link"), "r", 0))


@pytest.mark.parametrize(
    ("address", "text", "said"),
    [
        (
            "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?footer=no",
            "POST https://hooks/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ: 404",
            "POST https://hooks/…/…/…: 404",
        ),
        (
            "mailto://desk:Pass%2Fword@mail.example/?key=AbCdEf",
            "535 for desk with Pass/word at MAIL.EXAMPLE, key abcdef",
            "535 for … with … at …, key …",
        ),
    ],
)
def test_an_error_holds_no_part_of_the_address_in_whatever_case_or_decoded(address, text, said):
    assert remove_secrets(text, address) == said
    assert apprise_process.MIN_SECRET <= 4
