"""Callables that the python handler is pointed at in tests."""

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

from workers.consumer.handler import Delivery, Failure, Outcome

NOT_CALLABLE = 3


def ignore(events: list[dict[str, Any]]) -> None:
    """Handles everything."""


def raise_on_odd(events: list[dict[str, Any]]) -> None:
    odd = [event["value"] for event in events if event["value"] % 2]
    if odd:
        raise ValueError(f"odd: {odd[0]}")


def refuse_odd(events: list[dict[str, Any]]) -> Outcome | None:
    """Says what failed, in place of raising."""
    odd = [event["value"] for event in events if event["value"] % 2]
    return Outcome(failures=(Failure(0, f"odd: {odd[0]}"),)) if odd else None


def refuse_odd_block(delivery: Delivery) -> Outcome | None:
    return refuse_odd(list(delivery.collect_rows()))


def hang() -> None:
    """Hang until the time limit, which comes at once however long it is: a test waits for none."""
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(600)


def hang_on_13(events: list[dict[str, Any]]) -> None:
    if any(event["value"] == 13.0 for event in events):
        hang()


def sleep_deaf(events: list[dict[str, Any]]) -> None:
    """Hangs where no signal is heard."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGUSR1})
    time.sleep(600)


def die_on_13(events: list[dict[str, Any]]) -> None:
    if any(event["value"] == 13.0 for event in events):
        os.kill(os.getpid(), signal.SIGKILL)


def keep_then_die_once(events: list[dict[str, Any]]) -> None:
    """Has its effect, and is killed before anybody learns of it; the second time it lives."""
    folder = Path(os.environ["WEIR_DATA"])
    with sqlite3.connect(folder / "kept.sqlite3") as database:
        database.execute("CREATE TABLE IF NOT EXISTS kept (id TEXT PRIMARY KEY)")
        database.executemany("INSERT OR IGNORE INTO kept VALUES (?)", [(event["id"],) for event in events])
    database.close()
    mark = folder / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def note_source(events: list[dict[str, Any]]) -> None:
    """Writes down whose events it was given, in the order it was."""
    with (Path(os.environ["WEIR_DATA"]) / "order").open("a") as order:
        order.write(f"{events[0]['source']}\n")
