"""`manage.py decide`, to the contract."""

import io
import json
import sys

import pytest
from django.core.management import call_command

from controllers import request

SETTINGS = {"method": "thesis", "events_per_worker": 50, "upper_limit": 250, "interval_seconds": 5}


def ask(monkeypatch, text, law="worker_rate"):
    """Exit code, output, error of the command with the text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text if isinstance(text, str) else json.dumps(text)))
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("decide", law, "-", stdout=out, stderr=err)
    except SystemExit as end:
        return end.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def answer(monkeypatch, document):
    code, out, err = ask(monkeypatch, document)
    assert (code, err) == (0, "")
    return json.loads(out)


def document(*lengths, **more):
    observations = [{"queue_length": length, "removed": 0, "started": 0} for length in lengths]
    return {"parameters": SETTINGS, "state": None, "observations": observations, **more}


def test_observations_are_decided_one_after_the_other(monkeypatch):
    given = answer(monkeypatch, document(0, 300, 600))
    assert given["law"] == "worker_rate"
    assert [each["action"] for each in given["decisions"]] == [None, {"start": 1}, {"start": 2}]
    assert {"action", "reason", "terms", "limited_by"} <= set(given["decisions"][0])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("colour", document(1, colour="red")),
        ("observations[0]", document(observations=[5])),
        ("observations", document()),
        ("observations", {"parameters": {}}),
        ("observations", document(observations={"queue_length": 1})),
        ("parameters", document(1, parameters=[1])),
        ("law", document(1, law="flow")),
        ("observation", document(1, observation={"queue_length": 1})),
        ("guard.unfit", document(1, guard={"unfit": 5})),
        ("manual", document(1, manual={"start": 1})),
        ("manual.stop", document(1, manual={"stop": 1}, guard={})),
        ("observations", document(1, 2, guard={})),
        ("observations[0].queue_length", '{"observations": [{"queue_length": NaN}]}'),
        ("observations[0].queue_length", '{"observations": [{"queue_length": 1e999}]}'),
        ("document", "[1]"),
        ("document", "{"),
    ],
)
def test_bad_input_ends_with_2_and_one_line_that_names_the_field(monkeypatch, field, text):
    code, out, err = ask(monkeypatch, text)
    assert (code, out) == (2, "")
    assert err.startswith(f"{field}: ") and err.count("\n") == 1


def joint(service, **memory):
    rows = {name: {"tasks": 2, "rate_per_second": 50, "service_seconds": service} for name in "xy"}
    seen = {"at_seconds": 1, "source_per_second": 50, "paths": [["x", "y"]], "operators": rows}
    known = {"tasks": [2], "service_seconds": [0.01], "seen_per_second": [5, 5], "waited": False, **memory}
    return {"state": {"operators": {"x": known}} if memory else None, "observations": [seen]}


def test_an_operator_whose_events_take_no_time_passes_all_there_may_be(monkeypatch):
    code, out, err = ask(monkeypatch, joint(0), "parallelism_joint")
    assert (code, err) == (0, "")
    assert json.loads(out)["decisions"][0]["terms"]["capacity_per_second"] == 1e15


@pytest.mark.parametrize(
    ("field", "memory"),
    [
        ("seen_per_second", {"seen_per_second": [0, 5]}),
        ("tasks", {"tasks": [2, 2], "service_seconds": [1, 1]}),
        ("service_seconds", {"service_seconds": []}),
    ],
)
def test_a_memory_that_can_not_be_divided_by_is_refused(monkeypatch, field, memory):
    code, out, err = ask(monkeypatch, joint(0.01, **memory), "parallelism_joint")
    assert (code, out) == (2, "")
    assert err.startswith(f"state.operators.x.{field}: must ")


def test_a_source_that_stays_idle_leaves_a_memory_that_is_taken_again():
    document = joint(0.01, seen_per_second=[2e-9, 1e-9])
    document["observations"][0]["source_per_second"] = 0.0
    for row in document["observations"][0]["operators"].values():
        row["rate_per_second"] = 0.0
    for _ in range(50):
        document["state"] = request.answer("parallelism_joint", document)["state"]
    source, here = document["state"]["operators"]["x"]["seen_per_second"]
    assert source > 0 and here / source == pytest.approx(0.5)


def test_a_law_nobody_knows_is_named_with_the_list(monkeypatch):
    code, _, err = ask(monkeypatch, "{}", "wokrer_rate")
    assert code == 2
    assert "wokrer_rate" in err and "worker_rate" in err.replace("wokrer_rate", "")
