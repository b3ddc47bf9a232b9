"""Which declarations the pipeline process is to run: its file's, and those activated in the console.

| key | type | holds |
|---|---|---|
| `weir:pipeline:wanted` | hash | application → {"version", "text"}: the console writes it |
| `weir:pipeline:at-work` | hash | application → {"version", "text", "refused"}: the process does |
| `weir:pipeline:shipped` | hash | application → its text in the process' own file |

A stored declaration of the same name comes before the file's. `refused` says why a wanted version is not
taken; the one before goes on meanwhile.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import redis

from queues import keys
from queues.redis_types import Fields
from queues.stored_document import decode_document, encode_document
from workers.documents.pipeline import ApplicationAtWork

OF_FILE = 0  # the version of what the process was started with


@dataclass(frozen=True)
class Declared:
    """A declaration as a text. version: OF_FILE, or the number under which the console keeps it."""

    name: str
    version: int
    text: str


class Declarations:
    """Reads and writes the keys above. file: the process's own declaration."""

    def __init__(self, control: redis.Redis, file: Declared | None = None) -> None:
        self._control, self._file = control, file

    def load_wanted(self) -> dict[str, Declared]:
        """Application → what is to run."""
        found = {} if self._file is None else {self._file.name: self._file}
        for name, text in cast(Fields, self._control.hgetall(keys.PIPELINE_WANTED)).items():
            document = json.loads(text)
            found[name.decode()] = Declared(name.decode(), document["version"], document["text"])
        return found

    def want(self, declared: Declared) -> None:
        """From now on the pipeline runs this version of it."""
        document = {"version": declared.version, "text": declared.text}
        self._control.hset(keys.PIPELINE_WANTED, declared.name, json.dumps(document))

    def note_at_work(self, declared: Declared, refused: str | None = None) -> None:
        """What is at work, and why what is wanted is not."""
        at_work = ApplicationAtWork(**asdict(declared), refused=refused)
        self._control.hset(keys.PIPELINE_AT_WORK, declared.name, encode_document(at_work))

    def note_shipped(self) -> None:
        """What its file has, so that people can go back to it."""
        if self._file is not None:
            self._control.hset(keys.PIPELINE_SHIPPED, self._file.name, self._file.text)

    def load_shipped(self, name: str) -> str | None:
        """The application's text as shipped; None where no process has one of this name."""
        found = cast(bytes | None, self._control.hget(keys.PIPELINE_SHIPPED, name))
        return None if found is None else found.decode()

    def forget(self, name: str) -> None:
        self._control.hdel(keys.PIPELINE_AT_WORK, name)

    def load_running(self) -> dict[str, ApplicationAtWork]:
        """Application → what the process has of it."""
        found = cast(Fields, self._control.hgetall(keys.PIPELINE_AT_WORK))
        return {
            name.decode(): decode_document(ApplicationAtWork, text, name.decode())
            for name, text in sorted(found.items())
        }


def read_file(path: Path, name: str) -> Declared:
    return Declared(name, OF_FILE, path.read_text(encoding="utf-8-sig"))
