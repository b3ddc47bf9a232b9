"""What every JSON command shares: a document in, a document out, and errors as CONTRACT.md words them.

Exit 0 done · 2 bad input: one line on standard error that names the field and says what it takes · 1 failed.
"""

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from queues.errors import BadInput


def refuse_non_finite(token: str) -> NoReturn:
    raise BadInput("document", f"{token} is not a finite number; numbers must be finite")


def read_document(path: str) -> dict[str, Any]:
    """The JSON object in a file, or on standard input for `-`.

    Raises BadInput when it can't be read, is not JSON, not an object, or holds NaN or Infinity.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        document = json.loads(text, parse_constant=refuse_non_finite, parse_float=finite_float)
    except OSError as error:
        raise BadInput("FILE", f"{path} can't be read ({error.strerror}); give a JSON file or -") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput("document", f"is not JSON ({error}); give one JSON object") from error
    if not isinstance(document, dict):
        raise BadInput("document", "must be one JSON object")
    return document


def finite_float(text: str) -> float:
    """JSON allows 1e999, which overflows to infinity: refuse it like Infinity."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        refuse_non_finite(text)
    return value


class JsonCommand(BaseCommand):
    """A command that answers with one JSON document; subclasses give `answer(options)`."""

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} gives no answer")

    def human(self, document: dict[str, Any]) -> str | None:
        """The table a terminal shows instead of JSON, where a command has one."""
        return None

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            document = self.answer(options)
        except BadInput as error:
            self.stderr.write(" ".join(str(error).split()))
            sys.exit(2)
        wants_json = options.get("json") or not self.stdout.isatty()
        text = None if wants_json else self.human(document)
        self.stdout.write(text if text is not None else json.dumps(document, allow_nan=False))
