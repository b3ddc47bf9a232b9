"""Signals to the processes of a plant, and to their children."""

import signal
from collections.abc import Sequence
from contextlib import suppress

import psutil


def list_family(pid: int | None) -> list[psutil.Process]:
    """Return a process and everything that it started; empty if it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send_signal(family: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to processes. Those that have ended are skipped."""
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
