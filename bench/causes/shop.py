"""A plant with a small shop in it, and a webhook that is called for its alerts."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from bench.causes.producers import Producers
from bench.plant.api_plant import ApiPlant

QUEUES = ("orders", "mail", "video")
PIPELINE_QUEUE, APPLICATION = "clicks", "visits"
START_SECONDS, CALM_SECONDS = 300.0, 240.0
SERVICE = {"seconds": 0.002}  # of an event
SHORT_SECONDS = 6.0  # to wait: workers begin when they have enough to do
# How long the waits of the plant at work are watched; one is long from so many times the longest of them on.
USUAL_SECONDS, MAX_STRETCHES, LONG = 30.0, 4, 2.0
RECEIVER = "scenario"
# rule → (threshold, clear_threshold, for_seconds)
RULES = {
    "queue-behind": (8.0, 6.0, 2.0),
    "node-lost": (5.0, 3.0, 0.0),
    "dead-letters": (1.0, 1.0, 0.0),
    "workers-missing": (0.0, 0.0, 5.0),
}
DECLARATION = """
name: {application}
queues: [{queue}]
sink: mail
rules:
  - name: robots
    discard: "{discard}"
patterns:
  - name: visit
    pattern: SEQ(any)
    define:
      any: 'type == "click"'
    key: key
    within_seconds: 1
    emits: visit
"""
AN_HOUR_AGO = """
from datetime import timedelta
from django.db.models import F
from workers.alerts.lifecycle.models import Alert
Alert.objects.exclude(resolved_at=None).update(resolved_at=F("resolved_at") - timedelta(hours=1))
"""
ALL, NONE = "value < 1000", "value < 0"  # what the rule discards: values are 0 to 1


@dataclass
class Calls:
    """Of the webhook: (instant by `time.time`, what it was called with), the oldest first."""

    port: int = 0
    seen: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def first_after(self, at: float) -> tuple[float, dict[str, Any]] | None:
        """The first with an alert that fired since."""
        return next(((when, said) for when, said in list(self.seen) if when >= at and _has_fired(said)), None)


def is_worked_off(snapshot: dict[str, Any]) -> bool:
    """Nothing waits longer than work takes."""
    waits = [snapshot["queues"].get(queue, {}).get("oldest_seconds") or 0.0 for queue in QUEUES]
    return max(waits) < SHORT_SECONDS


def _has_fired(said: dict[str, Any]) -> bool:
    return any(alert["resolved_at"] is None for alert in said["alerts"])


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        calls: Calls = self.server.calls  # type: ignore[attr-defined]
        calls.seen.append((time.time(), json.loads(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class Shop(ApiPlant):
    """Use as a context, then `open` it."""

    producers: Producers

    def __enter__(self) -> Self:
        self.calls = Calls()
        self.hook = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
        self.hook.calls = self.calls  # type: ignore[attr-defined]
        self.calls.port = self.hook.server_address[1]
        threading.Thread(target=self.hook.serve_forever, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        with suppress(AttributeError):  # it was never opened
            self.producers.close()
        self.hook.shutdown()
        self.hook.server_close()
        super().__exit__(*raised)

    def environment_of_run(self) -> dict[str, str]:
        """Return an environment in which agents are processes, so that one of them can be suspended."""
        settings = {"WEIR_EGRESS_ALLOW": "127.0.0.0/8", "WEIR_HANDLERS": "math.sqrt", "WEIR_OBSERVER_AGENTS": "0"}
        return {**super().environment_of_run(), **settings}

    def open(self) -> None:
        """Its queues, its application, its rules and who is notified; then producers begin."""
        self.wait_until(lambda snapshot: not snapshot["parts"].get("starting"), START_SECONDS, "all has started")
        self.sign_in()
        for queue in QUEUES:
            self.ask(f"queues/{queue}/create", kind="jobs", handler="emulate", handler_options=SERVICE)
        self.ask(f"queues/{PIPELINE_QUEUE}/create", kind="pipeline")
        self.declare(ALL)
        address = {"url": f"http://127.0.0.1:{self.calls.port}/"}
        self.ask(f"receivers/{RECEIVER}", channel="webhook", settings=address)
        for rule, limits in RULES.items():
            self.set_rule(rule, *limits)
        self.producers = Producers(self.control_url(), QUEUES, PIPELINE_QUEUE)
        self.wait_until(self.is_calm, START_SECONDS, "the shop is open")
        self.allow_for_the_host()

    def set_rule(self, rule: str, threshold: float, clear: float, for_seconds: float) -> None:
        """With this shop's webhook as the one that is notified."""
        fields = {
            "threshold": threshold,
            "clear_threshold": clear,
            "for_seconds": for_seconds,
            "escalation": [{"after_minutes": 0, "receivers": [RECEIVER]}],
        }
        self.ask(f"alert-rules/{rule}", fields=fields)

    def allow_for_the_host(self) -> None:
        """On a slow host events of the pipeline wait for seconds though nothing is wrong: that is no cause of
        a scenario, so a queue is behind from LONG times that on. What only the start left is worked off by the last of
        the stretches.
        """
        threshold, clear, for_seconds = RULES["queue-behind"]
        for _ in range(MAX_STRETCHES):
            longest = self._longest_wait(USUAL_SECONDS)
            if LONG * longest <= threshold:
                return
        self.set_rule("queue-behind", LONG * longest, LONG * longest * clear / threshold, for_seconds)

    def _longest_wait(self, seconds: float) -> float:
        """Of any event, in the next seconds."""
        longest = 0.0
        until = time.time() + seconds
        while time.time() < until:
            queues = (self.snapshot() or {"queues": {}})["queues"].values()
            longest = max([longest, *(row.get("oldest_seconds") or 0.0 for row in queues)])
            time.sleep(1.0)
        return longest

    def declare(self, discard: str) -> None:
        """The application, with what its rule discards."""
        text = DECLARATION.format(application=APPLICATION, queue=PIPELINE_QUEUE, discard=discard)
        self.ask("applications", text=text)

    def is_calm(self, snapshot: dict[str, Any]) -> bool:
        """Nothing waits long, all runs, and no alert that somebody is called for is open."""
        running = (snapshot["pipeline"] or {}).get("state") == "running"
        open_alerts = [alert for alert in snapshot["alerts"] if alert["severity"] != "notice"]
        return running and is_worked_off(snapshot) and not open_alerts

    def work_off(self) -> None:
        """What has piled up goes at once, and the handlers are as they were."""
        for queue in QUEUES:
            self.set_handler(queue, "noop")
        self.wait_until(is_worked_off, CALM_SECONDS, "the backlog is gone")
        for queue in QUEUES:
            self.set_handler(queue, "emulate", **SERVICE)
            self.discard(queue)

    def discard(self, queue: str) -> None:
        """Its dead letters, until there are none."""
        while (letters := self.answer("dead-letters", queue=queue))["count"]:
            shown = {name: letters[name] for name in ("through", "digest", "count")}
            self.ask("dead-letters/discard", filter={"queue": queue}, confirm=queue, **shown)

    def reset_calm(self) -> None:
        """As if an hour had passed: what comes back soon would be the same alert, with an onset long ago."""
        self.wait_until(self.is_calm, CALM_SECONDS, "no alert is open")
        self.manage("shell", "-c", AN_HOUR_AGO).check_returncode()
