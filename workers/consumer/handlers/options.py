"""Parsing of a handler's options: an error names the option and its valid values.

Unknown names are rejected.
"""

from collections.abc import Collection, Mapping
from typing import Any

from common import checks
from common.errors import BadInput

WHERE = "handler_options"


class Options:
    """`handler_options` of a queue, read one by one; `finish` rejects those that were not read."""

    def __init__(self, handler: str, document: Mapping[str, Any]) -> None:
        if not isinstance(document, Mapping):
            raise BadInput(WHERE, f"must be a JSON object, not {checks.shorten_for_message(document)}.")
        self._handler = handler
        self._document = dict(document)
        self._known: set[str] = set()

    def get_number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """Return a finite number in [minimum, maximum]."""
        return float(self._check_option(name, self._take(name, default), checks.accept_number(minimum, maximum)))

    def get_text(self, name: str, default: str | None = None) -> str:
        """Return a text that is not empty; it is required without a default."""
        value = self._take(name, default)
        if value is None:
            raise self._build_error(name, f"is required by the {self._handler} handler.")
        return str(self._check_option(name, value, checks.accept_text(blank=value == default)))

    def get_choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """Return one of the allowed words."""
        return str(self._check_option(name, self.get_text(name, default), checks.accept_choice(sorted(allowed))))

    def get_texts(self, name: str) -> dict[str, str]:
        """Return an object of texts, empty by default."""
        check = checks.accept_mapping(checks.accept_text(), "an object of strings")
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

    def _build_error(self, name: str, message: str) -> BadInput:
        return BadInput(f"{WHERE}.{name}", message)
