"""`manage.py backup FILE`: the whole plant as one file. It pauses for some seconds: events wait."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from common.errors import BadInput, WeirError
from common.files import create_private_folder
from common.parsing import parse_option_number
from console.accounts.access import Actor
from console.audit import audit_log
from console.connections.control_server import control
from console.management.document import JsonCommand
from console.upkeep.backup import archive, backup
from console.upkeep.backup.rest import MAX_SECONDS, quiesce
from workers.coordination.connections import create_connection

FOLDER = "backups"  # in the data folder; no backup contains it
ENDING = (signal.SIGTERM, signal.SIGHUP)  # a shutdown, a closed terminal


class Command(JsonCommand):
    help = "Back up the plant: database, queues with their events, pipeline, archive, audit log."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("FILE", type=Path, help="target file; it contains secrets, and only you can read it")
        parser.add_argument("--by", default="admin", help="user who sets the pauses (default admin)")
        parser.add_argument(
            "--longest",
            type=parse_option_number,
            default=MAX_SECONDS,
            help="maximum seconds to wait until the plant is idle",
        )

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        by = User.objects.filter(username=options["by"], is_active=True).first()
        if by is None:
            raise BadInput("--by", f"{options['by']} is not an active user. Name an administrator.")
        server, path = control(), options["FILE"].absolute()
        if path.parent == settings.WEIR_DATA.absolute() / FOLDER:
            create_private_folder(path.parent)
        archive.check_free(path)  # before the plant is paused for it
        try:
            with end_gracefully(), quiesce(server, settings.WEIR_DATA, by, options["longest"]) as rest:
                made = backup.make(path, settings.WEIR_DATA, server, create_connection, rest)
        except BadInput:
            raise
        except (WeirError, redis.RedisError, DatabaseError, InterfaceError, OSError) as error:
            raise CommandError(f"No backup was made. {error}") from None
        audit_log.record(Actor(name=by.username, role=None), "backup.made", "plant", after={"bytes": made["bytes"]})
        return {"file": str(path), "bytes": made["bytes"], "made_at": made["made_at"], "nodes": made["nodes"]}


@contextmanager
def end_gracefully() -> Iterator[None]:
    """End the block when the process is asked to end: pauses end, and the incomplete file is deleted."""

    def end(number: int, _: object) -> None:
        for signal_number in ENDING:
            signal.signal(signal_number, signal.SIG_IGN)  # asked a second time, it must still end its pauses
        raise SystemExit(128 + number)

    before = {signal_number: signal.getsignal(signal_number) for signal_number in ENDING}
    for signal_number, handler in before.items():
        if handler != signal.SIG_IGN:  # as with nohup
            signal.signal(signal_number, end)
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
