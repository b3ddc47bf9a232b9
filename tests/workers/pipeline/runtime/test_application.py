"""The pipeline's process without Spark: what it follows, what it forgets, and when its watchdog ends it."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from common.errors import BadInput
from common.stored_document import decode_document
from queues import keys
from tests.console.pipeline_sample import DECLARATION
from tests.workers.pipeline.times import Times
from workers.documents.pipeline import PipelineReport
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.declaration.declared import Declarations, DeclarationText, Orders
from workers.pipeline.runtime import application
from workers.pipeline.runtime.application import PipelineProcess, Settings, Watchdog, start_over
from workers.pipeline.runtime.spark_demand import QUIET_SECONDS, SparkDemand
from workers.pipeline.runtime.spark_session import SparkNeeded
from workers.pipeline.status.published import Statuses
from workers.pipeline.status.status import ApplicationLoad


@pytest.fixture
def begin(control, tmp_path):
    made = []

    def begun(**changed) -> PipelineProcess:
        settings = Settings("", tmp_path, "local[1]", 0.5, tmp_path / "own.yaml", 5.0, 120.0, **changed)
        made.append(PipelineProcess(settings, DeclarationText("own", 0, ""), control))
        return made[-1]

    yield begun
    for process in made:
        logging.getLogger().removeHandler(process._log)


def test_one_that_was_refused_is_tried_again_when_a_person_restarts_it(begin, control, monkeypatch):
    tried = []

    def hosted(place, declared, *_):
        if declared.name == "own":
            return SimpleNamespace(declared=declared, step=lambda *_: None)
        tried.append(declared)
        raise BadInput("checkpoint", "is of another run; put that run's folder back")

    monkeypatch.setattr(application, "HostedApplication", hosted)
    Declarations(control).want(DeclarationText("second", 1, ""))
    process = begin()
    for _ in range(2):
        process._follow(None, reset=False)
    assert len(tried) == 1
    Orders(control).restart("second", "anna", "the folder is back")
    for _ in range(2):
        process._follow(None, reset=False)
    assert len(tried) == 2


def test_an_application_whose_spark_starts_comes_before_those_of_other_files(begin, control, monkeypatch):
    hosted_names = []

    def hosted(place, declared, *_):
        if declared.name == "own" and process._session.spark is None:
            raise SparkNeeded("own can't run without it: the declaration sets engine: spark")
        hosted_names.append(declared.name)
        return SimpleNamespace(declared=declared, step=lambda *_: None)

    monkeypatch.setattr(application, "HostedApplication", hosted)
    Declarations(control).want(DeclarationText("second", 1, ""))
    process = begin()
    monkeypatch.setattr(process._session, "request", lambda *_, **__: None)
    process._follow(None, reset=False)
    assert hosted_names == []
    process._session.spark = object()
    process._follow(None, reset=False)
    assert hosted_names == ["own", "second"]


def host(process: PipelineProcess, load: ApplicationLoad, spark_reason: str | None = None) -> None:
    process._hosted["own"] = SimpleNamespace(measure_load=lambda: load, spark_reason=spark_reason)


def test_a_load_above_a_limit_starts_spark(begin, monkeypatch):
    process, reasons = begin(), []
    monkeypatch.setattr(process._session, "request", reasons.append)
    host(process, ApplicationLoad(0, 0.0))
    process._observe_demand()
    host(process, ApplicationLoad(50_000, 0.0))
    process._observe_demand()
    assert reasons == ["10,000 events/s exceed 2,000 events/s"]


def test_spark_ends_after_a_quiet_time_unless_something_needs_it(begin, control, monkeypatch):
    def can_end(settings: dict, spark_reason: str | None, quiet_seconds: float) -> bool:
        process = begin(has_long_tasks=True, **settings)
        process._session.spark = object()
        host(process, ApplicationLoad(0, 0.0), spark_reason)
        monkeypatch.setattr(SparkDemand, "quiet_seconds", quiet_seconds)
        return process._can_end_spark()

    assert can_end({}, None, QUIET_SECONDS)
    assert not can_end({}, None, QUIET_SECONDS - 1)
    assert not can_end({}, "the declaration sets engine: spark", QUIET_SECONDS)
    assert not can_end({"starts_spark": "always"}, None, QUIET_SECONDS)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"WEIR_SPARK": "always"}, "WEIR_SPARK is always"),
        ({"WEIR_PIPELINE_EXECUTION": "micro-batches"}, "WEIR_PIPELINE_EXECUTION is micro-batches"),
        ({"WEIR_PIPELINE_REPLICA_PROCESSES": "2"}, "replicas have processes of their own"),
        ({"SPARK_MASTER": "spark://host:7077"}, "SPARK_MASTER names a cluster"),
    ],
)
def test_settings_that_threads_cannot_fulfil_start_spark_with_the_process(changed, reason):
    assert Settings.load(changed).spark_reason == reason


def test_the_process_of_a_replica_always_has_spark():
    assert Settings.load({}).narrow_to_replica("iap1", 1).spark_reason == "replicas have processes of their own"


def test_a_program_that_starts_over_keeps_its_arguments_except_the_reset(monkeypatch):
    started = []
    monkeypatch.setattr(application.os, "execv", lambda *command: started.append(command))
    monkeypatch.setattr(application.psutil, "Process", lambda: SimpleNamespace(children=lambda recursive: []))
    start_over(["--application", "own.yaml", "--reset"])
    assert started[0][1][1:] == ["-m", "workers.pipeline.runtime.application", "--application", "own.yaml"]


def test_what_is_carried_stays_while_nobody_can_say_what_is_wanted(begin, control, monkeypatch):
    before = Statuses(control)
    before.board(parse_application_text(DECLARATION, Path()))
    before.write()
    process = begin()

    def away() -> None:
        raise redis.ConnectionError("the control server is started again")

    monkeypatch.setattr(process._declarations, "load_wanted", away)
    process._follow(None, reset=False)
    process._statuses.write()
    report = decode_document(PipelineReport, control.get(keys.PIPELINE), "pipeline")
    assert "performance" in report.carried


def test_what_finishes_nothing_beyond_the_limit_is_ended_with_the_reason():
    watchdog = Watchdog(90.0, Times())
    watchdog.feed()
    assert watchdog.explain_required_end(90.0) is None
    assert "no progress for 91 s" in watchdog.explain_required_end(91.0)


def test_a_main_thread_that_does_not_come_back_is_ended_and_a_start_is_not():
    times = Times()
    watchdog = Watchdog(90.0, times)
    times.now += 500.0
    assert watchdog.explain_required_end(0.0) is None, "Spark takes its time to start"
    watchdog.feed()
    times.now += 91.0
    assert "main thread has not responded for 91 s" in watchdog.explain_required_end(0.0)
    watchdog.feed()
    assert watchdog.explain_required_end(0.0) is None
