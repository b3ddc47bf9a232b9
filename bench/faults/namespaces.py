"""Network namespaces. The name of each contains the ID of the process that created it: `w{pid}-{host}`."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def end_leftovers() -> None:
    """Remove what a killed process left: its namespaces and bridges (`w{pid}b`), and the processes in them."""
    for space in _list_names("ip", "netns", "list"):
        maker = re.fullmatch(r"w(\d+)-\w+", space)
        if maker is not None and not Path("/proc", maker[1]).exists():
            kill_processes(space)
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
    for bridge in _list_names("ip", "-br", "link", "show", "type", "bridge"):
        maker = re.fullmatch(r"w(\d+)b", bridge)
        if maker is not None and not Path("/proc", maker[1]).exists():
            subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def kill_processes(space: str, spared: str | None = None) -> None:
    """Kill the processes in a namespace. spared: text in the command lines of the processes to keep."""
    listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False).stdout
    for pid in listed.split():
        with suppress(ProcessLookupError, FileNotFoundError):
            if spared is None or spared not in Path("/proc", pid, "cmdline").read_text():
                os.kill(int(pid), signal.SIGKILL)


def _list_names(*command: str) -> list[str]:
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.strip()]
