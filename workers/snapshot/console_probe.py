"""Whether the console answers, asked from a thread of its own: who watches the plant waits for no page."""

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

EVERY_SECONDS, TIMEOUT_SECONDS = 5.0, 2.0
# What was answered longer ago says nothing of now.
KNOWN_SECONDS = 3 * EVERY_SECONDS
SERVER_ERROR = 500
# A proxy of the environment is for what is far away; it would be asked for the console next door, too.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(address: str) -> bool:
    """Whether a console at this address (http://host:port) answers in time, and not that it fails."""
    try:
        with _DIRECTLY.open(f"{address}/healthz", timeout=TIMEOUT_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < SERVER_ERROR  # it does not know the name that it is asked by, and it is there
    except (OSError, ValueError, http.client.HTTPException):  # the last: what answers speaks no HTTP
        return False


class ConsoleProbe:
    """Asks now and then; `available` is what came of it last."""

    def __init__(self, ask: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._found: tuple[float, bool] | None = None

    @classmethod
    def start(cls, address: str) -> "ConsoleProbe | None":
        """One that asks until the process ends; None for no address: nobody knows then."""
        if not address:
            return None
        probe = cls(lambda: answers(address.rstrip("/")))
        threading.Thread(
            target=probe.run, args=(threading.Event(),), name="console-probe", daemon=True
        ).start()
        return probe

    def ask(self) -> None:
        """Once."""
        found = self._ask()
        self._found = self._monotonic(), found

    def run(self, stop: threading.Event) -> None:
        """Until `stop`."""
        while True:
            self.ask()
            if stop.wait(EVERY_SECONDS):
                return

    def available(self) -> float | None:
        """1 where it answered last, 0 where it did not; None while that is not known."""
        if self._found is None or self._monotonic() - self._found[0] > KNOWN_SECONDS:
            return None
        return float(self._found[1])
