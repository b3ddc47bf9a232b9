"""A probe of whether the console answers, in its own thread, so that the observer waits for no page."""

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

EVERY_SECONDS, TIMEOUT_SECONDS = 5.0, 2.0
# An older answer says nothing about now.
KNOWN_SECONDS = 3 * EVERY_SECONDS
SERVER_ERROR = 500
# A proxy of the environment is for remote addresses; it would be used for the local console, too.
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_answering(address: str) -> bool:
    """Return whether a console at this address (http://host:port) answers in time and without a failure."""
    try:
        with _DIRECTLY.open(f"{address}/healthz", timeout=TIMEOUT_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < SERVER_ERROR  # it does not know the name in the request, but it runs
    except (OSError, ValueError, http.client.HTTPException):  # the latter: the answer is not HTTP
        return False


class ConsoleProbe:
    """A periodic probe; `available` is its last result."""

    def __init__(self, ask: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._monotonic = ask, monotonic
        self._found: tuple[float, bool] | None = None

    @classmethod
    def start(cls, address: str) -> "ConsoleProbe | None":
        """Start a probe that runs until the process ends; None without an address."""
        if not address:
            return None
        probe = cls(lambda: is_answering(address.rstrip("/")))
        threading.Thread(target=probe.run, args=(threading.Event(),), name="console-probe", daemon=True).start()
        return probe

    def ask(self) -> None:
        """Probe once."""
        answered = self._ask()
        self._found = self._monotonic(), answered

    def run(self, stop: threading.Event) -> None:
        """Probe until `stop`."""
        while True:
            self.ask()
            if stop.wait(EVERY_SECONDS):
                return

    def compute_availability(self) -> float | None:
        """Return 1 where it answered last, 0 where it did not, None while unknown."""
        if self._found is None or self._monotonic() - self._found[0] > KNOWN_SECONDS:
            return None
        return float(self._found[1])
