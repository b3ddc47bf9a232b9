"""The declarations that the pipeline process runs, and the orders that people give for its applications.

| key | type | holds |
|---|---|---|
| `weir:pipeline:wanted` | hash | application → {"version", "text"}: the console writes it |
| `weir:pipeline:at-work` | hash | application → {"version", "text", "refused"}: the process writes it |
| `weir:pipeline:shipped` | hash | application → its text in the process's own file |
| `weir:pipeline:orders` | hash | application → {stopped, restart, by, reason, at}: the console writes it |

A stored declaration takes precedence over one of the same name in the file. `refused` says why a requested version was
rejected; the previous version keeps running in the meantime. A process that starts finds the orders.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import redis

from common.stored_document import BadDocument, decode_document, encode_document, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from workers.documents.pipeline import ApplicationAtWork, PipelineOrder

OF_FILE = 0  # version of the declaration that the process was started with


@dataclass(frozen=True)
class DeclarationText:
    """The text of a declaration. version: OF_FILE, or the version number in the console."""

    name: str
    version: int
    text: str


class Declarations:
    """Reads and writes the keys above. file: the declaration of the process."""

    def __init__(self, control: redis.Redis, file: DeclarationText | None = None) -> None:
        self._control, self._file = control, file

    def load_wanted(self) -> dict[str, DeclarationText]:
        """Return the declaration to run for each application."""
        declarations = {} if self._file is None else {self._file.name: self._file}
        for name, text in expect_bytes(self._control).hgetall(keys.PIPELINE_WANTED).items():
            document = json.loads(text)
            declarations[name.decode()] = DeclarationText(name.decode(), document["version"], document["text"])
        return declarations

    def want(self, declared: DeclarationText) -> None:
        """Request that the pipeline runs this version."""
        document = {"version": declared.version, "text": declared.text}
        self._control.hset(keys.PIPELINE_WANTED, declared.name, json.dumps(document))

    def note_at_work(self, declared: DeclarationText, refused: str | None = None) -> None:
        """Record which version is running, and why a requested version was rejected."""
        at_work = ApplicationAtWork(**asdict(declared), refused=refused)
        self._control.hset(keys.PIPELINE_AT_WORK, declared.name, encode_document(at_work))

    def note_shipped(self) -> None:
        """Record the declaration of the file, so that people can go back to it."""
        if self._file is not None:
            self._control.hset(keys.PIPELINE_SHIPPED, self._file.name, self._file.text)

    def load_shipped(self, name: str) -> str | None:
        """Return the text of the application as shipped, or None if no process ships one of this name."""
        text = expect_bytes(self._control).hget(keys.PIPELINE_SHIPPED, name)
        return None if text is None else text.decode()

    def forget(self, name: str) -> None:
        self._control.hdel(keys.PIPELINE_AT_WORK, name)

    def load_running(self) -> dict[str, ApplicationAtWork]:
        """Return the declaration that the process runs for each application."""
        texts = expect_bytes(self._control).hgetall(keys.PIPELINE_AT_WORK)
        return {
            name.decode(): decode_document(ApplicationAtWork, text, name.decode())
            for name, text in sorted(texts.items())
        }


class FollowedDeclarations(Declarations):
    """The declarations for a replica process: it runs the versions of the main process, and records nothing."""

    def load_wanted(self) -> dict[str, DeclarationText]:
        return {name: DeclarationText(name, at.version, at.text) for name, at in self.load_running().items()}

    def note_at_work(self, declared: DeclarationText, refused: str | None = None) -> None:
        pass

    def forget(self, name: str) -> None:
        pass


NO_ORDER = PipelineOrder()


class Orders:
    """Reads and writes the orders. The process reads them every second; people write them one at a time."""

    def __init__(self, control: redis.Redis, clock: Callable[[], float] = time.time) -> None:
        self._control, self._clock = control, clock

    def read(self) -> dict[str, PipelineOrder]:
        """Return the orders by application. An unreadable order counts as none."""
        texts = expect_bytes(self._control).hgetall(keys.PIPELINE_ORDERS)
        return {name.decode(): _read(text) for name, text in texts.items()}

    def load(self, application: str) -> PipelineOrder:
        """Return the order for an application, or NO_ORDER if there is none."""
        text = expect_bytes(self._control).hget(keys.PIPELINE_ORDERS, application)
        return NO_ORDER if text is None else _read(text)

    def restart(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Restart the application, even if it is stopped."""
        return self._write(application, by, reason, stopped=False, restarts=1)

    def stop(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Stop the application between two batches, until it is started."""
        return self._write(application, by, reason, stopped=True)

    def start(self, application: str, by: str, reason: str) -> PipelineOrder:
        """Start the application where it stopped."""
        return self._write(application, by, reason, stopped=False)

    def _write(self, application: str, by: str, reason: str, stopped: bool, restarts: int = 0) -> PipelineOrder:
        before = self.load(application)
        at, restart = self._clock(), before.restart + restarts
        order = replace_fields(before, by=by, reason=reason, at=at, stopped=stopped, restart=restart)
        self._control.hset(keys.PIPELINE_ORDERS, application, encode_document(order))
        return order


def _read(text: bytes) -> PipelineOrder:
    try:
        return decode_document(PipelineOrder, text, "order")
    except BadDocument:
        return NO_ORDER
