"""A request: named in logs and traces, refused in words, answered whatever is away; and what its page loads."""

import logging
import subprocess
import sys
from html import unescape
from pathlib import Path

import plotly
import pytest
from django.contrib.staticfiles.finders import find, get_finders
from django.db.models.signals import pre_save
from django.test import Client
from django.utils import timezone

from common import logs
from console.accounts.submissions import Submission
from console.celery import app
from console.web.plotly_script import BASIC, StaticPlotly
from queues import keys
from tests.console.accounts.route_permissions import ROUTE_PERMISSIONS, request_route, taken_back
from tests.console.accounts.things import things as things
from tests.waiting import MAX_SECONDS
from tests.workers.observability.collected import Collected
from workers.objectives.models import Objective

pytestmark = pytest.mark.django_db

GIVEN = {
    "fields": {"kind": "queue", "subject": "alert", "condition": "wait_seconds <= 30", "target": 0.99},
    "reason": "a test",
}
KEY = {"Idempotency-Key": "one-and-the-same"}


@pytest.fixture
def overtaken():
    """Whoever makes an objective finds, as it is written, that somebody else has made one of its name."""

    def first(sender, instance, **_):
        pre_save.disconnect(first, Objective)
        Objective.objects.bulk_create(
            [Objective(name=instance.name, target=0.9, window_days=30, changed_at=timezone.now())]
        )

    pre_save.connect(first, Objective)
    yield
    pre_save.disconnect(first, Objective)


def make(browser, name="fast", **headers):
    return browser.post(f"/api/v1/objectives/{name}", GIVEN, content_type="application/json", headers=headers)


def test_who_makes_what_somebody_else_makes_at_once_is_refused_and_may_send_it_again(browsers, overtaken):
    answer = make(browsers["operator"], **KEY)
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("Another user made a conflicting change at the same time")
    assert not Submission.objects.exists() and not Objective.objects.exists()
    assert make(browsers["operator"], **KEY).status_code == 200


@pytest.mark.parametrize("page", ["/", "/nodes/", "/queues/", "/pipeline/", "/loops/", "/alerts/"])
def test_pages_say_that_a_snapshot_of_another_version_can_not_be_read(browsers, control, page):
    control.set(keys.SNAPSHOT, b'{"seq": "of another version"}')
    answer = browsers["viewer"].get(page)
    assert answer.status_code == 200
    said = unescape(answer.content.decode())
    assert (
        "The snapshot can't be read by this version" in said and "not yet" not in said and "No report yet" not in said
    )


def test_while_the_snapshot_is_of_another_version_programs_get_a_refusal(browsers, control):
    control.set(keys.SNAPSHOT, b'{"seq": "of another version"}')
    assert browsers["viewer"].get("/api/v1/live").status_code == 503
    assert browsers["viewer"].get("/api/v1/queues").status_code == 200
    assert browsers["viewer"].get("/readyz").status_code == 503


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


# What leads out of this process, or starts long work, is another test's.
ELSEWHERE = ("healthz", "readyz")


def failing(browsers, things, ready):
    browser = browsers["administrator"]
    browser.raise_request_exception = False
    for door in ROUTE_PERMISSIONS:
        ready()
        cookies = browser.cookies.copy()
        status = taken_back(lambda door=door: request_route(browser, door, things))
        browser.cookies = cookies
        if status >= 500 and status != 503 and not door.endswith(ELSEWHERE):
            yield door, status


@pytest.mark.slow
def test_while_nobody_has_observed_the_plant_nothing_fails(browsers, things, control):
    """An empty control server: no snapshot, no topology, no heartbeat."""
    assert list(failing(browsers, things, control.flushall)) == []


@pytest.mark.slow
def test_while_the_control_server_is_away_nothing_fails(browsers, things, control, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert list(failing(browsers, things, lambda: None)) == []


STATIC = "plotly/plotly.min.js"


@pytest.fixture
def base(settings, tmp_path):
    settings.BASE_DIR = tmp_path
    return tmp_path


def installed(base):
    script = base / BASIC
    script.parent.mkdir(parents=True)
    script.write_text("// basic")
    return script


def collect_scripts():
    found = []
    for finder in get_finders():
        for name, storage in finder.list([]) if isinstance(finder, StaticPlotly) else []:
            with storage.open(name) as script:
                found.append(f"{storage.prefix}/{name}: {script.read(8).decode()}")
    return found


def test_pages_load_the_basic_bundle_where_npm_has_installed_it(base):
    script = installed(base)
    assert find(STATIC) == str(script)
    assert find(STATIC, find_all=True) == [str(script)]
    assert collect_scripts() == [f"{STATIC}: // basic"]


def test_without_npm_pages_load_the_whole_library_of_the_package(base):
    assert Path(find(STATIC)).is_relative_to(Path(plotly.__file__).parent)
    assert collect_scripts() == [f"{STATIC}: /**\n* pl"]


def test_no_other_file_of_the_package_is_served(base):
    assert find("plotly/datasets/gapminder.csv.gz") is None
    assert find("plotly/plotly-basic.min.js") is None


BEGUN = """
import gc
import console.asgi
assert gc.isenabled()
assert gc.get_freeze_count() > 10 * len(gc.get_objects()), (gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_a_collection_goes_through_what_came_after_the_start_alone():
    subprocess.run([sys.executable, "-c", BEGUN], check=True, timeout=MAX_SECONDS)
