"""A process of its own for what may hang, grow or read what it must not: real ones, with small bounds."""

import pytest

from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed

MODULE = "tests.workers.host.bounded_samples"


def answer_of(what: str, seconds: float = 30.0, **more: str):
    return bounded_process.answer_of(MODULE, {"do": what, **more}, seconds)


def test_what_it_prints_is_no_answer_and_reaches_nobody(capfd):
    order = {"do": "print", "secret": "xoxb-123"}
    assert answer_of("print", secret="xoxb-123") == order
    assert "xoxb" not in "".join(capfd.readouterr())


def test_it_is_given_no_secret_and_no_proxy(monkeypatch):
    for name in ("WEIR_SECRET_DESK", "WEIR_SECRET_KEY", "HTTPS_PROXY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    environment = answer_of("environment")
    assert "hunter2" not in environment.values() and environment["NETRC"] == "/dev/null"
    assert "PATH" in environment


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("spin", "was stopped: it exceeded its CPU time limit"),
        ("grow", "without a result .exit status 1."),
        ("exit", "without a result .exit status 3."),
    ],
)
def test_one_that_passes_its_bounds_or_dies_says_why_there_is_no_answer(what, why):
    with pytest.raises(ProcessFailed, match=why):
        answer_of(what)


def test_one_that_hangs_is_ended_when_its_time_is_over():
    with pytest.raises(ProcessFailed, match="did not finish within 1 s"):
        answer_of("hang", seconds=1.0)


def test_a_host_without_room_for_a_process_is_said(monkeypatch):
    monkeypatch.setattr(bounded_process.sys, "executable", "/nowhere/python")
    with pytest.raises(ProcessFailed, match="cannot be started: No such file"):
        answer_of("echo")
