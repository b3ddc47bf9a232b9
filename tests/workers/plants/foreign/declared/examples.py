"""The systems that the examples of declared plants name, in the form of their interfaces.

Each keeps two pools, reports their numbers of workers, and accepts exactly the requests and commands that are written
here.

`WIRE`: example → patterns of calls, as `METHOD url body` or the words of a command. `n` is the number that is
set; without it, `sign` says whether one is added or removed. A call that matches none of them fails the test.
"""

import json
import re
import sqlite3
from urllib.parse import parse_qs

import httpx

from workers.plants.foreign.declared import call, sources
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES
from workers.plants.foreign.declared.sensor import PromqlSource

COMMANDS = (
    "/usr/bin/systemctl start resize@; /usr/bin/systemctl stop resize@; /usr/bin/systemctl start publish@;"
    "/usr/bin/systemctl stop publish@; /usr/bin/systemctl kill --kill-who=main --signal=;"
    "/usr/local/bin/scale-sidekiq;"
    "/usr/bin/docker service scale --detach; /usr/local/bin/job-workers; /usr/local/bin/scan-workers --"
)
SECRETS = {
    name: f"{name.lower()}:x"
    for name in (
        "WEIR_SECRET_AIRFLOW",
        "WEIR_SECRET_DEPLOY",
        "WEIR_SECRET_FLOWER",
        "WEIR_SECRET_KUBERNETES",
        "WEIR_SECRET_NOMAD",
        "WEIR_SECRET_PROMETHEUS",
        "WEIR_SECRET_RABBITMQ",
        "WEIR_SECRET_REDIS",
    )
}
KUBERNETES = r"PATCH https://kubernetes\.default\.svc/apis/apps/v1/namespaces/\w+/deployments/(?P<pool>\w+)/scale"
REPLICAS = r' {"spec":{"replicas":(?P<n>\d+)}}'
SIGNALS = {"TTIN": 1, "TTOU": -1, "start": 1, "stop": -1, "grow": 1, "shrink": -1}
WIRE = {
    "airflow-pools": r"PATCH http://airflow:8080/api/v1/pools/\w+\?update_mask=slots"
    r' {"name":"(?P<pool>\w+)","slots":(?P<n>\d+)}',
    "docker-swarm": r"/usr/bin/docker service scale --detach iot_(?P<pool>\w+)=(?P<n>\d+)",
    "dramatiq": KUBERNETES + REPLICAS,
    "flower": r"POST http://flower:5555/api/worker/pool/(?P<sign>grow|shrink)/(?P<pool>\w+)@a\?n=1 ",
    "gunicorn": r"/usr/bin/systemctl kill --kill-who=main --signal=(?P<sign>TTIN|TTOU)"
    r" gunicorn-(?P<pool>\w+).service",
    "http-service": r'PUT http://deploy\.internal:8080/api/services/(?P<pool>\w+) {"replicas":(?P<n>\d+)}',
    "huey": KUBERNETES + REPLICAS,
    "kafka-connect": r'PATCH http://connect:8083/connectors/(?P<pool>\w+)/config {"tasks.max":(?P<n>\d+)}',
    "kafka-consumer": KUBERNETES + REPLICAS,
    "kubernetes": KUBERNETES + REPLICAS,
    "nomad": r"POST http://nomad:4646/v1/job/video/scale"
    r' {"Count":(?P<n>\d+),"Target":{"Group":"(?P<pool>\w+)"},"Message":"Weir"}',
    "postgres-queue": r"/usr/local/bin/job-workers (?P<pool>\w+) (?P<n>\d+)",
    "rabbitmq": r"POST http://runner:8080/pools/(?P<pool>\w+)\?consumers=(?P<n>\d+) ",
    "rq": KUBERNETES + REPLICAS,
    "sidekiq": r"/usr/local/bin/scale-sidekiq (?P<pool>\w+) (?P<n>\d+)",
    "spool-files": r"/usr/local/bin/scan-workers --(?P<pool>\w+)=(?P<n>\d+)",
    "spark-streaming": KUBERNETES + REPLICAS,
    "systemd-pool": r"/usr/bin/systemctl (?P<sign>start|stop) (?P<pool>\w+)@(?P<unit>\d+).service",
}
# Measurements, by the measure that an operator uses them for.
MEASURED = {
    "out_per_second": 12.0,
    "in_per_second": 12.0,
    "failed_per_second": 1.0,
    "service_seconds": 0.1,
    "utilisation": 0.6,
    "waiting_events": 24.0,
}


class DeclaredRig:
    """An example, and the system that it names. `error`: an answer in place of the normal one."""

    def __init__(self, name, tmp_path, monkeypatch):
        self.name, self.folder, self.calls, self.error = name, tmp_path, [], None
        monkeypatch.setenv("WEIR_PLANT_COMMANDS", COMMANDS)
        monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
        monkeypatch.setattr(call, "_run", self.run)
        monkeypatch.setattr(sources, "read_single_value", self.read)
        text = re.sub("/var/lib/(scan|spark)/", f"{tmp_path}/", EXAMPLES[name])
        self.declaration = parse_declaration(text)
        pools = [each for each in self.declaration.operators.values() if each.actuator]
        self.operators = tuple(each.name for each in pools)
        self.is_chain = any(each.name in other.after for each in pools for other in pools)
        self.pools = dict.fromkeys(self.operators, 2)
        self.quantities = self._quantities(pools)
        self.settle()
        environment = {**SECRETS, "WEIR_SECRET_JOBS": f"sqlite:///{tmp_path}/jobs"}
        self.plant = DeclaredPlant(self.declaration, environment, httpx.MockTransport(self.answer))

    def parallelism(self):
        operators = self.plant.get_topology().operators
        return {name: operators[name].parallelism for name in self.operators}

    def changes(self):
        return len(self.calls)

    def settle(self):
        if self.name == "postgres-queue":
            self._write_jobs()
        state = {"workers": self.pools, "inbox": ["page"] * 24, "seconds": {"file": 0.1}}
        (self.folder / "state.json").write_text(json.dumps(state))
        (self.folder / "scanned.total").write_text("7\n")
        progress = {"rows_per_second": 12.0, "busy_share": 0.6, "batch_seconds": 1.5}
        for job in ("clean", "score"):
            (self.folder / f"{job}.json").write_text(json.dumps(progress))

    def read(self, name, address, command):
        """Return what Redis answers: lengths of queues, and registered workers."""
        kind, key = command
        return {"LLEN": 24, "SCARD": self.pools.get(key.rpartition(":")[2])}[kind]

    def run(self, arguments):
        self.call(" ".join(arguments))
        return 0, ""

    def call(self, words):
        found = re.fullmatch(WIRE[self.name], words)
        assert found, f"{self.name} calls what nothing takes: {words}"
        pool, named = found["pool"], found.groupdict()
        if named.get("n"):
            self.pools[pool] = int(named["n"])
        else:
            sign = SIGNALS[named["sign"]]
            unit = self.pools[pool] + (sign > 0)  # the added one, or the last
            assert named.get("unit") in (None, str(unit))
            self.pools[pool] += sign
        self.calls.append(words)

    def answer(self, request):
        if self.error is not None:
            return self.error(request)
        path = request.url.path
        if request.method == "GET":
            if request.url.host == "prometheus":
                return httpx.Response(200, json=self.queried(request))
            self.check_login(request)
            return httpx.Response(200, json=self.document(request.url.host, path))
        self.check_login(request)
        is_scale = path.endswith("/scale") and request.url.host.startswith("kubernetes")
        assert ("merge-patch" in request.headers.get("content-type", "")) == is_scale
        self.call(f"{request.method} {request.url} {request.content.decode()}")
        return httpx.Response(200, text="done")

    def check_login(self, request):
        host, headers = request.url.host, request.headers
        if host in ("airflow", "rabbitmq", "flower"):
            assert headers["authorization"].startswith("Basic ")
        elif host == "nomad":
            assert headers["x-nomad-token"] == "weir_secret_nomad:x"
        elif host in ("deploy.internal", "kubernetes.default.svc"):
            assert headers["authorization"].startswith("Bearer weir_secret_")
        else:
            assert "authorization" not in headers

    def queried(self, request):
        """Return what Prometheus answers: the query is known word for word."""
        query = parse_qs(request.url.query.decode())["query"][0]
        value = self.quantities[query]
        sample = {"metric": {}, "value": [1_790_000_000.0, str(value() if callable(value) else value)]}
        return {"status": "success", "data": {"resultType": "vector", "result": [sample]}}

    def document(self, host, path):
        pool = path.split("/")[-1]
        if host == "rabbitmq":
            rates = {"publish_details": {"rate": 12.0}}
            return {"messages_ready": 24, "consumers": self.pools[pool], "message_stats": rates}
        if host == "kubernetes.default.svc":
            return {"kind": "Deployment", "status": {"readyReplicas": self.pools[pool]}}
        if host.startswith("spark-"):
            return {"url": f"spark://{host}:7077", "aliveworkers": self.pools[host.removeprefix("spark-")]}
        if host == "nomad":
            groups = {name: {"Running": n, "Desired": n} for name, n in self.pools.items()}
            return {"JobID": "video", "TaskGroups": groups}
        if host == "airflow":
            return {"name": pool, "slots": self.pools[pool], "queued_slots": 24, "occupied_slots": 2}
        if host == "connect":
            name = path.split("/")[2]
            tasks = [{"id": each, "state": "RUNNING"} for each in range(self.pools[name])]
            return {"name": name, "connector": {"state": "RUNNING"}, "tasks": tasks}
        assert host in ("gateway", "ingest")
        return {
            "requests_total": 700,
            "back": {"mean_ms": 100},
            "uploads_per_second": 12.0,
            "waiting": [{"files": 20}, {"files": 4}],
        }

    def _quantities(self, pools):
        found = {}
        for operator in self.declaration.operators.values():
            names = {"tasks": operator.tasks, **operator.measures}
            for measure, quantity in names.items():
                sensor = self.declaration.sensors.get(quantity)
                if sensor is None or not isinstance(sensor.source, PromqlSource):
                    continue
                if measure == "tasks":
                    found[sensor.source.query] = lambda name=operator.name: self.pools[name]
                else:
                    found[sensor.source.query] = MEASURED[measure] / sensor.times
        for sensor in self.declaration.sensors.values():  # displayed, but not used as a measure
            if isinstance(sensor.source, PromqlSource):
                found.setdefault(sensor.source.query, 1.0)
        return found

    def _write_jobs(self):
        with sqlite3.connect(self.folder / "jobs") as jobs:
            jobs.executescript(
                "DROP TABLE IF EXISTS jobs; DROP TABLE IF EXISTS workers;"
                "CREATE TABLE jobs (queue TEXT, state TEXT, seconds REAL);"
                "CREATE TABLE workers (queue TEXT, alive BOOLEAN);"
            )
            rows = [(queue, "todo", None) for queue in ("parse", "mail") for _ in range(24)]
            jobs.executemany("INSERT INTO jobs VALUES (?, ?, ?)", [*rows, ("parse", "done", 0.1)])
            workers = [(name, True) for name, count in self.pools.items() for _ in range(count)]
            jobs.executemany("INSERT INTO workers VALUES (?, ?)", workers)
        jobs.close()
