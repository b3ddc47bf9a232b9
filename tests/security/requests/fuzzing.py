"""What a fuzz sends: every address of the console with hostile values, by everybody, and what it counts.

Each request is taken back in the database, so that one example does not depend on those before it.
"""

import functools
import inspect
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from console.connections.control_server import control
from queues import keys

TEMPLATES = Path(settings.BASE_DIR) / "templates"
# A request that takes longer hangs. Of the processor: the machine of a test is shared, and may stand still.
# What waits for ever is found by the test's own timeout.
# Answers of 503 that are meant: a part is away; a loop has no sound wish, so that who polls it falls back.
MAY_BE_AWAY = ("readyz", "desired")
MAX_SECONDS = 20.0
FIELD_NAME = re.compile(r"""(?:\.get(?:list)?\(|posted\[|POST\[|GET\[|text_of\(request, )["']([\w-]+)["']""")
INPUT_NAME = re.compile(r'\bname="([\w.-]+)"')
PLACE = re.compile(r"<(?:\w+:)?(\w+)>")

HOSTILE = (
    "", " ", "0", "-1", "1", "0.5", "1e308", "-1e308", "1e999", "nan", "inf", "9" * 30, "9" * 5_000, "0x10", "1_000",
    "\u0663", "\u00b2", "null", "true", "[]", "{}", "[" * 2_000, "\ufffd", "\u202e\u0000", "a\u0000b", "\u00e9" * 400,
    "x" * 10_000, "0001-01-01T00:00:00+14:00", "0001-01-01", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z",
    "2026-11-20T03:12:00", "2026-11-20T03:12:00Z", "24:61", "../../etc/passwd", "/etc/passwd",
    "<script>alert(1)</script>", "{{ 7 * 7 }}", "%s%n", "' OR 1=1 --", "=cmd()", "* * * * *", "a,b;c:d",
    "http://127.0.0.1:1/", "SEQ(A; B)",
)  # fmt: skip
USUAL = (
    "n1", "alert", "performance", "hosts", "performance/hosts", "main", "worker_rate", "upper_limit",
    "worker_rate/upper_limit", "guard.maximum", "mode", "viewer", "operator", "administrator", "a test", "30", "600",
    "2", "hold", "manual", "auto", "drain", "cordon", "return", "requeue", "discard", "below-busy", "band", "crash",
    "retention", "node_lost", "desk", "webhook", "email", "weir", "flink", "interval", "calendar", "csv", "json",
    "shed", "all", "upload",
)  # fmt: skip
MOMENTS = (
    "2026-11-20T03:12:00Z", "2200-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "-0001-01-01", "1e12", "-62135596800",
)  # fmt: skip


def text_of(chance):
    """One text, by a cheaper die than Hypothesis has: most requests of the long form are thrown with it."""
    kind = chance.random()
    if kind < 0.45:
        return chance.choice(USUAL)
    if kind < 0.8:
        return chance.choice(HOSTILE)
    if kind < 0.9:
        return chance.choice(MOMENTS)
    if kind < 0.95:
        return str(chance.randint(-(10 ** chance.randint(0, 40)), 10 ** chance.randint(0, 40)))
    return "".join(chr(chance.choice((chance.randint(1, 127), chance.randint(128, 0x2FFF)))) for _ in range(8))


@dataclass
class Tally:
    """What was sent and answered."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    routes: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    slowest: tuple[float, str] = (0.0, "")
    failure: str = ""  # the first: what is found after it may be its consequence
    began: float = field(default_factory=time.monotonic)

    def count(self, route, role, status, seconds):
        self.requests += 1
        self.statuses[status] += 1
        self.routes.add(route)
        self.roles.add(role)
        self.slowest = max(self.slowest, (seconds, route))

    def report(self, name):
        seconds = time.monotonic() - self.began
        said = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        return (
            f"{name}: {self.requests:,} requests in {seconds:.0f} s over {len(self.routes)} routes"
            f" as {len(self.roles)} callers; {said}; slowest {self.slowest[0]:.2f} s ({self.slowest[1]})"
            f"{self.failure}"
        )


@dataclass(frozen=True)
class Caller:
    """Somebody with a session, a token, or neither."""

    name: str
    cookies: Mapping[str, str]
    headers: Mapping[str, str]

    def browser(self):
        """A fresh one, so that no answer's cookie changes who asks next."""
        browser = Client(raise_request_exception=False)
        for name, value in self.cookies.items():
            browser.cookies[name] = value
        return browser


def callers_of(browsers, secrets):
    """Everybody, with a session and with a token. Administrators get furthest, so they ask most often."""
    name = settings.SESSION_COOKIE_NAME
    people = [
        Caller(role, {name: browser.cookies[name].value} if name in browser.cookies else {}, {})
        for role, browser in browsers.items()
    ]
    tokens = [
        Caller(f"token:{role}", {}, {"HTTP_AUTHORIZATION": f"Bearer {secret}"}) for role, secret in secrets.items()
    ]
    return [*people, *tokens]


def caller_for(chance, callers):
    """Anybody; most often who gets furthest: an administrator."""
    if chance.random() < 0.3:
        return chance.choice(callers)
    name = chance.choice(("administrator", "operator"))
    return next(each for each in callers if each.name == name)


def taken_back(work):
    """What `work` gives; what it changed in the database is as before."""
    with transaction.atomic():
        try:
            return work()
        finally:
            transaction.set_rollback(True)


def resume():
    """What a request has paused would refuse the events of those that follow, as it should."""
    if names := list(control().scan_iter(keys.PAUSE.pattern)):
        control().delete(*names)


def send(tally, caller, route, work):
    """One request; fails for 500 or more and for a hang, but what MAY_BE_AWAY may say so."""
    begun = time.process_time()
    answer = taken_back(lambda: work(caller.browser()))
    seconds = time.process_time() - begun
    resume()
    tally.count(route, caller.name, answer.status_code, seconds)
    if answer.status_code >= 500 and not tally.failure:
        tally.failure = f"; {caller.name} was answered {answer.status_code} first for {route}"
    away = answer.status_code == 503 and route.endswith(MAY_BE_AWAY)
    assert answer.status_code < 500 or away, (route, caller.name, answer.status_code)
    assert seconds < MAX_SECONDS, (route, caller.name, seconds)
    return answer


@dataclass(frozen=True)
class Page:
    """An address of the pages, and the fields that its module reads."""

    route: str
    fields: tuple[str, ...]

    def address(self, values, chosen):
        """The route filled: a place takes its usual value, or a chosen hostile one."""
        hostile = iter(chosen)

        def fill(match):
            text = next(hostile, "")
            return quote(str(text or values.get(match[0], values.get(f"<{match[1]}>", "alert"))), safe="")

        return "/" + PLACE.sub(fill, self.route)


def pages(patterns=None, before=""):
    """Every address that is none of the API's."""
    found = []
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            found += [] if route in ("api/", "control/") else pages(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            found.append(Page(route, fields_of(inspect.getsourcefile(inspect.unwrap(pattern.callback)) or "")))
    return found


@functools.cache
def fields_of(path):
    """Names of fields that the source of a page reads, and those of every form."""
    own = FIELD_NAME.findall(Path(path).read_text()) if "console" in path else []
    return tuple(dict.fromkeys([*own * 3, *input_names()]))


@functools.cache
def input_names():
    shared = ("reason", "minutes", "expires_at", "name", "value", "page", "before", "after", "at", "from", "to")
    found = [name for path in TEMPLATES.rglob("*.html") for name in INPUT_NAME.findall(path.read_text())]
    return tuple(dict.fromkeys([*shared, *found]))


def fields_for(chance, page):
    """Some of a page's fields, with one or more values each; most have a reason, which all else waits for."""
    names = {
        chance.choice(page.fields[:60] if chance.random() < 0.8 else page.fields) for _ in range(chance.randint(0, 9))
    }
    given = {name: [text_of(chance) for _ in range(chance.choice((1, 1, 1, 2)))] for name in names}
    return given | ({"reason": ["a test"]} if chance.random() < 0.7 else {})
