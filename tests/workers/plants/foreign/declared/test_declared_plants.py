"""A declared plant: valid declarations, sensor values, calls, and reverted calls."""

import os
import re
import sqlite3
import stat
import threading
import time
from dataclasses import replace

import httpx
import pytest

from common.errors import BadInput, Forbidden
from tests.waiting import until
from workers.plants.foreign import adapters, declared
from workers.plants.foreign.declared import OPTION, make_dry_run, sensor_reader
from workers.plants.foreign.declared.call import check_allowed
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

TEXT = """name: shop
prometheus: http://prometheus:9090
window_seconds: 10
sensors:
  requests: {promql: rate, unit: 1/s}
  web_now: {promql: web}
  render_now: {url: 'http://runner/render', json: replicas}
  waiting: {promql: waiting}
operators:
  - {name: clients, source: true, out_per_second: requests}
  - name: web
    after: [clients]
    tasks: web_now
    maximum: 9
    service_seconds: 0.1
    waiting_events: waiting
    set: {http: {method: PUT, url: 'http://runner/web', body: {replicas: $tasks, note: 'from $before'}}}
  - name: render
    after: [web]
    tasks: render_now
    maximum: 9
    utilisation: 0.5
    up: {http: {url: 'http://runner/render/$tasks'}}
    down: {http: {url: 'http://runner/render/$before', method: DELETE}}
    proof: {within_seconds: 30}
"""


class Far:
    """Prometheus and a runner of two services; `broken`: path → its answer there."""

    def __init__(self):
        self.now, self.calls, self.broken = {"web": 2, "render": 2}, [], {}
        self.values = {"rate": 40.0, "waiting": 20.0}

    def answer(self, request):
        path = request.url.path
        if path in self.broken:
            return self.broken[path](request)
        if request.url.host == "prometheus":
            query = request.url.params["query"]
            return vector(self.now[query] if query in self.now else self.values[query])
        if request.method == "GET":
            return httpx.Response(200, json={"replicas": self.now["render"]})
        self.calls.append((request.method, path, request.content.decode()))
        if path == "/web":
            self.now["web"] = int(request.content.decode().split(":")[1].split(",")[0])
        else:
            self.now["render"] += 1 if request.method == "POST" else -1
        return httpx.Response(204)


def vector(*values):
    result = [{"metric": {"n": str(n)}, "value": [1.0, str(value)]} for n, value in enumerate(values)]
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.fixture
def far():
    return Far()


@pytest.fixture
def plant(far):
    made = DeclaredPlant(parse_declaration(TEXT), {}, httpx.MockTransport(far.answer), lambda: 5.0)
    yield made
    made.close()


def sensing(sensor, answer=None, environment=None, monotonic=time.monotonic):
    text = f"name: one\nprometheus: http://prometheus:9090\nsensors:\n  it: {sensor}\n"
    transport = httpx.MockTransport(answer) if answer else None
    return DeclaredPlant(parse_declaration(text), environment or {}, transport, monotonic=monotonic)


def said(plant):
    plant.get_topology()
    [found] = plant.readings.values()
    return found


def test_measures_follow_from_what_is_measured(plant):
    topology = plant.get_topology()
    web, render = topology.operators["web"], topology.operators["render"]
    assert (topology.at, topology.window_seconds) == (5.0, 10.0)
    assert topology.paths == {"path1": ("clients", "web", "render")}
    assert (web.measure("inputs"), web.measure("outputs")) == (400.0, 400.0)
    assert web.group_by_task("utilisation") == {"web_1": 1.0, "web_2": 1.0}  # 40/s of 0.1 s exceed the capacity of two
    assert web.measure("arrival_interval_seconds") == 0.05
    # Half of the time of two tasks went into 40 events per second.
    assert render.measure("service_seconds") == pytest.approx(0.025)
    # 20 wait, 40 arrive per second.
    assert [each.latency_seconds for each in topology.links] == [0.5, None]


def test_what_is_not_known_is_none_and_never_zero(far, plant):
    far.broken["/api/v1/query"] = lambda request: vector() if request.url.params["query"] == "rate" else vector(2)
    topology = plant.get_topology()
    assert topology.operators["clients"].measure("outputs") is None
    assert topology.operators["web"].measure("inputs") is None
    assert topology.links[0].latency_seconds is None


def test_a_sensor_is_asked_once_for_all_that_read_of_it():
    asked = []

    def answer(request):
        asked.append(request.url.path)
        return httpx.Response(200, json={"a": 1, "b": 2})

    text = "name: one\nsensors:\n  a: {url: 'http://x/s', json: a}\n  b: {url: 'http://x/s', json: b}\n"
    plant = DeclaredPlant(parse_declaration(text), {}, httpx.MockTransport(answer))
    plant.get_topology()
    assert {name: each.value for name, each in plant.readings.items()} == {"a": 1.0, "b": 2.0}
    assert asked == ["/s"]


def test_one_slow_sensor_keeps_no_other_waiting_and_the_observation_ends_in_time(far, monkeypatch):
    looked = threading.Event()

    def wait_for_all_but_one(asked, seconds):
        until(lambda: sum(each.done() for each in asked) == len(asked) - 1)
        assert seconds == 20.0

    monkeypatch.setattr(sensor_reader, "wait", wait_for_all_but_one)

    def answer(request):
        if request.url.host == "runner":
            looked.wait()
        return far.answer(request)

    plant = DeclaredPlant(parse_declaration(TEXT), {}, httpx.MockTransport(answer))
    unknown = plant.get_topology().operators["render"].unknown_tasks
    assert unknown.startswith("Sensor render_now: the source did not respond within 20 s")
    looked.set()
    assert plant.readings["requests"].value == 40.0
    plant.close()


def test_tasks_are_set_by_calls_with_the_numbers_in_them(far, plant):
    plant.set_parallelism({"web": 3, "render": 4})
    assert far.calls == [
        ("PUT", "/web", '{"replicas":3,"note":"from 2"}'),
        ("POST", "/render/3", ""),
        ("POST", "/render/4", ""),
    ]
    far.calls.clear()
    plant.set_parallelism({"web": 3, "render": 3})
    assert far.calls == [("DELETE", "/render/4", "")]


def test_what_was_set_is_called_back_when_a_later_call_is_refused(far, plant):
    far.broken["/render/4"] = lambda request: httpx.Response(409, text="no room\nfor more")
    with pytest.raises(InvalidPlantResponse, match="returned 409: no room for more"):
        plant.set_parallelism({"web": 5, "render": 4})
    assert far.now == {"web": 2, "render": 2}
    assert far.calls == [
        ("PUT", "/web", '{"replicas":5,"note":"from 2"}'),
        ("POST", "/render/3", ""),
        ("DELETE", "/render/3", ""),
        ("PUT", "/web", '{"replicas":2,"note":"from 5"}'),
    ]


def test_a_counter_is_its_increase_a_second_and_begins_anew_when_it_falls():
    values, seconds = iter([100, 120, 5, 25]), iter([0.0, 10.0, 12.0, 22.0])
    plant = sensing(
        "{url: 'http://x/s', json: n, counter: true, times: 0.5}",
        lambda request: httpx.Response(200, json={"n": next(values)}),
        monotonic=lambda: next(seconds),
    )
    assert [said(plant).value for _ in range(4)] == [None, 1.0, None, 1.0]


@pytest.mark.parametrize(
    ("document", "path", "value", "error"),
    [
        ({"a": [{"n": 1}, {"n": 2}]}, "sum(a[*].n)", 3.0, ""),
        ({"n": "7.5"}, "n", 7.5, ""),
        ({"n": None}, "n", None, ""),
        ({"n": "NaN"}, "n", None, ""),
        ({"n": True}, "n", None, "returned no number"),
        ({"n": {}}, "n", None, "returned no number"),
        ({"n": "many"}, "n", None, "'many', which is not a number"),
        ({"n": "x"}, "sum(n)", None, "does not match the response"),
    ],
)
def test_a_path_leads_to_a_number_or_the_sensor_says_why_not(document, path, value, error):
    found = said(sensing(f"{{url: 'http://x/s', json: '{path}'}}", lambda _: httpx.Response(200, json=document)))
    assert found.value == value
    assert error in str(found.error or "")
    assert (found.error is None) == (error == "")


def test_a_secret_is_named_and_sent_as_is_said():
    sent = []

    def answer(request):
        sent.append(dict(request.headers))
        return httpx.Response(200, json=1)

    where = "url: 'http://x/s', json: '@', secret_environment: WEIR_SECRET_X"
    environment = {"WEIR_SECRET_X": "me:word"}
    for how in ("bearer", "basic", "X-Token"):
        assert said(sensing(f"{{{where}, secret_as: {how}}}", answer, environment)).value == 1.0
    assert [each.get("authorization") for each in sent] == ["Bearer me:word", "Basic bWU6d29yZA==", None]
    assert sent[2]["x-token"] == "me:word"
    missing = said(sensing(f"{{{where}}}", answer))
    assert "names WEIR_SECRET_X, which is not set in Weir's environment" in str(missing.error)
    assert len(sent) == 3


def test_a_file_is_read_where_an_administrator_allows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    file = tmp_path / "open" / "n"
    file.write_text(" 12.5\n")
    plant = sensing(f"{{file: {file}}}")
    assert said(plant).value == 12.5
    file.write_text("")
    assert said(plant).value is None
    file.write_text("x" * 70_000)
    assert "more than 65536 bytes" in str(said(plant).error)
    file.unlink()
    assert "No such file" in str(said(plant).error)
    (tmp_path / "secret").write_text("1")
    file.symlink_to(tmp_path / "secret")
    assert "must be a file in a folder of WEIR_PLANT_FILES" in str(said(plant).error)
    for other in ("/etc/passwd", f"{tmp_path}/open/../secret", "n"):
        with pytest.raises(Forbidden, match=r"sensors\.it\.file"):
            sensing(f"{{file: {other}}}")


def test_a_file_that_nobody_writes_any_more_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    file = tmp_path / "n"
    file.write_text("12.5")
    old = time.time() - 400
    os.utime(file, (old, old))
    assert "was last written 40" in str(said(sensing(f"{{file: {file}}}")).error)
    assert said(sensing(f"{{file: {file}, fresh_seconds: 600}}")).value == 12.5
    assert said(sensing(f"{{file: {file}, fresh_seconds: 0}}")).value == 12.5
    with pytest.raises(BadInput, match=r"sensors\.it\.fresh_seconds"):
        sensing(f"{{file: {file}, fresh_seconds: -1}}")


def database(tmp_path, *statements):
    with sqlite3.connect(tmp_path / "db") as made:
        for each in statements:
            made.execute(each)
    made.close()
    return {"WEIR_SECRET_DB": f"sqlite:///{tmp_path}/db"}


@pytest.mark.parametrize(
    ("query", "value", "error"),
    [
        ("SELECT count(*) FROM jobs", 2.0, ""),
        ("WITH some AS (SELECT n FROM jobs) SELECT sum(n) FROM some", 3.0, ""),
        ("SELECT max(n) FROM jobs WHERE n > 9", None, ""),
        ("SELECT n FROM jobs WHERE n > 9", None, ""),
        ("SELECT n FROM jobs", None, "returned 2 rows instead of one value"),
        ("SELECT 1, 2", None, "a row of 2 values"),
        ("SELECT absent FROM jobs", None, "no such column"),
        ("WITH x AS (SELECT 1) DELETE FROM jobs", None, "not authorized"),
        ("SELECT load_extension(''/tmp/x'')", None, "not authorized"),
    ],
)
def test_a_database_is_asked_for_one_value_and_only_read(tmp_path, query, value, error):
    environment = database(tmp_path, "CREATE TABLE jobs (n INTEGER)", "INSERT INTO jobs VALUES (1), (2)")
    found = said(sensing(f"{{sql: '{query}', database: WEIR_SECRET_DB}}", environment=environment))
    assert found.value == value
    assert error in str(found.error or "")


def command(tmp_path, monkeypatch, body, allowed="", timeout=None):
    script = tmp_path / "scale"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "now").write_text("2")
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", allowed or f"{script} --to")
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    text = f"""name: local
sensors:
  now: {{file: {tmp_path}/now}}
operators:
  - name: work
    tasks: now
    maximum: 9
    set: {{command: [{script}, --to, '$tasks; touch /tmp/no', {tmp_path}]}}
"""
    return DeclaredPlant(parse_declaration(text), {})


def test_a_command_gets_its_arguments_as_they_are_and_none_of_our_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_SECRET_KEY", "hunter2")
    plant = command(tmp_path, monkeypatch, 'echo "$2" > "$3/said"; env > "$3/env"; echo 4 > "$3/now"')
    plant.set_parallelism({"work": 4})
    assert plant.get_topology().operators["work"].parallelism == 4
    assert (tmp_path / "said").read_text() == "4; touch /tmp/no\n"
    assert "hunter2" not in (tmp_path / "env").read_text() and "PATH=" in (tmp_path / "env").read_text()


def test_a_command_that_fails_or_hangs_says_so(tmp_path, monkeypatch):
    plant = command(tmp_path, monkeypatch, "echo no room >&2; exit 3")
    with pytest.raises(InvalidPlantResponse, match="ended with exit status 3: no room"):
        plant.set_parallelism({"work": 4})
    monkeypatch.setattr("workers.plants.foreign.declared.call.COMMAND_SECONDS", 0.1)
    plant = command(tmp_path, monkeypatch, "sleep 30")
    with pytest.raises(PlantUnavailable, match=r"took more than 0\.1 s"):
        plant.set_parallelism({"work": 4})
    (tmp_path / "scale").unlink()
    with pytest.raises(InvalidPlantResponse, match="can't be started"):
        plant.set_parallelism({"work": 4})


def test_a_command_that_nobody_allows_is_neither_declared_nor_called(tmp_path, monkeypatch):
    with pytest.raises(Forbidden, match=r"operators\[0\]\.set\.command.*WEIR_PLANT_COMMANDS"):
        command(tmp_path, monkeypatch, "", allowed="/bin/true")
    with pytest.raises(Forbidden):
        command(tmp_path, monkeypatch, "", allowed=f"{tmp_path}/scale --from")
    plant = command(tmp_path, monkeypatch, "touch $4/called", allowed=f"/bin/true; {tmp_path}/scale --to")
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", "")
    with pytest.raises(Forbidden):
        plant.set_parallelism({"work": 4})
    assert not (tmp_path / "called").exists()


WRONG = [
    ("name: shop", "name: Shop!", "name", 1),
    ("  requests: {promql: rate, unit: 1/s}", "  requests: {unit: 1/s}", "sensors.requests", 5),
    ("  requests: {promql: rate, unit: 1/s}", "  requests: {promql: rate, sql: x}", "sensors.requests", 5),
    ("rate, unit: 1/s}", "rate, units: 1/s}", "sensors.requests.units", 5),
    ("json: replicas}", "json: 'replicas['}", "sensors.render_now.json", 7),
    ("http://prometheus:9090", "http://prometheus:6379", "prometheus", 2),
    ("http://prometheus:9090", "http://169.254.169.254/", "prometheus", 2),
    ("http://prometheus:9090", "file:///etc/passwd", "prometheus", 2),
    ("http://prometheus:9090", "{url: 'http://p', secret_environment: HOME}", "prometheus.secret_environment", 2),
    ("out_per_second: requests", "out_per_second: request", "operators[0].out_per_second", 10),
    ("after: [clients]", "after: [render]", "operators[1].after[0]", 12),
    ("tasks: web_now", "tasks: 3", "operators[1].tasks", 13),
    ("tasks: web_now", "tasks: 2.5", "operators[1].tasks", 13),
    ("utilisation: 0.5", "utilisation: 50", "operators[2].utilisation", 22),
    ("    maximum: 9\n    service", "    service", "operators[1].maximum", 11),
    ("maximum: 9\n    service", "maximum: 0\n    service", "operators[1].maximum", 14),
    ("body: {replicas: $tasks, note: 'from $before'}", "body: {replicas: 3}", "operators[1].set", 17),
    ("url: 'http://runner/web'", "url: 'http://runner$tasks/web'", "operators[1].set.http.url", 17),
    ("url: 'http://runner/web'", "url: 'http://127.0.0.2:22/web'", "operators[1].set.http.url", 17),
    ("method: PUT", "method: BREW", "operators[1].set.http.method", 17),
    ("    down: {http: {url: 'http://runner/render/$before', method: DELETE}}\n", "", "operators[2].up", 23),
    ("proof: {within_seconds: 30}", "proof: {sensor: ready}", "operators[2].proof.sensor", 25),
    ("name: render", "name: web", "operators", 9),
    ("window_seconds: 10", "window_seconds: 0", "window_seconds", 3),
    ("window_seconds: 10", "window: 10", "declaration.window", 1),
]


@pytest.mark.parametrize(("old", "new", "field", "line"), WRONG, ids=[f"{row[2]}-{row[1][:24]}" for row in WRONG])
def test_what_is_wrong_is_named_with_its_line(old, new, field, line):
    assert TEXT.count(old) == 1
    with pytest.raises(BadInput) as refused:
        parse_declaration(TEXT.replace(old, new))
    assert (refused.value.field, refused.value.message.rpartition("(line ")[2]) == (field, f"{line})")


def test_a_proof_is_asked_for_before_its_time_is_over():
    """Otherwise every order would count as without effect, and its loops would hold."""
    for every, takes in ((29, True), (30, False)):
        text = TEXT.replace("json: replicas}", f"json: replicas, every_seconds: {every}}}")
        address = PlantAddress(name="shop", url="", options={OPTION: text})
        if takes:
            declared.check(address)
        else:
            with pytest.raises(BadInput, match=r"operators\[2\].proof.within_seconds: must be more than 30"):
                declared.check(address)


def test_a_dry_run_says_what_it_reads_and_would_do_and_calls_nothing(far):
    said, needs = make_dry_run(parse_declaration(TEXT), {}, httpx.MockTransport(far.answer))
    assert [each.partition(" (")[0] for each in said[:4]] == [
        "Sensor requests = 40 1/s",
        "Sensor web_now = 2",
        "Sensor render_now = 2",
        "Sensor waiting = 20",
    ]
    assert needs == [] and far.calls == []
    assert said[4:] == [
        'A change of web from 2 to 3 would call: PUT http://runner/web {"replicas":3,"note":"from 2"}.'
        ' Inverse: PUT http://runner/web {"replicas":2,"note":"from 3"}. Proof: web_now = 3 within 60 s.',
        "A change of render from 2 to 3 would call: POST http://runner/render/3."
        " Inverse: DELETE http://runner/render/3. Proof: render_now = 3 within 30 s.",
    ]
    far.values["waiting"] = "many"
    again, [need] = make_dry_run(parse_declaration(TEXT), {}, httpx.MockTransport(far.answer))
    assert "that is not from Prometheus" in need and len(again) == 5


def test_a_declaration_is_checked_and_inspected_under_any_name(far):
    kind, address = (
        adapters.get_kind("declared"),
        PlantAddress(name="new", url="", options={"declaration": TEXT}, transport=httpx.MockTransport(far.answer)),
    )
    kind.check(address)
    assert kind.steers_at(address)
    found = kind.run_inspection(address)
    assert found.what == "shop: 4 sensors, 3 operators" and far.calls == []
    assert any(each.startswith("A change of web from 2 to 3 would call: PUT http://runner/web") for each in found.said)
    assert "Sensor requests = 40 1/s (PromQL at http://prometheus:9090: rate)" in found.said
    broken = replace(address, options={"declaration": TEXT.replace("promql: rate", "promqls: rate")})
    assert not kind.steers_at(broken)
    with pytest.raises(BadInput, match=r"line 5\)"):
        kind.check(broken)


ASKED = re.compile(r'WEIR_PLANT_COMMANDS=(?:"([^"]*)"|(\S+))')


def asked_for(text):
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    found = ASKED.search(comment)
    return (found[1] or found[2]) if found else ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_asks_to_be_allowed_suffices_for_its_calls(name, monkeypatch, tmp_path):
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", asked_for(EXAMPLES[name]))
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    parse_declaration(re.sub("/var/lib/(scan|spark)/", f"{tmp_path}/", EXAMPLES[name]))


def test_who_allows_a_command_without_its_option_is_shown_the_option(monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_COMMANDS", "/usr/local/bin/scan-workers")
    with pytest.raises(Forbidden, match=r"each option must be listed there \(--read=2\)"):
        check_allowed(["/usr/local/bin/scan-workers", "--read=2"], "command")
