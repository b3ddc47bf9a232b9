"""What is logged while a request, a task or a tick is at work names it."""

import logging

import pytest
from django.test import Client

from common import logs
from console.celery import app

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines(caplog):
    caplog.handler.addFilter(logs.Ids())
    return caplog


def test_a_request_is_named_by_the_id_that_its_answer_has(lines, monkeypatch):
    def noted(request):
        logging.getLogger("weir.page").warning("noted")
        raise RuntimeError

    monkeypatch.setattr("console.urls.urlpatterns", [])
    monkeypatch.setattr("django.core.handlers.base.BaseHandler.resolve_request", lambda self, request: noted(request))
    answer = Client(raise_request_exception=False).get("/")
    assert answer.status_code == 500
    about = {record.name: record.ids for record in lines.records}
    assert about["weir.page"] == about["django.request"] == {"request": answer["X-Request-ID"]}


def test_a_task_is_named_by_its_id(lines):
    @app.task(name="tests.noted")
    def noted():
        logging.getLogger("weir.task").warning("noted")

    result = noted.apply(task_id="t-1")
    assert result.successful()
    assert [record.ids for record in lines.records if record.name == "weir.task"] == [{"task": "t-1"}]
