"""What a process logs: for people or for programs, with the ids of what it was at."""

import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from common import logs
from common.environment import LOG_FORMAT
from common.errors import BadInput


def logged(form: str, program: str) -> list[str]:
    """What a process that logs in this form writes."""
    begin = "import logging\nfrom common import logs\nlogs.configure_logging()\nlog = logging.getLogger('weir.test')\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program],
        env={**os.environ, LOG_FORMAT.name: form},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


def test_a_line_for_people_says_what_it_is_about():
    (line, plain) = logged(
        "text",
        "with logs.add_context(loop='flow/a'), logs.add_context(decision=12):\n    log.warning('%s waits', 'n1')\n"
        "log.info('on')\n",
    )
    assert line.endswith("WARNING weir.test [loop flow/a, decision 12]: n1 waits")
    assert plain.endswith("INFO weir.test: on")


def test_a_line_for_programs_is_one_json_object_also_with_a_traceback():
    (line,) = logged(
        "json",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n"
        "    with logs.add_context(batch=3):\n        log.exception('a line\\nand more')\n",
    )
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("ERROR", "weir.test", "a line\nand more")
    assert found["batch"] == "3" and found["error"].endswith("ZeroDivisionError: division by zero")
    assert found["at"].endswith("Z") and found["pid"] > 0


def test_a_line_with_a_name_that_is_no_text_is_one_json_object_too():
    (line,) = logged("json", "log.warning('%s stays', 'caf\\udce9.parquet')\n")
    assert json.loads(line)["message"] == "caf\ufffd.parquet stays"


FORGED = "2026-01-01 00:00:00,000 INFO weir.audit: the login was good"


BREAKS = ("\\n", "\\r\\n", "\\x0b", "\\x85", "\\u2028")


def test_text_from_outside_begins_no_line_of_its_own_and_does_not_steer_a_terminal():
    programs = [f"log.warning('unknown queue %s', 'x{each}{FORGED}')\n" for each in BREAKS]
    programs += [
        "log.warning('%s', '\\x1b[2J\\x1b]0;title\\x07\\u202edesrever')\n",
        f"with logs.add_context(batch='1\\n{FORGED}'):\n    log.warning('it fails')\n",
    ]
    *broken, steering, named = logged("text", "".join(programs))
    for line, line_break in zip(broken, BREAKS, strict=True):
        assert f"unknown queue x{line_break}{FORGED}" in line
    assert steering.endswith("weir.test: \\x1b[2J\\x1b]0;title\\x07\\u202edesrever")
    assert named.endswith(f"[batch 1\\n{FORGED}]: it fails")


def test_the_text_of_an_error_begins_no_line_of_its_own():
    raised = f"try:\n    raise ValueError('x\\n{FORGED}\\x1b[2J')\n"
    first, *others = logged("text", f"{raised}except ValueError:\n    log.exception('it failed')\n")
    assert first.endswith("ERROR weir.test: it failed")
    assert [line for line in others if not line.startswith("  ")] == []
    assert "\x1b" not in "".join(others)


def test_what_is_logged_elsewhere_meanwhile_is_not_about_it(caplog):
    caplog.handler.addFilter(logs.Ids())
    with logs.add_context(plan=7):
        other = threading.Thread(target=logging.getLogger("other").warning, args=("x",))
        other.start()
        other.join()
        logging.getLogger("own").warning("y")
    logging.getLogger("after").warning("z")
    found = {record.name: record.ids for record in caplog.records}
    assert found == {"other": {}, "own": {"plan": "7"}, "after": {}}


@pytest.mark.parametrize("name, value", [("WEIR_LOG_FORMAT", "xml"), ("WEIR_LOG_LEVEL", "loud")])
def test_an_unknown_form_or_level_is_refused_by_its_name(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(BadInput) as caught:
        logs.configure_logging()
    assert caught.value.field == name
