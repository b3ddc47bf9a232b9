"""Shared code of JSON commands: a document in, a document out, and errors as CONTRACT.md words them.

Exit 0 done · 2 bad input: one line on standard error that names the field and says what it takes · 1 failed.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from common.documents import MAX_JSON_BYTES, get_standard_input, read_json
from common.errors import BadInput
from console.management.one_line import OneLineCommand, format_one_line


def read_document(path: str) -> dict[str, Any]:
    """Return the JSON object in a file, or on standard input for `-`.

    Raises `BadInput` that names the place if it can't be read, is not JSON, not an object, or contains what
    `common.documents` rejects.
    """
    document = read_json(_read_text(path))
    if not isinstance(document, dict):
        raise BadInput("document", "must be a JSON object.")
    return document


def _read_text(path: str) -> str:
    """Read at most one character more than a document may have."""
    try:
        if path == "-":
            return get_standard_input("FILE").read(MAX_JSON_BYTES + 1)
        with Path(path).open(encoding="utf-8") as file:
            return file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise BadInput(
            "FILE", f"{path} can't be read ({error.strerror}). Give a JSON file, or - for standard input."
        ) from None
    except UnicodeDecodeError:
        raise BadInput("document", "is not UTF-8. Enter a JSON object in UTF-8.") from None


def _drop_output() -> None:
    """Discard the buffer: otherwise Python would try to write it, and fail, again at its end."""
    if sys.stdout is not None:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


class JsonCommand(OneLineCommand):
    """A command that answers with one JSON document; subclasses implement `answer(options)`."""

    # They would import every page, which takes longer than most answers; `manage.py check` runs them.
    requires_system_checks = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: object) -> CommandParser:
        """Permit options anywhere. Otherwise argparse takes an optional FILE for absent at the first option."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} must implement answer()")

    def format_output(self, document: dict[str, Any]) -> str | None:
        """Return the table that a terminal shows instead of JSON, if a command has one."""
        return None

    def list_failures(self, document: dict[str, Any]) -> list[str]:
        """Return a line for standard error for each failure. If there is a failure, the exit code is 1."""
        return []

    def handle(self, *args: object, **options: object) -> None:
        try:
            document = self.answer(options)
        except BadInput as error:
            self.stderr.write(format_one_line(str(error)))
            sys.exit(2)
        wants_json = options.get("json") or not self.stdout.isatty()
        text = None if wants_json else self.format_output(document)
        self._put_out(text if text is not None else self._as_json(document))
        if failures := self.list_failures(document):
            self.stderr.write("\n".join(map(format_one_line, failures)))
            sys.exit(1)

    def _put_out(self, text: str) -> None:
        """Write everything now, while an error can be reported: a full disk, or a reader that has gone."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except (OSError, AttributeError) as error:  # Python has None for a closed one
            self.stderr.write(f"standard output: can't be written ({getattr(error, 'strerror', 'closed')})")
            _drop_output()
            sys.exit(1)

    def _as_json(self, document: dict[str, Any]) -> str:
        """Return the document as JSON; values within their ranges may multiply to infinity."""
        try:
            return json.dumps(document, allow_nan=False)
        except ValueError:
            self.stderr.write("document: its results are not finite; use smaller numbers")
            sys.exit(2)
