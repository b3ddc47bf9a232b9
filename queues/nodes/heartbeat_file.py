"""The file by which a container's health check sees that a process goes on: to ask it would cost more than
most of them do. What it is that goes on, each says where it touches the file.
"""

from contextlib import suppress
from pathlib import Path

from queues import environment as variables


def touch() -> None:
    """Say that this process goes on, where WEIR_HEARTBEAT_FILE names a file. A full disk ends nobody."""
    if path := variables.HEARTBEAT_FILE.text():
        with suppress(OSError):
            Path(path).touch()
