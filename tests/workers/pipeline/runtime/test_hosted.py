"""An application in its process: started, failed, tried again, given up for a new process, stopped by hand.

Spark itself is left out: what runs is one that fails as it is told (`test_orders_on_spark` has the real one).
"""

from types import SimpleNamespace

import pytest

from common.errors import BadInput
from common.stored_document import decode_document, replace_fields
from queues import keys
from tests.console.pipeline_sample import DECLARATION
from tests.workers.pipeline.times import Times
from workers.documents.pipeline import ApplicationStatus, PipelineReport
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.declaration.declared import NO_ORDER, Declarations, DeclarationText
from workers.pipeline.runtime import hosted
from workers.pipeline.runtime.hosted import HostedApplication, HostingPlace, RestartBackoff, SessionExpired
from workers.pipeline.runtime.spark_session import SparkNeeded, SparkOnDemand
from workers.pipeline.status.published import Statuses

DECLARED = DeclarationText("performance", 0, DECLARATION)
BY_ANNA = replace_fields(NO_ORDER, by="anna", reason="it stands")


class Application:
    """What the process hosts, whose start or next check fails, if wanted."""

    def __init__(self) -> None:
        self.starts, self.ends = 0, 0
        self.start_error: Exception | None = None
        self.error: Exception | None = None

    def __call__(self, *_: object, **__: object) -> "Application":
        self.starts += 1
        if self.start_error is not None:
            raise self.start_error
        return self

    def check(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def end(self) -> None:
        self.ends += 1


class Spark(SimpleNamespace):
    """A session: whether it is stopped, and the queries that are left in it."""

    def __init__(self) -> None:
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: self))
        super().__init__(sparkContext=context, streams=SimpleNamespace(active=[]), stopped=False)

    def isStopped(self) -> bool:
        return self.stopped


@pytest.fixture
def running(monkeypatch):
    made = Application()
    monkeypatch.setattr(hosted, "Running", made)
    monkeypatch.setattr(HostedApplication, "_check_declared", lambda self, declared: _application(declared))
    monkeypatch.setattr(hosted, "FIRST_SECONDS", 0.0)
    return made


def _application(declared):
    return parse_application_text(declared.text, None, declared.name)


@pytest.fixture
def spark():
    return Spark()


@pytest.fixture
def session(spark):
    """A session that is there."""
    on_demand = SparkOnDemand(lambda: spark)
    on_demand.start("WEIR_SPARK is always")
    return on_demand


@pytest.fixture
def place(session, control, control_server, tmp_path):
    return HostingPlace(session, control, control_server.url, tmp_path, tmp_path, 0.5, 5.0)


@pytest.fixture
def application(place, control, running):
    made = HostedApplication(place, DECLARED, Declarations(control), Statuses(control), reset=False)
    yield made
    made.leave()


@pytest.fixture
def on_demand(session):
    """The session before it is there."""
    session.spark = session.reason = None
    return session


def test_an_application_continues_on_spark_when_it_is_there_which_is_no_restart(
    on_demand, application, running, control, spark
):
    for _ in range(2):
        application.step(DECLARED)
    assert (status(control).place, running.starts) == ("process", 1)
    on_demand.start("2,200 events/s exceed 2,000 events/s")
    for _ in range(2):
        application.step(DECLARED)
    application._statuses.write()
    assert (running.starts, running.ends) == (2, 1)
    moved = status(control)
    assert (moved.place, moved.place_reason) == ("spark", "2,200 events/s exceed 2,000 events/s")
    assert (moved.state, moved.restarts.count) == ("running", 0)


def test_a_failure_while_it_moves_to_spark_is_tried_again(on_demand, application, running, control):
    application.step(DECLARED)
    on_demand.start("2 tasks are set for an operator")
    running.start_error = RuntimeError("10 seconds without a worker")
    application.step(DECLARED)
    assert status(control).state == "failed"
    running.start_error = None
    application.step(DECLARED)
    assert (status(control).state, status(control).place) == ("running", "spark")


ONLY_SPARK = DeclarationText("performance", 1, DECLARATION + "engine: spark\n")


def test_an_application_that_needs_spark_says_so_before_it_is_hosted(on_demand, place, control):
    with pytest.raises(SparkNeeded, match="performance can't run without it: the declaration sets engine: spark"):
        HostedApplication(place, ONLY_SPARK, Declarations(control), Statuses(control), reset=False)


def status(control) -> ApplicationStatus:
    report = decode_document(PipelineReport, control.get(keys.PIPELINE), "pipeline")
    return report.applications["performance"]


@pytest.mark.parametrize("error", [RuntimeError("a worker timed out"), KeyError("x"), OSError("no room")])
def test_whatever_ends_it_it_is_tried_again_and_the_status_says_what_and_when(application, running, control, error):
    application.step(DECLARED)
    assert (status(control).state, status(control).restarts.count) == ("running", 0)
    running.error = error
    application.step(DECLARED)
    failed = status(control)
    assert failed.state == "failed" and failed.restarts.tries == 1
    assert failed.restarts.failed_at is not None and failed.restarts.next_try_at is not None
    assert str(error).strip("'") in failed.restarts.last_error
    application.step(DECLARED)
    assert (status(control).state, status(control).restarts.count) == ("running", 1)


def test_what_fails_at_each_start_gives_way_to_a_new_process(application, running):
    running.start_error = RuntimeError("10 seconds without a worker")
    for _ in range(hosted.SESSION_TRIES - 1):
        application.step(DECLARED)
    with pytest.raises(SessionExpired, match="failed repeatedly"):
        application.step(DECLARED)


def test_a_session_that_is_stopped_or_holds_an_old_query_gives_way_at_once(application, running, spark):
    application.step(DECLARED)
    running.error = RuntimeError("the context was stopped")
    spark.streams.active = [SimpleNamespace(name="performance-iap1")]
    with pytest.raises(SessionExpired):
        application.step(DECLARED)
    spark.streams.active, spark.stopped = [SimpleNamespace(name="other-iap1")], True
    application.step(DECLARED)
    running.error = RuntimeError("the context was stopped")
    with pytest.raises(SessionExpired):
        application.step(DECLARED)


def test_what_fails_for_want_of_room_waits_for_it_and_then_starts_at_once(application, running, control, monkeypatch):
    room = {"lacking": "the folder can't be written (No space left on device)"}
    monkeypatch.setattr(hosted, "explain_missing", lambda *_: room["lacking"])
    for _ in range(hosted.SESSION_TRIES * 2):
        application.step(DECLARED)
    assert running.starts == 0 and "No space left" in status(control).restarts.last_error
    room["lacking"] = ""
    application.step(DECLARED)
    assert running.starts == 1 and status(control).state == "running"
    running.error, room["lacking"] = OSError("No space left on device"), "the folder can't be written"
    for _ in range(hosted.SESSION_TRIES * 2):
        application.step(DECLARED)
    assert running.starts == 1 and status(control).state == "failed"


def test_a_person_stops_it_starts_it_and_starts_it_anew(application, running, control):
    application.step(DECLARED)
    stopped = replace_fields(BY_ANNA, stopped=True)
    for _ in range(3):
        application.step(DECLARED, stopped)
    assert status(control).state == "stopped" and running.ends == 1
    application.step(DECLARED, BY_ANNA)
    assert status(control).state == "running" and running.starts == 2
    application.step(DECLARED, replace_fields(BY_ANNA, restart=1))
    assert running.starts == 3 and running.ends == 2


@pytest.mark.parametrize("order", [BY_ANNA, replace_fields(BY_ANNA, stopped=True)])
def test_a_person_can_stop_or_restart_an_application_that_hangs(order, application, running, monkeypatch):
    application.step(DECLARED)
    monkeypatch.setattr(type(application._status), "stuck_seconds", 12.0)
    application.step(DECLARED)
    with pytest.raises(SessionExpired, match="request of anna"):
        application.step(DECLARED, order)
    assert running.ends == 0


def test_one_that_fails_is_started_anew_in_a_new_process(application, running):
    running.start_error = RuntimeError("no worker")
    application.step(DECLARED)
    with pytest.raises(SessionExpired, match="as anna requested"):
        application.step(DECLARED, replace_fields(BY_ANNA, restart=1))


def test_a_process_that_starts_finds_that_it_is_stopped(place, control, running):
    order = replace_fields(BY_ANNA, stopped=True)
    made = HostedApplication(place, DECLARED, Declarations(control), Statuses(control), False, order)
    made.step(DECLARED, order)
    assert running.starts == 0 and status(control).state == "stopped"
    made.leave()


def test_a_queue_that_another_application_reads_is_refused_to_a_second_one(place, control):
    reader = SimpleNamespace(declared=DeclarationText("flow", 1, ""), queues=("telemetry",))
    with pytest.raises(BadInput, match="telemetry is already read by flow") as refused:
        HostedApplication(place, DECLARED, Declarations(control), Statuses(control), False, others={"flow": reader})
    assert refused.value.field == "queues"


def test_a_process_that_starts_goes_on_with_what_was_at_work_where_the_wanted_version_is_refused(
    place, control, running, monkeypatch
):
    declarations, wrong = Declarations(control), DeclarationText("performance", 2, DECLARATION)
    declarations.note_at_work(DECLARED, "nobody is no column")

    def checked(self, declared):
        if declared == wrong:
            raise BadInput("key", "nobody is no column")
        return _application(declared)

    monkeypatch.setattr(HostedApplication, "_check_declared", checked)
    made = HostedApplication(place, wrong, declarations, Statuses(control), False)
    made.step(wrong)
    assert running.starts == 1 and made.declared == DECLARED
    at_work = declarations.load_running()["performance"]
    assert at_work.version == 0 and "nobody" in at_work.refused
    made.leave()


def test_another_version_of_one_that_is_stopped_is_stopped_too(application, running, control):
    stopped = replace_fields(BY_ANNA, stopped=True)
    application.step(DECLARED, stopped)
    better = DeclarationText("performance", 1, DECLARATION)
    for _ in range(2):
        application.step(better, stopped)
    application._statuses.write()
    assert status(control).state == "stopped" and running.starts == 0
    application.step(better, BY_ANNA)
    assert status(control).state == "running"


def failing(backoff: RestartBackoff, times: Times, after_seconds: float) -> float:
    backoff.record_start()
    times.now += after_seconds
    return backoff.record_failure()


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_long_run_or_by_a_person():
    times = Times()
    backoff = RestartBackoff(times)
    assert backoff.is_due
    assert [failing(backoff, times, 1.0) for _ in range(6)] == [1, 2, 4, 8, 15, 15]
    assert not backoff.is_due
    times.now += hosted.MAX_SECONDS
    assert backoff.is_due
    for _ in range(10):
        assert failing(backoff, times, hosted.LONG_ENOUGH_SECONDS + 1) == 1.0
    assert not backoff.is_due and not backoff.gives_up
    backoff.forget()
    assert backoff.is_due and not backoff.gives_up
