"""Parsing of a handler's options: an error names the option and its valid values.

Unknown names are rejected.
"""

from collections.abc import Collection, Mapping
from typing import Any

from queues import checks
from queues.errors import BadInput

WHERE = "handler_options"


class Options:
    """`handler_options` of a queue, read one by one; `finish` rejects those that were not read."""

    def __init__(self, handler: str, document: Mapping[str, Any]) -> None:
        if not isinstance(document, Mapping):
            raise BadInput(WHERE, f"must be a JSON object, not {checks.shorten_for_message(document)}.")
        self._handler = handler
        self._document = dict(document)
        self._known: set[str] = set()

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """Return a finite number in [minimum, maximum]."""
        return float(self._check_option(name, self._take(name, default), checks.number(minimum, maximum)))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text that is not empty; it is required without a default."""
        value = self._take(name, default)
        if value is None:
            raise self._fault(name, f"is required by the {self._handler} handler.")
        return str(self._check_option(name, value, checks.text(blank=value == default)))

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """Return one of the allowed words."""
        return str(self._check_option(name, self.text(name, default), checks.choice(sorted(allowed))))

    def texts(self, name: str) -> dict[str, str]:
        """Return an object of texts, empty by default."""
        check = checks.mapping_of(checks.text(), "an object of strings")
        return dict(self._check_option(name, self._take(name, {}), check))

    def finish(self) -> None:
        """Reject options that were not read."""
        message = f"is not an option of the {self._handler} handler; the options are {{known}}."
        checks.refuse_unknown(self._document, sorted(self._known), WHERE, message=message)

    def _take(self, name: str, default: Any) -> Any:
        self._known.add(name)
        return self._document.get(name, default)

    def _check_option(self, name: str, value: Any, check: checks.Check) -> Any:
        return check.validate(value, f"{WHERE}.{name}", end=".")

    def _fault(self, name: str, message: str) -> BadInput:
        return BadInput(f"{WHERE}.{name}", message)
