"""A support bundle: what helps to diagnose an installation, as one ZIP without secrets and without events.

It may contain user names. Each part is made separately; parts that fail, and unreadable logs, are listed in
`left-out.json`, with the cause.
"""

import errno
import os
import platform
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import orjson
import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from common import environment as variables
from common.stored_document import convert_to_plain
from console import release
from console.connections.control_server import control
from console.connections.log_text import HIDDEN, MIN_WORD_LENGTH, end_of, mask_secrets, mask_words
from console.embedded.local import EmbeddedServers
from console.upkeep.backup.archive import build_partial_path, create_file
from console.upkeep.doctor import FAULTS, report
from queues import keys
from queues.topology import Topology
from workers.alerts.lifecycle.open_alerts import open_alerts
from workers.coordination.connections import create_connection
from workers.models import LedgerEntry, Setting

LOG_BYTES = 512 * 1024  # of each log, the newest
LEDGER_ENTRIES = 500
SERVER_FACTS = (
    "redis_version",
    "valkey_version",
    "uptime_in_seconds",
    "used_memory",
    "maxmemory",
    "maxmemory_policy",
    "connected_clients",
    "aof_enabled",
    "aof_last_write_status",
    "rdb_last_bgsave_status",
    "evicted_keys",
)


def collect_versions() -> dict[str, object]:
    """Return versions of Weir, Python, this host, every package, the database, and its tables."""
    newest: dict[str, str] = {}
    for app, name in sorted(MigrationRecorder(connection).applied_migrations()):
        newest[app] = max(name, newest.get(app, ""))
    return {
        "weir": release.read_version(),
        "python": sys.version,
        "host": platform.platform(),
        "database": [connection.vendor, *map(str, connection.get_database_version())],
        "migrations": newest,
        "packages": {distribution.metadata["Name"]: distribution.version for distribution in distributions()},
    }


def collect_environment() -> dict[str, object]:
    """Return the variables that are set, without values of secrets, and the settings that differ from the default."""
    values = {
        variable.name: HIDDEN if variable.secret else variable.get_text()
        for variable in variables.DECLARED
        if variable.is_set()
    }
    return {"variables": values, "settings": dict(Setting.objects.values_list("name", "value"))}


def collect_server_facts() -> dict[str, Any]:
    """Return what the control server and each node report about themselves."""
    facts = {"control": _read_server_facts(control())}
    stored = control().get(keys.TOPOLOGY)
    topology = Topology.from_json(stored) if stored else None
    for name, node in (topology.nodes if topology else {}).items():
        try:
            facts[name] = _read_server_facts(create_connection(node.url))
        except FAULTS as error:
            facts[name] = {"error": str(error)}
    return facts


def _read_server_facts(server: redis.Redis) -> dict[str, Any]:
    said = server.info()
    return {name: said[name] for name in SERVER_FACTS if name in said}


def load_stored_snapshot() -> object:
    """Return the newest snapshot, as the pages show it: states, rates, loops, overrides, findings."""
    stored = control().get(keys.SNAPSHOT)
    return orjson.loads(stored) if stored else {}


def list_decisions() -> list[dict[str, object]]:
    """Return the newest entries of the ledger, the newest first."""
    wanted = ["at", "loop__name", "mode", "action", "applied", "reason", "limited_by", "verdict", "error", "code"]
    return list(LedgerEntry.objects.order_by("-id").values(*wanted)[:LEDGER_ENTRIES])


PARTS: Mapping[str, Callable[[], object]] = {
    "doctor": report,
    "versions": collect_versions,
    "environment": collect_environment,
    "servers": collect_server_facts,
    "snapshot": load_stored_snapshot,
    "decisions": list_decisions,
    "alerts": lambda: [convert_to_plain(alert) for alert in open_alerts()],
}


def make(path: Path) -> dict[str, object]:
    """Write the file, for its owner alone; return what it contains, and what was left out.

    If it can't be written nothing remains. Raises `OSError`.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    part = build_partial_path(path)
    opened = create_file(part)
    made: list[str] = []
    left_out: dict[str, str] = {}  # what is missing, and why
    try:
        with os.fdopen(opened, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
            for name, text in _iterate_texts(left_out):
                target.writestr(name, clean(text))
                made.append(name)
            target.writestr("left-out.json", orjson.dumps(left_out, option=orjson.OPT_INDENT_2))
            made.append("left-out.json")
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return {"file": str(path), "made_at": timezone.now().isoformat(), "parts": made, "left_out": left_out}


def _iterate_texts(left_out: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each part and log; failed or unreadable ones are added to `left_out`."""
    for name, part in PARTS.items():
        try:
            text = orjson.dumps(part(), default=str, option=orjson.OPT_INDENT_2).decode()
        except (*FAULTS, TypeError, LookupError) as error:
            left_out[name] = clean(str(error))
        else:
            yield f"{name}.json", text
    for log in sorted((settings.WEIR_DATA / "logs").glob("*.log")):
        try:
            text = end_of(log, LOG_BYTES)  # not readable for us, or rotated in the meantime: an OSError
        except OSError as error:
            left_out[f"logs/{log.name}"] = clean(str(error))
        else:
            yield f"logs/{log.name}", text


def clean(text: str) -> str:
    """Return the text without secrets: those of the environment, of this folder, and what looks like one."""
    words = [EmbeddedServers(settings.WEIR_DATA).password, settings.SECRET_KEY]
    first = settings.WEIR_DATA / "first-login"
    words += first.read_text().split()[1:] if first.exists() else []
    return mask_secrets(mask_words(text, [word for word in words if len(word) >= MIN_WORD_LENGTH]))
