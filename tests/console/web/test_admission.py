"""Who is served when more is asked than can be done at once: a real line of real tasks, and a slow answer."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.web.admission import LINES, Admission, Line, choose_waiting_line, count_refusals
from tests.virtual_time import in_virtual_time

PEOPLE, PROGRAMS, EVENTS = "/", "/api/v1/snapshot", "/api/v1/queues/alert/events"
FEW = (Line("people", 2, 3, 600.0, 503), Line("programs", 1, 2, 600.0), Line("events", 1, 2, 600.0))


@dataclass
class Answers:
    """An application that answers when it is let go; who is at work, and in which order they came."""

    working: list[str] = field(default_factory=list)
    most: int = 0
    order: list[str] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        self.working.append(scope["path"])
        self.order.append(scope["path"])
        self.most = max(self.most, len(self.working))
        try:
            await self.go.wait()
            if scope["path"].endswith("fails"):
                raise ValueError
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.working.remove(scope["path"])


@dataclass
class Answered:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


def whole():
    """A body that is there at once."""

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


async def ask(admission, path, receive=None):
    answered = Answered()

    async def send(message):
        if message["type"] == "http.response.start":
            answered.status, answered.headers = message["status"], dict(message["headers"])
        else:
            answered.body += message["body"]

    method = "POST" if path.endswith("/events") else "GET"
    await admission({"type": "http", "path": path, "method": method, "headers": []}, receive or whole(), send)
    return answered


async def begun(admission, *paths):
    """The requests, one after the other, each as far as it gets."""
    tasks = []
    for path in paths:
        tasks.append(asyncio.create_task(ask(admission, path)))
        for _ in range(5):
            await asyncio.sleep(0)
    return tasks


async def test_so_many_are_at_work_at_once_and_the_others_follow():
    answers = Answers()
    admission = Admission(answers, FEW, at_once=2)
    tasks = await begun(admission, *[PEOPLE] * 4)
    assert len(answers.working) == 2
    answers.go.set()
    assert [each.status for each in await asyncio.gather(*tasks)] == [200] * 4
    assert answers.most == 2 and not admission.at_work.total()


async def test_who_watches_is_given_how_many_were_refused_of_each_line():
    scopes = []

    async def application(scope, _receive, _send):
        scopes.append(scope)

    answers = Answers()
    admission = Admission(answers, FEW, at_once=2)
    tasks = await begun(admission, *[PROGRAMS] * 5)  # one at work, two wait
    admission.application = application
    await ask(admission, PEOPLE)
    assert count_refusals(scopes[0]) == {"people": 0, "programs": 2, "events": 0}
    answers.go.set()
    await asyncio.gather(*tasks)


async def test_people_go_before_programs_that_came_sooner():
    answers = Answers()
    tasks = await begun(Admission(answers, FEW, at_once=1), EVENTS, PROGRAMS, EVENTS, PEOPLE, PROGRAMS, PEOPLE)
    answers.go.set()
    await asyncio.gather(*tasks)
    assert answers.order == [EVENTS, PEOPLE, PEOPLE, PROGRAMS, PROGRAMS, EVENTS]


async def test_programs_leave_room_for_people():
    answers = Answers()
    tasks = await begun(Admission(answers, FEW, at_once=3), PROGRAMS, PROGRAMS, EVENTS, EVENTS, PEOPLE)
    assert answers.working == [PROGRAMS, EVENTS, PEOPLE]
    answers.go.set()
    await asyncio.gather(*tasks)


async def test_who_finds_a_line_full_is_refused_at_once_and_hears_when_to_come_back():
    answers = Answers()
    admission = Admission(answers, FEW, at_once=1)
    tasks = await begun(admission, *[PROGRAMS] * 4, *[PEOPLE] * 4)
    assert [task.done() for task in tasks] == [False] * 3 + [True] + [False] * 3 + [True]
    program, person = tasks[3].result(), tasks[7].result()
    assert program.status == 429 and program.headers[b"retry-after"] == b"1"
    assert "is overloaded" in json.loads(program.body)["detail"]
    assert person.status == 503 and person.headers[b"refresh"] == b"1"
    assert person.body.startswith(b"Weir has too much to do") and admission.refused.total() == 2
    answers.go.set()
    await asyncio.gather(*tasks)


@in_virtual_time
async def test_who_waits_too_long_is_refused_and_leaves_the_line():
    answers = Answers()
    admission = Admission(answers, (Line("people", 1, 5, 20.0),), at_once=1)
    first, second = await begun(admission, PEOPLE, PEOPLE)
    assert (await second).status == 429 and not admission.waiting["people"]
    answers.go.set()
    assert (await first).status == 200


async def test_who_gives_up_leaves_the_line_and_who_fails_gives_the_place_back():
    answers = Answers()
    admission = Admission(answers, FEW, at_once=1)
    failing, gives_up, last = await begun(admission, "/fails", PEOPLE, "/last")
    gives_up.cancel()
    answers.go.set()
    assert (await last).status == 200
    assert [type(each) for each in await asyncio.gather(failing, gives_up, return_exceptions=True)] == [
        ValueError,
        asyncio.CancelledError,
    ]
    assert not admission.at_work.total() and not any(admission.waiting.values())


async def test_a_request_whose_body_is_on_its_way_takes_no_place():
    answers, rest = Answers(), asyncio.Event()
    admission = Admission(answers, FEW, at_once=1)
    messages = iter([True, False])

    async def slowly():
        more = next(messages)
        if not more:
            await rest.wait()
        return {"type": "http.request", "body": b"x", "more_body": more}

    slow = asyncio.create_task(ask(admission, EVENTS, slowly))
    (quick,) = await begun(admission, PEOPLE)
    answers.go.set()
    assert (await quick).status == 200 and not slow.done()
    rest.set()
    assert (await slow).status == 200


async def test_how_the_console_is_can_be_asked_while_pages_overload_it():
    answers = Answers()
    admission = Admission(answers, LINES, at_once=1)
    tasks = await begun(admission, *[PEOPLE] * 3, "/healthz", "/readyz", "/metrics", "/static/weir.css")
    assert answers.working == [PEOPLE, "/healthz", "/readyz", "/metrics", "/static/weir.css"]
    answers.go.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("method", "path", "line"),
    [
        ("GET", "/", "people"),
        ("GET", "/api/v1/ledger", "programs"),
        ("POST", "/control/here/v1/hold", "programs"),
        ("POST", EVENTS, "events"),
        ("GET", EVENTS, "programs"),
        ("GET", "/static/weir.css", "files"),
        ("GET", "/metrics", "watched"),
        ("GET", "/healthz", "alive"),
        ("POST", "/mcp", "programs"),
    ],
)
def test_a_request_waits_in_the_line_of_its_address(method, path, line):
    assert choose_waiting_line({"method": method, "path": path}) == line
    assert line in {each.name for each in LINES}


@given(st.lists(st.sampled_from([PEOPLE, PROGRAMS, EVENTS, "let go"]), max_size=40))
async def test_whatever_comes_no_bound_is_exceeded_and_everybody_is_answered(steps):
    answers = Answers()
    admission = Admission(answers, FEW, at_once=3)
    tasks = []
    for step in steps:
        if step == "let go":
            answers.go.set()
            for _ in range(8):
                await asyncio.sleep(0)
            answers.go.clear()
        else:
            tasks += await begun(admission, step)
        assert len(answers.working) <= 3
        for line in FEW:
            assert admission.at_work[line.name] <= line.at_work
            assert len(admission.waiting[line.name]) <= line.waiting
    answers.go.set()
    assert {each.status for each in await asyncio.gather(*tasks)} <= {200, 429, 503}
    assert not admission.at_work.total() and not any(admission.waiting.values())
