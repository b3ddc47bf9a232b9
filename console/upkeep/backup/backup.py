"""Creating a backup, and restoring a plant from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from django.db import connection, transaction
from django.utils import timezone

from common import environment as variables
from common.errors import BadInput, WeirError
from common.files import create_private_folder, resolve_inside_folder, write_inside, write_private
from console.audit import witness
from console.embedded.local import RESTORING
from console.upkeep.backup import archive, database, files, servers
from console.upkeep.backup.rest import AGAIN, QuiesceFailed, Rest, count_all, find_differences
from queues import projection
from queues.models import Node
from workers.models import Override
from workers.steering import enforcing

Connect = Callable[[str], redis.Redis]


def make(path: Path, data: Path, control: redis.Redis, connect: Connect, rest: Rest) -> dict[str, Any]:
    """Back up a paused plant; return the contents. `connect`: returns a node's client, by its URL.

    Raises BadInput, QuiesceFailed, redis.RedisError, OSError; then there is no file.
    """
    if not database.is_complete():
        raise BadInput("FILE", "can't be created: the database schema is out of date. Run manage.py migrate first.")
    modified: dict[str, float] = {}
    manifest: dict[str, Any] = {
        "made_at": timezone.now().isoformat(),
        "database": connection.vendor,
        "migrations": database.list_applied(),
        "nodes": sorted(Node.objects.values_list("name", flat=True)),
        "pauses": [pause.pk for pause in rest.pauses],
        # Retention depends on how long ago a file was written; so do roll-ups.
        "modified": modified,
    }
    with archive.write_backup(path, manifest) as writer:
        before = count_all(control, connect)
        # The nodes first: what is published in the meantime is in none of the parts.
        for node in Node.objects.order_by("name"):
            writer.write_lines(
                f"nodes/{node.name}", servers.export_lines(connect(node.get_primary_url()), on_nodes=True)
            )
        # The audit log grows in the meantime. Its recorded length precedes its rows, which may be more.
        heads = data / witness.FILE
        writer.write_lines("control", servers.export_lines(control, on_nodes=False))
        if heads.exists():
            writer.write_pieces(f"files/{witness.FILE}", files.read_content(heads))
        with _hold_database_state():
            for model in database.list_models():
                writer.write_lines(f"database/{model._meta.label_lower}", database.encode_rows(model))
        for inside in files.list_files(data, without=(path, archive.build_partial_path(path), heads)):
            written_at = (data / inside).stat().st_mtime
            writer.write_pieces(f"files/{inside.as_posix()}", files.read_content(data / inside))
            modified[inside.as_posix()] = written_at
        # Within the block: if the plant was not at rest there is no file.
        rest.check()
        if changed := find_differences(before, count_all(control, connect)):
            raise QuiesceFailed(f"Blocks of {changed[0]} were processed or moved during the copy. {AGAIN}")
    return {**manifest, "members": len(writer.members), "bytes": path.stat().st_size}


@contextmanager
def _hold_database_state() -> Iterator[None]:
    """Read from one state within the block, without blocking writers."""
    if connection.vendor == "postgresql":
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
        return
    # Our transactions on SQLite start with its write lock (settings: IMMEDIATE), which the rows of a long
    # ledger would hold for minutes. A read-only one sees one state without it.
    sqlite: Any = connection
    sqlite.ensure_connection()
    mode, sqlite.transaction_mode = sqlite.transaction_mode, "DEFERRED"
    try:
        with transaction.atomic():
            yield
    finally:
        sqlite.transaction_mode = mode


def check(backup: archive.Backup, data: Path, control: redis.Redis, urls: dict[str, str], connect: Connect) -> None:
    """Check whether it can be restored here. Raises `BadInput`; nothing was changed."""
    database.check_known(map(tuple, backup.manifest["migrations"]))
    if missing := sorted(set(backup.manifest["nodes"]) - set(urls)):
        raise BadInput(variables.NODES.name, f"must list all nodes of the backup. Node {missing[0]} is missing.")
    for name in ("", *backup.manifest["nodes"]):
        server = connect(urls[name]) if name else control
        patterns = servers.list_key_patterns(on_nodes=bool(name))
        if any(next(server.scan_iter(pattern, 1_000), None) for pattern in patterns):
            where = f"node {name}" if name else "the control server"
            raise BadInput("FILE", f"can't be restored: {where} contains data. Use an empty server.")
    if _has_rows():
        raise BadInput("FILE", "can't be restored: the database has entries. Use an empty database.")
    if older := files.list_leftovers(data, without=(backup.path,)):
        # A later checkpoint, or the log of another database, would be taken for the backup's.
        raise BadInput(
            "FILE",
            f"can't be restored: {data} contains data of another plant ({older[0]}). "
            "Use an empty folder, or move everything except secret-key and backups/ out of it.",
        )
    for inside in _list_kept_files(backup):
        resolve_inside_folder(data, inside, "FILE")


def _has_rows() -> bool:
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        for table in ("console_auditentry", "workers_ledgerentry", "workers_override"):
            if table in tables:
                cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
                if cursor.fetchone():
                    return True
    return False


def restore(
    backup: archive.Backup, data: Path, control: redis.Redis, urls: dict[str, str], connect: Connect
) -> dict[str, Any]:
    """Restore an empty plant; return how much was restored.

    Raises `BadInput` before anything is changed (`check`).

    If it is killed midway it leaves a partial plant, which no start accepts as complete.
    """
    check(backup, data, control, urls, connect)
    create_private_folder(data)
    write_private(data / RESTORING, "")
    rows = _restore_database(backup)
    # The copied plant was paused; this one need not be.
    Override.objects.filter(pk__in=backup.manifest["pauses"], ended_at=None).update(ended_at=timezone.now())
    for name in backup.manifest["nodes"]:
        Node.objects.filter(name=name).update(url=urls[name])
    members = {
        name: servers.load_node(connect(urls[name]), backup.read_lines(f"nodes/{name}"))
        for name in backup.list_members("nodes")
    }
    members["control"] = servers.load(control, backup.read_lines("control"))
    kept = _list_kept_files(backup)
    for inside in kept:
        # A backup of an older version has no times.
        changed_at = backup.manifest.get("modified", {}).get(inside)
        pieces, is_key = backup.read_pieces(f"files/{inside}"), inside == files.SIGNING_KEY
        try:
            write_inside(data, inside, pieces, "FILE", replace=is_key, changed_at=changed_at)
        except BadInput as error:
            raise WeirError(str(error)) from None  # not BadInput: rows and keys were written before
    projection.project(control, enforcing.get_node_thresholds(timezone.now()))
    (data / RESTORING).unlink()
    return {"rows": rows, "keys": members, "files": len(kept), "made_at": backup.manifest["made_at"]}


def _restore_database(backup: archive.Backup) -> int:
    models_then = database.migrate_to(map(tuple, backup.manifest["migrations"]))
    tables = [
        model
        for model in database.list_models(models_then)
        if model._meta.label_lower in backup.list_members("database")
    ]
    with transaction.atomic():
        database.protect(False)
        database.clear(tables)
        database.protect(True)
        count = sum(database.load(model, backup.read_lines(f"database/{model._meta.label_lower}")) for model in tables)
        database.count_on(tables)
    database.migrate_forward()
    return count


def _list_kept_files(backup: archive.Backup) -> list[str]:
    """Return the files that a backup keeps today.

    An older or a forged one may contain more, such as the folder from which Spark runs Python.
    """
    return [inside for inside in backup.list_members("files") if files.is_kept(Path(inside))]
