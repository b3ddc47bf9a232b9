"""Ends what Weir has set at a system once Weir has stopped renewing it.

This file is the whole program. It runs beside the system, not beside Weir, and needs only Python 3.11 or later:

    python3 weir_guard.py kubernetes --namespace shop
    python3 weir_guard.py celery redis://broker.example:6379/0

Weir writes a lease at the system: what it has set, what restores it, and for how many seconds it is valid. While Weir
runs, it changes the lease every few seconds. A lease that stays the same for its whole duration has ended. The guard
measures that time with its own clock, so the clocks of hosts are never compared, and a started guard waits for a whole
duration first. What Weir renews meanwhile is left alone.

Kubernetes: the annotation `weir.io/held` of a ScaledObject or a HorizontalPodAutoscaler. The guard removes the pause.
Celery on Redis or Valkey: the hash `weir.leases` in the broker's database. The guard sends the workers the commands of
Celery's remote control, and resizes pools to the size that they had before Weir.

The guard shows that it runs by a heartbeat: the Lease object `weir-guard`, or the key `weir.guard`.
"""

import argparse
import base64
import http.client
import json
import os
import socket
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

VERSION = 1
POLL_SECONDS = 2.0
BEAT_SECONDS = 10.0
SILENT_SECONDS = 30  # without a heartbeat for this long, the guard counts as stopped
TIMEOUT_SECONDS = 10.0
LEASE_SECONDS = 36.0  # of a lease that names no duration

LEASES, GUARD = "weir.leases", "weir.guard"
HELD, BEAT_NAME = "weir.io/held", "weir-guard"
ANSWER_SECONDS = 2.0
RETRY_SECONDS = 5.0
SETTLE_SECONDS = 7.0  # a Celery worker starts processes, and removes ended ones, only every five seconds
GIVE_UP_SECONDS = 3_600.0  # a worker that has not answered for this long is gone
UPTIME_SECONDS = 3.0  # workers report their uptime in whole seconds
# Replaces a lease only if Weir has not changed it meanwhile.
REPLACE = "if redis.call('hget',KEYS[1],ARGV[1])==ARGV[2] then return redis.call('hset',KEYS[1],ARGV[1],ARGV[3]) end"

PAUSED = "autoscaling.keda.sh/paused"
DIRECTIONS = ("scaleUp", "scaleDown")
KINDS = {"KEDA": "keda.sh/v1alpha1/scaledobjects", "HPA": "autoscaling/v2/horizontalpodautoscalers"}
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH, JSON = "application/merge-patch+json", "application/json"
FAILURES = (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException)


class SystemRefusal(OSError):  # noqa: N818
    """The system refused a request."""


class UnrenewedLeases:
    """Tells which leases were not renewed for their whole duration, by the clock of this process."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}  # lease → (its text, since when)

    def has_ended(self, name: str, text: str, seconds: float, now: float) -> bool:
        """Return whether the lease has had this text for `seconds`. now: of a clock that never goes back."""
        last_text, since = self._seen.get(name, ("", now))
        if last_text != text:
            self._seen[name] = text, now
            return False
        return now - since >= seconds

    def retain(self, names: Iterable[str]) -> None:
        """Forget leases that no longer exist."""
        known = set(names)
        self._seen = {name: seen for name, seen in self._seen.items() if name in known}


def read_duration(lease: Mapping[str, Any]) -> float:
    """Return the duration of a lease in seconds."""
    seconds = lease.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) and 0 < seconds <= 3_600 else LEASE_SECONDS


# Celery on Redis or Valkey


class RedisServer:
    """A connection to a Redis-protocol server; commands raise OSError, and `SystemRefusal` if the server refuses."""

    def __init__(self, url: str, password: str = "") -> None:
        parts = urlsplit(url)
        self._host, self._port, self._tls = parts.hostname or "127.0.0.1", parts.port or 6379, parts.scheme == "rediss"
        self._user, self._password = unquote(parts.username or ""), password or unquote(parts.password or "")
        self._database = parts.path.strip("/") or "0"
        self._file: Any = None
        self._socket: Any = None

    def command(self, *parts: str | int | float) -> Any:
        """Return the answer to a command: None, a number, a text, or a list of them."""
        if self._socket is None:
            self._connect()
        try:
            return self._send(*parts)
        except (OSError, ValueError) as error:
            if not isinstance(error, SystemRefusal):
                self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next command opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._file = None

    def _connect(self) -> None:
        self._socket = socket.create_connection((self._host, self._port), TIMEOUT_SECONDS)
        try:
            if self._tls:
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=self._host)
            self._file = self._socket.makefile("rb")
            if self._password:
                self._send("AUTH", *([self._user] if self._user else []), self._password)
            self._send("SELECT", self._database)
        except OSError:
            self.close()
            raise

    def _send(self, *parts: str | int | float) -> Any:
        texts = [str(part).encode() for part in parts]
        self._socket.sendall(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts))
        return self._read()

    def _read(self) -> Any:
        line: bytes = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"-":
            raise SystemRefusal(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self._file.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
        if kind == b"*":
            return None if rest == "-1" else [self._read() for _ in range(int(rest))]
        return rest


class PidboxControl:
    """Celery's remote control by Redis. layout: how the app's workers store messages, as Weir wrote it in the lease."""

    def __init__(self, server: RedisServer, layout: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._server, self._layout, self._clock = server, layout, clock

    def ask(self, method: str, arguments: Mapping[str, Any], workers: Sequence[str]) -> dict[str, Any]:
        """Return the answer of each of these workers that answers within ANSWER_SECONDS."""
        identity, ticket = str(uuid.uuid4()), str(uuid.uuid4())
        reply_queue = f"{identity}.reply.celery.pidbox"
        binding = str(self._layout["separator"]).join((identity, "", reply_queue))
        body = {
            "method": method,
            "arguments": dict(arguments),
            "destination": list(workers),
            "ticket": ticket,
            "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": identity},
        }
        list_key = f"{self._layout['prefix']}{reply_queue}"
        self._server.command("SADD", self._layout["bindings"], binding)
        try:
            for channel in self._layout["channels"]:
                self._server.command("PUBLISH", channel, _build_message(body))
            return self._collect(list_key, ticket, len(workers))
        finally:
            self._server.command("SREM", self._layout["bindings"], binding)
            self._server.command("DEL", list_key)

    def _collect(self, list_key: str, ticket: str, count: int) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        until = self._clock() + ANSWER_SECONDS
        while len(answers) < count and (left := until - self._clock()) > 0:
            row = self._server.command("BRPOP", list_key, max(0.05, round(left, 2)))
            if row is None:
                break
            message = json.loads(row[1])
            if message.get("headers", {}).get("ticket", ticket) == ticket:
                answers.update(json.loads(base64.b64decode(message["body"])))
        return answers


def _build_message(body: Mapping[str, Any]) -> str:
    """Return a message in the form of kombu's Redis transport."""
    properties = {
        "delivery_mode": 1,
        "delivery_info": {"exchange": "celery.pidbox", "routing_key": ""},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps(body).encode()).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"clock": 1, "expires": 0},
            "properties": properties,
        }
    )


class CeleryGuard:
    """Watches the leases in a broker's database.

    A lease is {holder, seconds, layout, items}. An item is a command for workers, {method, arguments, workers}, or the
    size of a pool, {pool, processes, at}. `workers` and `at` have the time (seconds since 1970) at which Weir read the
    former state: a worker that was started later has the setup of its owner, and is left alone.

    An item that a worker has not carried out yet stays in the lease, and is tried again.
    """

    def __init__(
        self,
        server: RedisServer,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._server, self._clock, self._report = server, clock, report
        self._leases, self._guard = f"{prefix}{LEASES}", f"{prefix}{GUARD}"
        self._unrenewed = UnrenewedLeases()
        self._retry_at: dict[str, float] = {}  # lease → when to try its items again
        self._resized_at: dict[str, float] = {}  # worker → when its pool was resized
        self._beat_at = -BEAT_SECONDS

    def step(self) -> None:
        """Send the heartbeat, and end each lease that is due. Raise OSError if the server does not answer."""
        now = self._clock()
        if now - self._beat_at >= BEAT_SECONDS:
            document = json.dumps({"version": VERSION, "host": socket.gethostname(), "pid": os.getpid()})
            self._server.command("SET", self._guard, document, "EX", SILENT_SECONDS)
            self._beat_at = now
        rows = self._server.command("HGETALL", self._leases)
        leases = dict(zip(rows[::2], rows[1::2], strict=True))
        self._unrenewed.retain(leases)
        for holder, text in leases.items():
            lease = json.loads(text)
            if not lease.get("items"):
                continue
            has_ended = self._unrenewed.has_ended(holder, text, read_duration(lease), now)
            if (lease.get("ended_at") or has_ended) and now >= self._retry_at.get(holder, now):
                self._retry_at[holder] = now + RETRY_SECONDS
                self._end(holder, text, lease)

    def _end(self, holder: str, text: str, lease: dict[str, Any]) -> None:
        """Carry out the items of a lease, and write what is left of them."""
        now = float(self._server.command("TIME")[0])
        control = PidboxControl(self._server, lease["layout"], self._clock)
        names = [name for item in lease["items"] for name in item.get("workers") or [item["pool"]]]
        stats = control.ask("stats", {}, list(dict.fromkeys(names)))
        is_too_late = now - float(lease.get("ended_at") or now) > GIVE_UP_SECONDS
        left: list[dict[str, Any]] = []
        done = list(lease.get("restored") or [])
        for item in lease["items"]:
            rest = None if is_too_late else self._restore(control, item, stats, now)
            if rest is not None:
                left.append(rest)
            else:
                done.append(item)
        ended = {**lease, "items": left, "restored": done, "ended_at": lease.get("ended_at") or now}
        if self._server.command("EVAL", REPLACE, 1, self._leases, holder, text, json.dumps(ended)) is None:
            self._report(f"{holder} renewed its lease meanwhile.")
            return
        for item in done[len(lease.get("restored") or []) :]:
            self._report(f"{holder} did not renew its lease. Restored: {describe_item(item)}.")

    def _restore(
        self, control: PidboxControl, item: dict[str, Any], stats: Mapping[str, Any], now: float
    ) -> dict[str, Any] | None:
        """Restore an item; return what is left of it, or None."""
        if "pool" in item:
            return None if self._restore_pool(control, item, stats.get(item["pool"]), now) else item
        waiting = {name: at for name, at in item["workers"].items() if name not in stats}
        same = [name for name, at in item["workers"].items() if name in stats and is_same_life(stats[name], at, now)]
        answers = control.ask(item["method"], item["arguments"], same) if same else {}
        waiting |= {name: item["workers"][name] for name in same if "ok" not in (answers.get(name) or {})}
        return {**item, "workers": waiting} if waiting else None

    def _restore_pool(self, control: PidboxControl, item: dict[str, Any], stats: Any, now: float) -> bool:
        """Bring a pool closer to its former size; return whether it has it. Only idle processes are ended."""
        worker, wanted = item["pool"], int(item["processes"])
        if stats is None:
            return False
        if not is_same_life(stats, item["at"], now):
            return True
        # Counted too early, processes that are about to end would be ended twice, or too many started.
        if self._clock() - self._resized_at.get(worker, -SETTLE_SECONDS) < SETTLE_SECONDS:
            return False
        processes = len(stats["pool"]["processes"])
        if processes < wanted:
            self._resized_at[worker] = self._clock()
            control.ask("pool_grow", {"n": wanted - processes}, [worker])
        elif processes > wanted:
            running = control.ask("active", {}, [worker]).get(worker)
            fewer = 0 if running is None else min(processes - wanted, processes - len(running))
            if fewer > 0:
                self._resized_at[worker] = self._clock()
                control.ask("pool_shrink", {"n": fewer}, [worker])
        return processes == wanted


def is_same_life(stats: Mapping[str, Any], at: float, now: float) -> bool:
    """Return whether the worker was running at that time (seconds since 1970)."""
    uptime = stats.get("uptime")
    return uptime is None or float(uptime) >= now - at - UPTIME_SECONDS


def describe_item(item: Mapping[str, Any]) -> str:
    """Return what was restored, in words."""
    if "pool" in item:
        return f"{item['processes']} processes of {item['pool']}"
    arguments = ", ".join(f"{name}={value}" for name, value in item["arguments"].items())
    return f"{item['method']}({arguments})"


# Kubernetes


class ClusterApi:
    """A Kubernetes API server. token: read anew for each request, because it is rotated."""

    def __init__(self, url: str, token: Path | None = None, authority: Path | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "localhost", parts.port
        self._token = token
        # Without TLS no token is sent.
        self._context = None
        if parts.scheme == "https":
            self._context = ssl.create_default_context(cafile=None if authority is None else str(authority))

    def request(self, method: str, path: str, body: object = None, content_type: str = JSON) -> tuple[int, Any]:
        """Return the status and the document of the answer. Raise OSError if there is none."""
        headers = {"Content-Type": content_type, "Accept": JSON}
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        else:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT_SECONDS, context=self._context
            )
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        try:
            connection.request(method, f"/apis/{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else None


class KubernetesGuard:
    """Watches the autoscalers that Weir holds in one namespace.

    The annotation `weir.io/held` is {by, until, seconds, before}. `before` has the values that the hold replaced.
    """

    def __init__(
        self,
        server: ClusterApi,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        report: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._server, self._namespace, self._clock, self._now, self._report = server, namespace, clock, now, report
        self._unrenewed = UnrenewedLeases()
        self._beat_at = -BEAT_SECONDS

    def step(self) -> None:
        """Send the heartbeat, and release each autoscaler whose lease is due. Raise OSError without an answer."""
        now, known = self._clock(), list[str]()
        if now - self._beat_at >= BEAT_SECONDS:
            self._send_heartbeat()
            self._beat_at = now
        for kind in KINDS:
            for row in self._list(kind):
                name, text = row["metadata"]["name"], (row["metadata"].get("annotations") or {}).get(HELD)
                if not text:
                    continue
                lease = parse_hold(text)
                known.append(f"{kind} {name}")
                if self._unrenewed.has_ended(known[-1], text, read_duration(lease), now):
                    self._release(kind, row, lease)
        self._unrenewed.retain(known)

    def _release(self, kind: str, row: Mapping[str, Any], lease: Mapping[str, Any]) -> None:
        name, changes = row["metadata"]["name"], build_release(kind, lease)
        if version := row["metadata"].get("resourceVersion"):  # refused if Weir has renewed the hold meanwhile
            changes["metadata"]["resourceVersion"] = version
        status, answer = self._server.request("PATCH", self._build_path(KINDS[kind], name), changes, MERGE_PATCH)
        if status != 409:
            check_status(status, answer, f"release {name}")
            self._report(f"{lease.get('by', 'unknown')} did not renew its hold. Released: {kind} {name}.")

    def _list(self, kind: str) -> list[dict[str, Any]]:
        status, answer = self._server.request("GET", self._build_path(KINDS[kind]))
        if status == 404:  # the cluster has no KEDA
            return []
        check_status(status, answer, f"list {KINDS[kind]}")
        return list(answer["items"])

    def _send_heartbeat(self) -> None:
        """Renew the Lease object, or create it."""
        leases = "coordination.k8s.io/v1/leases"
        renewed = f"{self._now():%Y-%m-%dT%H:%M:%S.%fZ}"
        holder = socket.gethostname()[:63]
        spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": SILENT_SECONDS}
        path = self._build_path(leases, BEAT_NAME)
        status, answer = self._server.request("PATCH", path, {"spec": spec}, MERGE_PATCH)
        if status == 404:
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": BEAT_NAME, "namespace": self._namespace},
                "spec": spec,
            }
            status, answer = self._server.request("POST", self._build_path(leases), document)
        check_status(status, answer, "send the heartbeat")

    def _build_path(self, kind: str, name: str = "") -> str:
        group, plural = kind.rsplit("/", 1)
        return f"{group}/namespaces/{self._namespace}/{plural}{f'/{name}' if name else ''}"


def parse_hold(text: str) -> dict[str, Any]:
    """Return Weir's record; {} if it is not readable: the hold then has no former values."""
    try:
        lease = json.loads(text)
    except ValueError:
        return {}
    return lease if isinstance(lease, dict) else {}


def build_release(kind: str, lease: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that restores the former values, and removes Weir's record; None removes a value."""
    before = lease.get("before")
    before = before if isinstance(before, dict) else {}
    if kind == "KEDA":
        return {"metadata": {"annotations": {PAUSED: before.get("paused"), HELD: None}}}
    behavior = {direction: {"selectPolicy": before.get(direction)} for direction in DIRECTIONS}
    return {"metadata": {"annotations": {HELD: None}}, "spec": {"behavior": behavior}}


def check_status(status: int, answer: Any, what: str) -> None:
    """Raise `SystemRefusal` unless the request was executed."""
    if status not in (200, 201):
        message = answer.get("message") if isinstance(answer, dict) else None
        raise SystemRefusal(f"the API server rejected the request to {what} ({status}): {message or 'no reason given'}")


# The program


def say(sentence: str) -> None:
    """Write a line of the log."""
    sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {sentence}\n")
    sys.stdout.flush()


def watch(guard: CeleryGuard | KubernetesGuard, sleep: Callable[[float], None] = time.sleep) -> None:
    """Run until the process is stopped. An error is logged once, until there is another one or none."""
    last = ""
    while True:
        try:
            guard.step()
            problem = ""
        except FAILURES as error:
            problem = f"{type(error).__name__}: {error}"
        if problem != last:
            say(f"Failed, and will be retried: {problem}" if problem else "Working again.")
            last = problem
        sleep(POLL_SECONDS)


def build_guard(arguments: Sequence[str]) -> CeleryGuard | KubernetesGuard:
    """Return the guard that the command line describes."""
    parser = argparse.ArgumentParser(description="Ends what Weir has set once Weir has stopped renewing it.")
    systems = parser.add_subparsers(dest="system", required=True)
    celery = systems.add_parser("celery", help="a Celery app on Redis or Valkey")
    celery.add_argument("url", help="address of the broker, with its database: redis://broker.example:6379/0")
    celery.add_argument("--password-file", type=Path, help="file with the password of the broker")
    celery.add_argument("--prefix", default="", help="prefix of all keys (global_keyprefix)")
    kubernetes = systems.add_parser("kubernetes", help="the autoscalers of a namespace")
    kubernetes.add_argument("--namespace", default="default")
    kubernetes.add_argument("--url", default="https://kubernetes.default.svc", help="address of the API server")
    chosen = parser.parse_args(arguments)
    if chosen.system == "celery":
        password = chosen.password_file.read_text().strip() if chosen.password_file else ""
        server = RedisServer(chosen.url, password)
        return CeleryGuard(server, chosen.prefix, report=say)
    authority = ACCOUNT / "ca.crt"
    api = ClusterApi(chosen.url, ACCOUNT / "token", authority if authority.is_file() else None)
    return KubernetesGuard(api, chosen.namespace, report=say)


if __name__ == "__main__":
    try:
        watch(build_guard(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(0)
