"""`manage.py restore FILE`: restores a backup to an empty plant."""

import os
import sys
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from common import environment as variables
from common.errors import BadInput, WeirError
from common.files import write_private
from console.accounts.access import Actor
from console.audit import audit_log
from console.connections.control_server import control
from console.management.document import JsonCommand
from console.upkeep.backup import archive, backup
from console.upkeep.backup.files import SIGNING_KEY
from queues.nodes.addresses import parse_nodes
from workers.coordination.connections import create_connection

# Errors of missing or damaged data; a member that does not exist raises a ValueError or a LookupError.
FAULTS = (redis.RedisError, DatabaseError, InterfaceError, OSError, ValidationError, WeirError, ValueError, LookupError)


class Command(JsonCommand):
    help = "Restore a backup to an empty database, empty servers, and an empty data folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("FILE", type=Path, help="a file made by manage.py backup")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        urls = parse_nodes(variables.NODES.get_text())
        server = control()
        with archive.open_backup(options["FILE"]) as opened:
            try:
                backup.check(opened, settings.WEIR_DATA, server, urls, create_connection)
            except BadInput:
                raise
            except FAULTS as error:
                why = str(error).rstrip(".")
                raise CommandError(f"The plant was not restored, and nothing was changed: {why}.") from None
            try:
                take_signing_key(opened, settings.WEIR_DATA)
                done = backup.restore(opened, settings.WEIR_DATA, server, urls, create_connection)
            except BadInput:
                raise  # before anything was changed
            except FAULTS as error:
                remedy = "Empty the data folder, the database, and the servers, then try again."
                raise CommandError(f"The plant was not restored: {error}. {remedy}") from None
        # The audit log has no entries from the backup until now: this entry has the period.
        actor, after = Actor(name="manage.py", role=None), {"made_at": done["made_at"]}
        audit_log.record(actor, "backup.restored", "plant", after=after)
        return done


def take_signing_key(backup: archive.Backup, data: Path) -> None:
    """Verify what was signed with the backup's key by that key: with another one the process starts again.

    A plant whose key is in the environment has it there.
    """
    if variables.SECRET_KEY.is_set() or SIGNING_KEY not in backup.list_members("files"):
        return
    key, file = b"".join(backup.read_pieces(f"files/{SIGNING_KEY}")).decode(), data / SIGNING_KEY
    if file.exists() and file.read_text() == key:
        return
    write_private(file, key)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv])
