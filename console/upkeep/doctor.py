"""The problems of an installation, with remedies: a table of checks, each a function of its own.

A check reads and changes nothing. Servers only get INFO and TIME, which every role but the health checks' may use
(`queues.nodes.server_roles`). Error texts pass through `without_secrets`.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from common import environment as variables
from common.errors import WeirError
from common.files import OTHERS
from console.audit.check import Checker
from console.connections.control_server import control, load_latest_snapshot
from console.connections.log_text import mask_secrets
from console.embedded.seeding import FIRST_LOGIN
from console.pages.health import readiness
from console.storage.append_only import TABLE
from console.storage.migrations import list_newer_migrations
from controllers.framework.reason import capitalize
from queues import keys
from queues.control.address import parse_sentinels
from queues.control.connection import COPIES
from queues.nodes.node_state import SILENT
from queues.topology import Topology
from workers.coordination.connections import create_connection
from workers.host.spark import find_java_home
from workers.pool.orders import is_at_work, list_unreadable_reports, read_host_reports
from workers.snapshot.judgement import MAX_CLOCK_SECONDS

OLDEST_SERVER = (7, 0)
REPLICA = re.compile(r"slave\d+")  # as INFO calls it
MIN_FREE_SHARE, WARNED_FREE_SHARE = 0.02, 0.1
WARNED_MEMORY_SHARE = 0.9
MIN_SECRET, MIN_CHARACTERS = 12, 5
AUDIT_SECONDS = 20.0
# Errors after which a check reports that it could not be made.
FAULTS = (DatabaseError, redis.RedisError, WeirError, OSError, ValueError)


@dataclass(frozen=True)
class Symptom:
    """A symptom that a check found.

    severity: an error is a problem now, a warning will become one. subject: a node, a host, a variable, or "".
    """

    severity: Literal["error", "warning"]
    text: str
    remedy: str
    subject: str = ""


Check = Callable[[], Iterator[Symptom]]


def check_java() -> Iterator[Symptom]:
    """Check Java. The bundled runtime's shim is written to a temporary folder: a check leaves nothing behind."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            find_java_home(variables.PROCESS, Path(folder) / "java")
    except WeirError as error:
        yield Symptom("error", f"Spark can't find Java: {error}", "Install Java 17, or set JAVA_HOME.")


def check_secrets() -> Iterator[Symptom]:
    """Check the strength of secrets; those in addresses are left to their servers."""
    for variable in variables.DECLARED:
        # Only the audit's key is a list; the words of a passphrase may be short.
        keyed = (
            variable.get_words()
            if variable is variables.AUDIT_KEY
            else [variable.get_text()]
            if variable.is_set()
            else []
        )
        for word in keyed if variable.secret and "://" not in variable.get_text() else ():
            if len(word) < MIN_SECRET or len(set(word)) < MIN_CHARACTERS:
                text = f"{variable.name} is easy to guess."
                yield Symptom("error", text, "Set a new value; bin/compose-secrets generates secrets.", variable.name)
    if (settings.WEIR_DATA / FIRST_LOGIN).exists():
        text = "The first administrator's password is still in a file of the data folder."
        yield Symptom("warning", text, "Log in and change the password.")


def check_message_links() -> Iterator[Symptom]:
    """Check that links in messages point to the console, and not to the reader's own host."""
    if variables.PRODUCTION.is_on() and not variables.PUBLIC_URL.is_set():
        name, default = variables.PUBLIC_URL.name, variables.PUBLIC_URL.default
        text = f"{name} is not set: links in messages point to {default}."
        yield Symptom("warning", text, "Set it to the console's public address, for web and alerter.", name)


def check_data_folder() -> Iterator[Symptom]:
    """Check its permissions, and the space on its disk."""
    folder = settings.WEIR_DATA
    for path in (folder, folder / "secret-key", folder / "weir.sqlite3"):
        if path.exists() and path.stat().st_mode & OTHERS:
            remedy = f"chmod {'700' if path.is_dir() else '600'} {path}"
            yield Symptom("error", f"Other users of this host can access {path}.", remedy, path.name)
    disk = shutil.disk_usage(folder)
    free = disk.free / disk.total
    if free < WARNED_FREE_SHARE:
        text = f"Only {100 * free:.0f} % of the disk of {folder} is free."
        remedy = "Free some space, or shorten the retention (Settings, Retention)."
        yield Symptom("error" if free < MIN_FREE_SHARE else "warning", text, remedy)


def check_database() -> Iterator[Symptom]:
    """Check that it answers, has all migrations, and (PostgreSQL) a role that owns nothing."""
    if newer := list_newer_migrations():
        text = f"The database is from a newer version of Weir: it has {newer[0]}."
        yield Symptom("error", text, "Install that version, or restore a backup of this one.")
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        text = f"Missing migrations: {len(missing)}, the first is {missing[0][0]}."
        yield Symptom("error", text, "Run manage.py migrate.")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableowner = current_user FROM pg_tables WHERE tablename = %s", [TABLE])
            row = cursor.fetchone()
        if row and row[0]:
            text = "The console connects as the owner of its tables: it could drop the audit log's triggers."
            yield Symptom(
                "warning", text, ("Run manage.py database_roles, and give the console the role that it creates.")
            )


def control_server() -> Iterator[Symptom]:
    """Check version, persistence, memory, and clock, as for each node."""
    yield from _check_server("the control server", control())


def check_nodes() -> Iterator[Symptom]:
    """Check each node. Raises `BadTopology` for a node list that contains a name twice."""
    for node in Topology.from_json(control().get(keys.TOPOLOGY)).nodes.values():
        try:
            yield from _check_server(f"node {node.name}", create_connection(node.url))
        except redis.RedisError as error:
            text = f"Node {node.name} is not responding: {error}"
            yield Symptom("error", text, "Start it; check its URL, and WEIR_NODE_LOGIN.", f"node {node.name}")


def check_node_agents() -> Iterator[Symptom]:
    """Check each node's agent; its server may answer without it.

    Without its agent nobody sees what waits on it, and it gets no events. The snapshot counts while an observer runs.
    """
    if readiness.check_parts(timezone.now())["observer"].ok:
        seen = load_latest_snapshot()
        for name, node in sorted(seen.nodes.items() if seen else ()):
            if node.state in SILENT:
                age = "" if node.age_seconds is None else f" for {node.age_seconds:.0f} s"
                remedy = f"Start it: python -m queues.nodes.agent {name}. Check its REDIS_URL and its clock."
                yield Symptom("error", (f"The agent of node {name} has not reported{age}."), remedy, f"node {name}")


def _check_server(name: str, client: redis.Redis) -> Iterator[Symptom]:
    """Check the control server or a node. Raises `redis.RedisError`."""
    about: Mapping[str, object] = client.info("all")
    version = str(about.get("valkey_version") or about["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        yield Symptom(
            "error", f"{capitalize(name)} runs version {version}.", "Install Valkey or Redis 7 or newer.", name
        )
    if not about.get("aof_enabled"):
        text = f"{capitalize(name)} has no append-only file: acknowledged writes can be lost when it stops."
        yield Symptom("error", text, "Start it with appendonly yes.", name)
    elif about.get("aof_last_write_status", "ok") != "ok":
        text = f"{capitalize(name)} can't write its append-only file. It rejects all writes."
        yield Symptom("error", text, "Check whether the disk of its folder is full or missing.", name)
    if about.get("rdb_last_bgsave_status", "ok") != "ok":
        text = (
            f"{capitalize(name)} failed to write its last snapshot (RDB); "
            "while snapshots are enabled, it rejects all writes."
        )
        remedy = 'Start it with save "": the append-only file is sufficient. Check the disk of its folder.'
        yield Symptom("error", text, remedy, name)
    yield from _check_memory_limit(name, about)
    # The server's clock compared with this host's at the middle of the query.
    asked = time.time()
    seconds, microseconds = client.time()
    yield from clock(name, float(seconds + microseconds / 1e6 - (asked + time.time()) / 2))


def _check_memory_limit(name: str, about: Mapping[str, Any]) -> Iterator[Symptom]:
    """Check its memory limit, how near it is, and what happens at the limit."""
    policy = about.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        text = f"{capitalize(name)} drops keys when its memory is full (maxmemory-policy {policy})."
        yield Symptom("error", text, "Start it with maxmemory-policy noeviction.", name)
    if not about.get("maxmemory"):
        text = f"{capitalize(name)} has no memory limit: the system may kill it when memory runs out."
        yield Symptom("warning", text, "Start it with a maxmemory below its host's memory.", name)
        return
    # As the server itself calculates it: without the buffers of replicas and of its file.
    used = (about["used_memory"] - about.get("mem_not_counted_for_evict", 0)) / about["maxmemory"]
    remedy = "Process its backlog, or start it with a larger maxmemory."
    if used >= 1:
        yield Symptom("error", f"The memory of {name} is full: {name} rejects all writes.", remedy, name)
    elif used >= WARNED_MEMORY_SHARE:
        yield Symptom("warning", f"{100 * used:.0f} % of the memory of {name} is used.", remedy, name)


def clock(name: str, ahead_seconds: float, reference: str = "this host") -> Iterator[Symptom]:
    """Check for a clock that is off by more than MAX_CLOCK_SECONDS."""
    if abs(ahead_seconds) > MAX_CLOCK_SECONDS:
        where = "ahead of" if ahead_seconds > 0 else "behind"
        text = f"The clock of {name} is {abs(ahead_seconds):.0f} s {where} that of {reference}."
        yield Symptom("error", text, "Synchronize both hosts with NTP (chrony, timesyncd).", name)


def check_worker_clocks() -> Iterator[Symptom]:
    """Check the clock of each host that reports, as it compared it with the control server's."""
    seconds, _ = control().time()
    for name, reason in list_unreadable_reports(control()).items():
        text = f"The report of worker host {name} can't be read ({reason})."
        yield Symptom("error", text, "Run it with the same version of Weir as the console.", name)
    for name, report in read_host_reports(control()).items():
        if is_at_work(report, seconds):
            yield from clock(f"worker host {name}", report.ahead_seconds or 0.0, "the control server")


def fail_over() -> Iterator[Symptom]:
    """Check a control server with sentinels: replicas follow it, sentinels answer, REDIS_URL names all."""
    sentinels = parse_sentinels(settings.REDIS_URL)
    if sentinels is None:
        return
    about = control().info("replication").items()
    online = [row for name, row in about if REPLICA.fullmatch(name) and row["state"] == "online"]
    if len(online) < COPIES:
        text = "No replica follows the control server: writes that need two copies are rejected."
        yield Symptom("error", text, "Start the replicas; check masteruser and masterauth.", "control server")
    elif len(online) == COPIES:
        text = f"Only {COPIES} replica follows the control server. If it fails, all writes are rejected."
        yield Symptom("warning", text, "Start the missing server.", "control server")
    most = 0
    for host, port in sentinels.hosts:
        try:
            with redis.Redis(host, port, **sentinels.sentinel_options) as sentinel:
                asked: Any = sentinel  # redis-py types a client's answers as either form
                most = max(most, asked.sentinel_master(sentinels.name)["num-other-sentinels"] + 1)
        except redis.RedisError as error:
            text = f"The sentinel at {host}:{port} is not responding: {error}"
            yield Symptom("warning", text, "Start it: a failover needs a majority of them.", f"{host}:{port}")
    if most > len(sentinels.hosts):
        # A majority of those that are named may be a minority of those that exist, which elected another primary.
        text = f"REDIS_URL lists {len(sentinels.hosts)} of {most} sentinels."
        yield Symptom(
            "error", text, ("List all sentinels in the REDIS_URL of every process."), variables.REDIS_URL.name
        )


def check_processes() -> Iterator[Symptom]:
    """Check observer, workers, beat, alerter, and pipeline, as /readyz has them; beat by the loops that it ticks."""
    for name, part in readiness.check_parts(timezone.now()).items():
        if not part.ok and name not in ("database", "control", "nodes"):
            remedy = "Read the last lines of its log (Processes), and restart it."
            yield Symptom("error", f"{name}: {part.message}", remedy, name)


def audit() -> Iterator[Symptom]:
    """Check whether the chain is intact, as far as AUDIT_SECONDS permit."""
    verdict = Checker(settings.WEIR_DATA, AUDIT_SECONDS).step()
    for finding in verdict.findings[:3]:
        yield Symptom("error", finding.text, "Run manage.py audit verify; see docs/operate/alerts/audit-altered.md")
    if verdict.unchecked:
        text = f"{verdict.unchecked} entries of the audit log were not checked within {AUDIT_SECONDS:.0f} s."
        yield Symptom("warning", text, "Run manage.py audit verify to check all entries.")


# Check, and the remedy if it can't be made.
CHECKS: Mapping[str, tuple[Check, str]] = {
    "java": (check_java, ""),
    "secrets": (check_secrets, ""),
    "links": (check_message_links, ""),
    "data folder": (check_data_folder, "Set WEIR_DATA to a folder that this user owns."),
    "database": (check_database, "Start the database; check DATABASE_URL."),
    "control server": (control_server, "Start it; check REDIS_URL, its user and password."),
    "fail-over": (fail_over, "Start the sentinels and the control server; check REDIS_URL."),
    "nodes": (check_nodes, "Fix the topology with manage.py seed or under Settings."),
    "agents": (check_node_agents, "Start the database and the control server first."),
    "worker hosts": (check_worker_clocks, "Start the control server; check REDIS_URL."),
    "processes": (check_processes, "Start the database and the control server first."),
    "audit": (audit, "Start the database first."),
}


def report() -> dict[str, object]:
    """Return every symptom, errors first: {ok, checks, symptoms}. With only warnings an installation is ok."""
    symptoms = [
        {
            "check": name,
            "severity": symptom.severity,
            "subject": symptom.subject,
            "text": mask_secrets(" ".join(symptom.text.split())),
            "remedy": symptom.remedy,
        }
        for name, (check, remedy) in CHECKS.items()
        for symptom in _run_check(name, check, remedy)
    ]
    symptoms.sort(key=lambda row: row["severity"])
    return {"ok": all(row["severity"] != "error" for row in symptoms), "checks": list(CHECKS), "symptoms": symptoms}


def _run_check(name: str, check: Check, remedy: str) -> Iterator[Symptom]:
    try:
        yield from check()
    except FAULTS as error:
        yield Symptom("error", f"{name} can't be checked: {error}", remedy)
