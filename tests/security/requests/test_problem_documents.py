"""Every error that a program gets is an RFC 9457 document: whoever refuses, and when the console fails."""

import logging

import pytest
from asgiref.testing import ApplicationCommunicator
from django.test import Client

from console.api import v1

pytestmark = pytest.mark.django_db
MEMBERS = {"type", "title", "status", "detail", "instance", "request_id", "errors"}
CAUSE = "the password of the database is hunter2"


@pytest.fixture
def viewer(secrets):
    return {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}


def told(answer, status):
    """The problem that an answer is."""
    assert answer.status_code == status
    assert answer["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem.keys() >= MEMBERS
    assert problem["status"] == status
    assert problem["instance"] == answer.request["PATH_INFO"] if hasattr(answer, "request") else True
    assert problem["request_id"] == answer["X-Request-ID"]
    return problem


REFUSALS = {
    "no caller": (401, "get", "/api/v1/loops", {}, {}),
    "no role": (403, "get", "/api/v1/audit", {}, {"as": "viewer"}),
    "an unknown loop": (404, "get", "/api/v1/loops/77", {}, {"as": "viewer"}),
    "an unknown address of the API": (404, "get", "/api/v1/nowhere", {}, {}),
    "an unknown address of the control API": (404, "get", "/control/main/v1/nothing", {}, {}),
    "a method that the API has not": (405, "delete", "/api/v1/loops", {}, {"as": "viewer"}),
    "a method that a probe has not": (405, "post", "/healthz", {}, {}),
    "a body that is no JSON": (400, "post", "/api/v1/silences/preview", b"{", {"as": "viewer"}),
    "a field that is missing": (422, "post", "/api/v1/silences/preview", b"{}", {"as": "viewer"}),
    "metrics from elsewhere": (401, "get", "/metrics", {}, {"REMOTE_ADDR": "192.0.2.7"}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_a_problem(case, viewer, control):
    status, method, address, body, more = REFUSALS[case]
    more = dict(more)
    who = viewer if more.pop("as", None) else {}
    content = {"content_type": "application/json"} if isinstance(body, bytes) else {}
    told(getattr(Client(), method)(address, body, **content, **who, **more), status)


def test_a_problem_names_the_field_and_keeps_what_scripts_read(viewer, control):
    answer = Client().post("/api/v1/silences/preview", b'{"matchers": [], "colour": 1}', "application/json", **viewer)
    problem = told(answer, 422)
    assert problem["field"] == "colour"
    assert problem["errors"] == {"colour": ["is unknown."]}
    assert problem["detail"] == "colour: is unknown."


def test_a_page_that_a_script_asks_refuses_with_a_problem(browsers, control):
    answer = browsers["operator"].post("/plans/rebalance", {"goal": "x"}, HTTP_ACCEPT="application/json")
    assert told(answer, 422)["errors"].keys() == {"plant"}


def test_a_forged_post_is_answered_so(people, control):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(people["operator"], backend="django.contrib.auth.backends.ModelBackend")
    for address in ("/plans/rebalance", "/api/v1/plans"):
        problem = told(browser.post(address, {}, HTTP_ACCEPT="application/json"), 403)
        assert "CSRF" in problem["detail"]


async def test_a_body_over_the_limit_is_a_problem(application):
    headers = [(b"content-length", b"99999999999"), (b"host", b"localhost")]
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/queues/alert/events", "headers": headers,
        "query_string": b"",
    }  # fmt: skip
    wire = ApplicationCommunicator(application, scope)
    await wire.send_input({"type": "http.request", "body": b""})
    begin, body = await wire.receive_output(5), await wire.receive_output(5)
    assert begin["status"] == 413
    assert (b"content-type", b"application/problem+json") in begin["headers"]
    assert b'"field":"body"' in body["body"]


@pytest.mark.parametrize("address", ["/api/v1/loops", "/control/main/v1/getalloperators", "/loops/"])
def test_a_failure_has_its_id_and_nothing_of_its_cause(address, browsers, monkeypatch, caplog, control):
    def fail(*_, **__):
        raise RuntimeError(CAUSE)

    for place in ("console.api.routes.control.describe_loops", "console.pages.loops.loop_list.describe_loops"):
        monkeypatch.setattr(place, fail)
    monkeypatch.setattr("console.api.routes.plant_control.load_current_topology", fail)
    browser = browsers["viewer"]
    browser.raise_request_exception = False
    with caplog.at_level(logging.ERROR):
        answer = browser.get(address)
    assert answer.status_code == 500
    assert CAUSE.encode() not in answer.content and b"Traceback" not in answer.content
    assert answer["X-Request-ID"].encode() in answer.content
    if not address.startswith("/loops"):
        told(answer, 500)
    failures = [each for each in caplog.records if each.exc_info]
    assert len(failures) == 1
    assert failures[0].request.request_id == answer["X-Request-ID"]


def test_the_document_of_the_api_states_the_problems_of_every_route():
    schema = v1.api.get_openapi_schema()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            stated = {int(status): each for status, each in operation["responses"].items()}
            assert stated.keys() >= set(v1.list_problem_statuses(method)), (method, path)
            for status in v1.list_problem_statuses(method):
                assert "application/problem+json" in stated[status]["content"], (method, path, status)
    assert schema["components"]["schemas"]["Problem"]["required"]


def test_a_readiness_that_is_bad_keeps_its_parts(control):
    problem = told(Client().get("/readyz"), 503)
    assert problem["ready"] is False
    assert problem["parts"]
