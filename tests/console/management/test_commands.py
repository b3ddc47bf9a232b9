"""The JSON commands answer with one document, and refuse bad input with one line that names the field."""

import gzip
import io
import itertools
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command, load_command_class

from console import command_line
from console.management import commands
from console.management.commands import bench
from console.management.document import JsonCommand
from console.upkeep.management import commands as upkeep_commands
from tests.console.served import ROOT


def ask(monkeypatch, command, document, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO(document))
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return json.loads(out.getvalue())


def refusal(monkeypatch, command, document, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO(document))
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command(command, *arguments, stdout=out, stderr=err)
    assert ended.value.code == 2
    assert out.getvalue() == ""
    assert err.getvalue().count("\n") == 1
    return err.getvalue()


def test_what_is_answered_from_its_input_alone_waits_for_none_of_djangos_applications():
    code = """
import sys
from django.apps import apps
from console import command_line
for name in command_line.PLAIN:
    sys.argv = ["manage.py", name, "{}"]
    try:
        command_line.manage()
    except SystemExit as ended:
        assert ended.code == 2, name
assert not apps.ready
"""
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.count("\n") == len(command_line.PLAIN)


def split(document, **more):
    """The command itself, as a shell starts it."""
    asked = [sys.executable, str(ROOT / "manage.py"), "split", "-"]
    return subprocess.run(asked, input=document, stderr=subprocess.PIPE, **more)


def test_a_document_on_standard_input_is_utf_8_whatever_the_locale_says():
    spoken = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    document = '\ufeff{"points": {"é": 1}, "count": 1}'.encode()
    done = split(document, stdout=subprocess.PIPE, env=spoken)
    assert (done.returncode, json.loads(done.stdout or "null")) == (0, {"sequence": ["é"]}), done.stderr
    refused = split(b'{"points": {"\xe9": 1}, "count": 1}', stdout=subprocess.PIPE)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.startswith(b"document: is not UTF-8")


@pytest.mark.parametrize("count", [1, 100_000])
def test_an_answer_that_can_not_be_written_fails_in_one_line(count):
    with Path("/dev/full").open("wb") as full:
        done = split(json.dumps({"points": {"a": 1}, "count": count}).encode(), stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(b"standard output: can't be written (No space left on device)")


@pytest.mark.parametrize("command", [("audit", "verify"), ("migrate",), ("job", "list")])
def test_while_no_database_answers_a_command_says_so_in_one_line(command):
    nowhere = {**os.environ, "DATABASE_URL": "postgres://weir:a-secret@127.0.0.1:1/weir"}
    asked = [sys.executable, "manage.py", *command]
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, env=nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{command[0]}: the database rejected the query, or did not respond (")
    assert "check DATABASE_URL" in said and "a-secret" not in said


def test_split_gives_the_smooth_sequence(monkeypatch):
    answer = ask(monkeypatch, "split", '{"points": {"a": 5, "b": 1, "c": 1}, "count": 7}', "-")
    assert answer == {"sequence": ["a", "a", "b", "a", "c", "a", "a"]}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ('{"points": {"a": -1}, "count": 3}', "points"),
        ('{"points": {"a": true}, "count": 3}', "points"),
        ('{"points": {"a": NaN}, "count": 3}', "finite"),
        ('{"points": {}, "count": 3}', "points"),
        ('{"count": 3}', "points"),
        ('{"points": {"a": 1}}', "count"),
        ('{"points": {"a": 1}, "count": -3}', "count"),
        ('{"points": {"a": 1}, "count": 3, "colour": "red"}', "colour"),
        ("[1, 2]", "document"),
        ("{", "document"),
    ],
)
def test_split_refuses_by_name(monkeypatch, document, field):
    assert field in refusal(monkeypatch, "split", document, "-")


def test_a_refusal_steers_no_terminal(monkeypatch):
    document = json.dumps({"points": {"a": 1}, "count": 1, "\x1b]0;x\x07\u202e\nGröße": 1})
    refused = refusal(monkeypatch, "split", document, "-")
    assert refused == "\\x1b]0;x\\x07\\u202e Größe: is unknown. The keys are points and count.\n"


def test_a_file_that_is_not_there_is_named(monkeypatch):
    assert "absent.json" in refusal(monkeypatch, "split", "", "absent.json")


def test_an_unknown_bench_scenario_or_law_is_named_with_the_known_ones(monkeypatch):
    assert "splitter" in refusal(monkeypatch, "bench", "", "speed")
    assert "manager" in refusal(monkeypatch, "lab", "", "run", "traffic")


MEASURED = {
    "calm": {"figures": {"cores": 0.3, "alerts": 0, "share": 0.9}, "peers": {"limit_cores": 0.35, "limit_alerts": 0}},
    "late": {"figures": {"cores": 0.4, "share": 0.8}, "peers": {"limit_cores": 0.35, "limit_share": 0.9}},
    "free": {"figures": {"cores": 0.4}, "peers": {"another_cores": 0.2}},
}


@pytest.mark.parametrize(
    ("name", "past"),
    [
        ("calm", ""),
        ("late", "late: cores is 0.4. It must be at most 0.35.\nlate: share is 0.8. It must be at least 0.9.\n"),
        ("free", "free: no figure has a limit.\n"),
    ],
)
def test_a_strict_bench_that_is_past_a_limit_says_so_and_fails_and_another_does_not(monkeypatch, name, past):
    monkeypatch.setattr(bench, "BENCHES", dict.fromkeys(MEASURED, ""))
    monkeypatch.setattr(
        bench, "run_bench", lambda name, _: {"name": name, "ratio": {}, "at_least": ["share"], **MEASURED[name]}
    )
    assert ask(monkeypatch, "bench", "", name)["name"] == name
    out, err = io.StringIO(), io.StringIO()
    if past:
        with pytest.raises(SystemExit, match="1"):
            call_command("bench", name, "--strict", stdout=out, stderr=err)
    else:
        call_command("bench", name, "--strict", stdout=out, stderr=err)
    assert json.loads(out.getvalue())["name"] == name
    assert err.getvalue() == past


@pytest.mark.parametrize(
    ("arguments", "field"), [(("lqr", "--count", "5"), "--count"), (("rules", "--count", "0"), "--count")]
)
def test_an_option_of_one_bench_is_refused_by_others_and_out_of_its_range(monkeypatch, arguments, field):
    assert refusal(monkeypatch, "bench", "", *arguments).startswith(field)


def test_match_finds_and_refuses_by_name(monkeypatch):
    events = [{"id": kind + "1", "time": at, "type": kind} for at, kind in enumerate("AB")]
    document = {"pattern": "SEQ(A; B)", "within_seconds": 10, "key": None, "events": events}
    assert ask(monkeypatch, "match", json.dumps(document), "-") == {"matches": [["A1", "B1"]]}
    refused = refusal(monkeypatch, "match", json.dumps({**document, "pattern": "SEQ(A; B"}), "-")
    assert refused.startswith("pattern")


CARDS = """
name: cards
queues: [telemetry]
sink: alert
attributes: {amount: number}
key: source
patterns:
  - name: jump
    pattern: SEQ(A; B)
    define: {A: type = 'payment', B: type = 'payment' and amount > 10 * A.amount}
    measures: {ratio: B.amount / A.amount}
    within_seconds: 60
"""


def test_match_prints_differences_and_reasons_and_returns_exit_code_1(tmp_path):
    """Also for a pattern of an application, whose events have the published form."""
    (tmp_path / "cards.yaml").write_text(CARDS)
    rows = [("p1", 0, 93), ("p2", 10, 80), ("p3", 20, 930.5)]
    events = [{"id": id, "time": at, "type": "payment", "source": "anna", "amount": n} for id, at, n in rows]
    for expected, code in (([["p1", "p3"]], 0), ([["p1", "p2"]], 1)):
        (tmp_path / "test.json").write_text(json.dumps({"events": events, "expected": expected}))
        asked = [str(tmp_path / "test.json"), "--application", str(tmp_path / "cards.yaml"), "--pattern", "jump"]
        out, err, ended = io.StringIO(), io.StringIO(), 0
        try:
            call_command("match", *asked, stdout=out, stderr=err)
        except SystemExit as end:
            ended = end.code
        found = json.loads(out.getvalue())
        assert (ended, found["matches"], len(found["measures"])) == (code, [["p1", "p3"]], 1)
    lines = err.getvalue().splitlines()
    assert (lines[0], lines[-1]) == ("Missing match: p1 p2", "Unexpected match: p1 p3")
    assert "p2: In the match from p1, p2 doesn't fit B: B.amount 80 > 10 × A.amount 93 (80 > 930) is false." in lines


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--pattern", "jump"), "--application: is missing"),
        (("--application", "cards.yaml"), "--pattern: is missing"),
        (("--application", "none.yaml", "--pattern", "jump"), "application: none.yaml can't be read"),
    ],
)
def test_match_names_the_missing_option_or_file(monkeypatch, arguments, field):
    assert refusal(monkeypatch, "match", '{"events": []}', *arguments).startswith(field)


def test_match_explains_on_request(monkeypatch):
    document = {"pattern": "SEQ(A; B)", "events": [{"id": "a", "time": 0, "type": "A"}]}
    found = ask(monkeypatch, "match", json.dumps(document), "--explain")
    assert found["events"][0]["reasons"][0] == "Starts a match as A. The next step, B, is missing."


def json_commands():
    names = [found.name for found in pkgutil.iter_modules(commands.__path__)]
    loaded = {name: load_command_class("console", name) for name in names}
    return {name: command for name, command in loaded.items() if isinstance(command, JsonCommand)}


def test_options_of_every_json_command_may_stand_anywhere():
    for name, command in json_commands().items():
        parser = command.create_parser("manage.py", name)
        positionals = [each for each in parser._actions if not each.option_strings]
        words = [next(iter(each.choices)) if each.choices else f"word{at}" for at, each in enumerate(positionals)]
        orders = {order for order in itertools.permutations([*words, "-v2"]) if _in_order(order, words)}
        assert len(orders) == len(words) + 1
        read = [parser.parse_args(list(order)) for order in orders]
        assert all(each == read[0] and each.verbosity == 2 for each in read), name


def every_command():
    return [
        (found.name, app)
        for app, package in (("console", commands), ("console.upkeep", upkeep_commands))
        for found in pkgutil.iter_modules(package.__path__)
    ]


def usage_error(capsys, app, name, *arguments):
    """What a command line that can't be read prints on standard error, in one line."""
    with pytest.raises(SystemExit) as ended:
        load_command_class(app, name).run_from_argv(["manage.py", name, *arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1), err
    return err


@pytest.mark.parametrize(("name", "app"), every_command())
def test_a_command_line_that_can_not_be_read_is_refused_in_one_line(capsys, name, app):
    assert usage_error(capsys, app, name, "--verbosity=loud").startswith("-v/--verbosity: invalid int value")


@pytest.mark.parametrize(
    ("begin", "arguments"),
    [
        ("LAW: is missing;", ["decide"]),
        ("--colour: is unknown;", ["decide", "flow", "--colour"]),
        ("--delay: invalid whole number value: 'a\\nb'", ["design", "identify", "-", "--delay", "a\nb"]),
        ("what: invalid choice: 'dance'", ["lab", "dance"]),
        ("--seed: expected one argument", ["lab", "run", "--seed"]),
    ],
)
def test_the_argument_that_is_wrong_is_named_first(capsys, begin, arguments):
    said = usage_error(capsys, "console", *arguments)
    assert said.startswith(begin)
    assert said.endswith(f"; see manage.py {arguments[0]} --help\n")


def test_who_calls_a_command_from_a_program_gets_djangos_error():
    with pytest.raises(CommandError, match="required: LAW"):
        call_command("decide")


def _in_order(order, words):
    return [word for word in order if word != "-v2"] == words


def test_a_file_may_follow_the_options(monkeypatch, tmp_path):
    path = tmp_path / "points.json"
    path.write_text('{"points": {"a": 1}, "count": 1}')
    assert ask(monkeypatch, "split", "", "--json", str(path)) == {"sequence": ["a"]}
    path.write_text('{"observations": [{"queue_length": 5}]}')
    assert ask(monkeypatch, "decide", "", "worker_rate", "--json", str(path))["law"] == "worker_rate"
    path.write_text('{"pattern": "A", "events": []}')
    assert ask(monkeypatch, "match", "", "--json", str(path)) == {"matches": []}


def run(monkeypatch, text, *arguments):
    """Exit code, output, error of the command with the text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("design", *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        return end.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def answer(monkeypatch, text, *arguments):
    code, out, err = run(monkeypatch, text, *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


NETWORK = '{"stations": [{"name": "a", "service_seconds": %s, "visits": %s}], "customers": 3, "think_seconds": %s}'


def series(rows=300):
    chance = np.random.default_rng(2)
    u, y = chance.uniform(0, 10, rows), [0.0]
    for each in u[:-1]:
        y.append(0.985 * y[-1] - 134 * each + 5 * chance.standard_normal())
    return "u,y\n" + "".join(f"{one},{other}\n" for one, other in zip(u, y, strict=True))


def test_place_and_check_say_the_same_of_the_same_gains(monkeypatch):
    model = {"a": 0.985, "b": -134, "delay": 1}
    placed = answer(monkeypatch, json.dumps(model | {"poles": [0.55, [0.45, 0], 0.3]}), "place", "-")
    gains = {key: placed[key] for key in ("kp", "ki", "kd")}
    checked = answer(monkeypatch, json.dumps(model | gains | {"form": "i-p"}), "check", "-")
    assert checked == placed
    promised = {"spectral_radius", "stable", "settling_samples", "overshoot", "gain_margin"}
    assert placed.keys() == promised | gains.keys()


def test_a_regulator_comes_with_its_gain_cost_and_radius(monkeypatch):
    document = {"A": [[1]], "B": [[1]], "Q": [[1]], "R": [[1]]}
    found = answer(monkeypatch, json.dumps(document), "lqr", "-")
    golden = (1 + 5**0.5) / 2
    assert found["X"] == [[pytest.approx(golden)]] and found["K"] == [[pytest.approx(golden / (1 + golden))]]
    assert found["spectral_radius"] == pytest.approx(1 - golden / (1 + golden))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_model_is_identified_from_a_file(monkeypatch, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    path.write_bytes(gzip.compress(series().encode()) if suffix.endswith("gz") else series().encode())
    found = answer(monkeypatch, "", "identify", str(path))
    assert found["a"] == pytest.approx(0.985, abs=0.001) and found["b"] == pytest.approx(-134, rel=0.01)
    assert found["samples"] == 299 and found["r2"] > 0.999
    assert found["residual_std"] == pytest.approx(5, rel=0.2)
    assert answer(monkeypatch, series(), "identify", "-") == found


@pytest.mark.parametrize("header", ["\ufeffu,y\n", "u, y\n", "\ufeff u ,\ty\n"])
def test_a_header_may_have_a_byte_order_mark_and_spaces(monkeypatch, tmp_path, header):
    text = series().replace("u,y\n", header)
    found = answer(monkeypatch, text, "identify", "-")
    assert found == answer(monkeypatch, series(), "identify", "-")
    path = tmp_path / "run.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert answer(monkeypatch, "", "identify", str(path)) == found


def test_a_damaged_file_is_refused(monkeypatch, tmp_path):
    path, packed = tmp_path / "run.csv.gz", bytearray(gzip.compress(series().encode()))
    packed[40:60] = bytes(20)
    path.write_bytes(packed)
    code, out, err = run(monkeypatch, "", "identify", str(path))
    assert (code, out) == (2, "") and err.startswith("FILE: ") and err.count("\n") == 1


@pytest.mark.parametrize("name", ["identify", "place"])
def test_a_closed_standard_input_is_refused(monkeypatch, name):
    monkeypatch.setattr(sys, "stdin", None)
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as end:
        call_command("design", name, "-", stdout=out, stderr=err)
    assert end.value.code == 2 and err.getvalue().startswith("FILE: standard input is closed")


@pytest.mark.parametrize(
    ("field", "text", "arguments"),
    [
        ("y", "u\n1\n", ["identify", "-"]),
        ("y", "u,y, y\n1,2,3\n", ["identify", "-"]),
        ("rows", "u,y\n1,2\n2,3\n", ["identify", "-"]),
        ("u", "u,y\n" + "1,{}\n" * 20, ["identify", "-"]),
        ("FILE", "u,y\n1,2\n1\n", ["identify", "-"]),
        ("FILE", "", ["identify", "/nowhere.csv"]),
        ("--delay", "", ["identify", "-", "--delay=99"]),
        ("poles", '{"a": 1, "b": 1}', ["place", "-"]),
        ("a", '{"a": NaN}', ["check", "-"]),
        ("NAME", "", ["sorcery"]),
        ("b", '{"a": 0.9, "b": 1e-320, "poles": [0.5, 0.4]}', ["place"]),
        ("a", '{"a": 1e-300, "b": 1, "poles": [0.5, 0.4, 0.3]}', ["place"]),
        ("stations[0].service_seconds", NETWORK % ("1e-310", 1, 0), ["network"]),
        ("think_seconds", NETWORK % (1, 1, "1e-320"), ["network"]),
    ],
)
def test_bad_input_ends_with_2_and_one_line_that_names_the_field(monkeypatch, field, text, arguments):
    text = text.format(*range(20)) if "{}" in text else text
    code, out, err = run(monkeypatch, text, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"{field}: ") and err.count("\n") == 1
