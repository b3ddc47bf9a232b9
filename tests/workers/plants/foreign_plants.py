"""The REST API of Flink, as recorded from a cluster of version 2.3."""

import json
from urllib.parse import parse_qs

import httpx

from workers.plants.foreign.client import PlantClient

PATIENCE_SECONDS = 3_600.0


def client_of(name: str, url: str, transport: httpx.BaseTransport) -> PlantClient:
    """Return a client of answers from memory: no pause of a busy host makes it late."""
    return PlantClient(name, url, timeout_seconds=PATIENCE_SECONDS, transport=transport)


class FakeFlink:
    """A session cluster with one job of three vertices, which rescales at once. error: its answer."""

    job = "54d8d6d62e9e0e5d4c8b6b5f3c9d5c11"
    names = {"a" * 32: "Source: came[1]", "b" * 32: "Calc[2]", "c" * 32: "gone[3]: Writer"}

    def __init__(self, slots=8):
        self.slots, self.state, self.error, self.puts = slots, "RUNNING", None, 0
        self.tasks = dict.fromkeys(self.names, 2) | {"a" * 32: 1}
        self.started, self.records = 1_790_000_000_000, 0
        self.config = {"jobmanager.scheduler": "adaptive"}
        self.age_seconds = 600.0  # of the job
        self.said = {}  # of the job, by the rest of the path
        self.of_others, self.least, self.longest = (0, 1, 0)  # slots; lower bound; characters of a request's line

    def transport(self):
        return httpx.MockTransport(self.answer)

    def answer(self, request):
        if self.error is not None:
            return self.error
        path = request.url.path.strip("/")
        self.longest = max(self.longest, len(f"GET {request.url.raw_path.decode()} HTTP/1.1"))
        if request.method == "PUT":
            return self.rescale(json.loads(request.content))
        if path == "overview":
            free = max(0, self.slots - self.of_others - max(self.tasks.values()))
            return httpx.Response(200, json={"taskmanagers": 1, "slots-total": self.slots, "slots-available": free})
        if path == "jobmanager/config":
            return httpx.Response(200, json=[{"key": key, "value": value} for key, value in self.config.items()])
        if path == "jobs/overview":
            row = {"jid": self.job, "name": "hashes", "state": self.state, "start-time": self.started}
            return httpx.Response(200, json={"jobs": [row]})
        if path == f"jobs/{self.job}":
            return httpx.Response(200, json=self.details())
        if path.endswith("resource-requirements"):
            return httpx.Response(200, json=self.requirements())
        if path.endswith("/metrics"):
            return httpx.Response(200, json=self.metrics(parse_qs(request.url.query.decode())["get"][0]))
        if (said := self.said.get(path.removeprefix(f"jobs/{self.job}/"))) is not None:
            return httpx.Response(200, json=said)
        return httpx.Response(404, json={"errors": [f"Unable to load requested file /{path}."]})

    def details(self):
        before = [None, *self.names]
        return {
            "jid": self.job,
            "name": "hashes",
            "state": self.state,
            "duration": round(1_000 * self.age_seconds),
            "vertices": [
                {
                    "id": each,
                    "name": name,
                    "maxParallelism": 128,
                    "parallelism": self.tasks[each],
                    "status": "RUNNING",
                    "start-time": self.started,
                }
                for each, name in self.names.items()
            ],
            "plan": {
                "nodes": [
                    {
                        "id": each,
                        "parallelism": self.tasks[each],
                        **({"inputs": [{"num": 0, "id": before[at]}]} if before[at] else {}),
                    }
                    for at, each in enumerate(self.names)
                ]
            },
        }

    def requirements(self):
        return {
            each: {"parallelism": {"lowerBound": self.least, "upperBound": count}} for each, count in self.tasks.items()
        }

    def rescale(self, wanted):
        self.puts, self.wanted = self.puts + 1, wanted
        self.tasks = {each: row["parallelism"]["upperBound"] for each, row in wanted.items()}
        self.started += 1_000
        return httpx.Response(200, json={})

    def metrics(self, wanted):
        """Return metrics: counters grow by 100 per observation, each task is busy half of the time."""
        self.records += 100
        values = {"numRecordsIn": self.records, "numRecordsOut": self.records // 2, "busyTimeMsPerSecond": 500.0}
        return [{"id": each, "value": str(values[each.partition(".")[2]])} for each in wanted.split(",")]
