"""A request is a span of its caller's trace, and says no more than its route."""

import pytest
from django.test import Client

from tests.workers.observability.collected import Collected

pytestmark = pytest.mark.django_db
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def collected(monkeypatch):
    return Collected.instead_of_a_real_one(monkeypatch)


def test_a_request_is_a_span_of_its_callers_trace_named_by_its_route(collected):
    answer = Client().get("/healthz?secret=4711", headers=PARENT)
    found = collected.named("GET /healthz")
    assert answer.status_code == found.attributes["http.response.status_code"] == 200
    assert found.attributes["weir.request"] == answer["X-Request-ID"] and f"{found.context.trace_id:032x}" == TRACE
    assert "4711" not in found.to_json()


def test_a_path_that_nobody_serves_is_not_quoted(collected):
    assert Client().get("/4711").status_code in (302, 404)
    (found,) = collected.spans()
    assert "4711" not in found.to_json()
