"""Reading a handler's options: a fault names the option and what it takes; an unknown name is refused."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from queues.errors import BadInput


class Options:
    """`handler_options` of a queue, read one by one; `finish` refuses what was not read."""

    def __init__(self, handler: str, document: Mapping[str, Any]) -> None:
        if not isinstance(document, Mapping):
            raise BadInput("handler_options", f"takes an object, not {document!r}.")
        self._handler = handler
        self._document = dict(document)
        self._known: set[str] = set()

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A finite number in [minimum, maximum]."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._fault(name, f"takes a number, not {value!r}.")
        if not minimum <= value <= maximum:
            raise self._fault(name, f"takes a number from {minimum:g} to {maximum:g}, not {value!r}.")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that is not empty; required without a default."""
        value = self._take(name, default)
        if value is None:
            raise self._fault(name, f"is missing: the {self._handler} handler needs it.")
        if not isinstance(value, str) or (not value and value != default):
            raise self._fault(name, f"takes a text, not {value!r}.")
        return value

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """One of the allowed words."""
        value = self.text(name, default)
        if value not in allowed:
            raise self._fault(name, f"takes one of {', '.join(sorted(allowed))}, not {value!r}.")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts, empty by default."""
        value = self._take(name, {})
        if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
            raise self._fault(name, f"takes an object of texts, not {value!r}.")
        return dict(value)

    def finish(self) -> None:
        """Refuse what no reading asked for."""
        for name in self._document:
            if name not in self._known:
                known = ", ".join(sorted(self._known)) or "none"
                raise self._fault(name, f"is unknown to the {self._handler} handler; it takes: {known}.")

    def _take(self, name: str, default: Any) -> Any:
        self._known.add(name)
        return self._document.get(name, default)

    def _fault(self, name: str, message: str) -> BadInput:
        return BadInput(f"handler_options.{name}", message)
