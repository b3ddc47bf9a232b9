"""What an idle plant's ledger takes in a day, once it is folded: of a copy of its database."""

import json
import sqlite3
import sys
import tempfile
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path

from django.db import connection
from django.utils import timezone

from bench.plant.running_plant import clean_environment, manage
from workers.control.ledger import folds
from workers.models import LedgerEntry, Loop

DAY_SECONDS, LOOPS = 86_400.0, 8


def bytes_a_day(data: Path, seconds: float) -> float:
    """Of eight loops, by what those of the plant wrote in the last so many seconds."""
    with tempfile.TemporaryDirectory(prefix="weir-idle-") as folder:
        with (
            closing(sqlite3.connect(f"file:{data}/weir.sqlite3?mode=ro", uri=True)) as there,
            closing(sqlite3.connect(f"{folder}/weir.sqlite3")) as copy,
        ):
            there.backup(copy)
        url = f"sqlite:///{folder}/weir.sqlite3"
        environment = {**clean_environment(), "WEIR_DATA": folder, "DATABASE_URL": url}
        code = f"from bench.plant.idle_ledger import measure; measure({seconds})"
        return float(json.loads(manage(environment, "shell", "-v", "0", "-c", code)))


def measure(seconds: float) -> None:
    """Prints it; in a process with the settings of the copy, of which nothing is left as it was."""
    now = timezone.now()
    since = now - timedelta(seconds=seconds)
    LedgerEntry.objects.filter(at__lt=since).delete()
    loops = LedgerEntry.objects.values("loop").distinct().count()
    for loop in Loop.objects.all():
        # What a day holds are whole slots; those of the short time that was watched count as such.
        for _ in folds.fold(loop, since, now + folds.SLOT, nullcontext):
            pass
    folded = _file_bytes()
    LedgerEntry.objects.all().delete()
    sys.stdout.write(json.dumps((folded - _file_bytes()) * DAY_SECONDS / seconds * LOOPS / max(1, loops)))


def _file_bytes() -> int:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        (size,) = cursor.fetchone()
    return int(size)
