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
from workers.pipeline.runtime.application import PipelineProcess, Settings, Watchdog
from workers.pipeline.status.published import Statuses


@pytest.fixture
def begin(control, tmp_path):
    made = []

    def begun() -> PipelineProcess:
        settings = Settings("", tmp_path, "local[1]", 0.5, tmp_path / "own.yaml", 5.0, 120.0)
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
