"""`manage.py match`: the matches of a pattern in a set of events, compared with the expected matches."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from common import checks
from common.errors import BadInput
from console.management.document import JsonCommand, read_document
from workers.pipeline.declaration.declaration import read_application
from workers.pipeline.declaration.pattern_trial import PatternTrial, convert_events, try_pattern
from workers.pipeline.matching.match_request import answer, compare_matches, parse_expected

MAX_EVENTS = 10_000  # of a trial of a declared pattern


class Command(JsonCommand):
    help = (
        'Match a pattern. Input: {"pattern": "SEQ(A; B)", "within_seconds": 10, "events": [...]}. '
        "Output: the IDs of each match, and its measures if the input has some. "
        'With "expected": [["e1", "e4"]], the exit code is 1 if the matches differ.'
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument(
            "--application",
            metavar="FILE",
            help="declaration of an application, whose rules and patterns process the events",
        )
        parser.add_argument("--pattern", metavar="NAME", help="pattern of the application")
        parser.add_argument("--explain", action="store_true", help="print why events don't match")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        document, path, name = read_document(options["file"]), options["application"], options["pattern"]
        if (path is None) != (name is None):
            missing, present = ("--pattern", "--application") if name is None else ("--application", "--pattern")
            raise BadInput(missing, f"is missing. {present} requires it.")
        if path is None:
            return answer({**document, "explain": True} if options["explain"] else document)
        return _try_declared_pattern(document, Path(path), name, options["explain"])

    def format_output(self, document: dict[str, Any]) -> str:
        measures = document.get("measures") or [{}] * len(document["matches"])
        lines = [
            " ".join([*ids, *(f"{name}={value}" for name, value in values.items())])
            for ids, values in zip(document["matches"], measures, strict=True)
        ]
        lines.append("1 match" if len(lines) == 1 else f"{len(lines)} matches")
        for event in document.get("events", []):
            lines += [f"{event['id']}: {reason}" for reason in event["reasons"]]
        return "\n".join([*lines, *document.get("notes", [])])

    def list_failures(self, document: dict[str, Any]) -> list[str]:
        return list(_describe_difference(document))


def _describe_difference(document: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each missing or unexpected match, and the reasons of the events of a missing match."""
    for ids in document.get("missing", []):
        yield f"Missing match: {' '.join(ids)}"
        yield from (f"  {id}: {reason}" for id in ids for reason in document["reasons"].get(id, []))
    for ids in document.get("unexpected", []):
        yield f"Unexpected match: {' '.join(ids)}"


def _try_declared_pattern(document: dict[str, Any], path: Path, name: str, explains: bool) -> dict[str, Any]:
    """Return the matches of a pattern of an application. Raises `BadInput` that names the field."""
    checks.refuse_unknown(document, ("events", "expected"), "", message="is unknown; known names: {known}")
    events = convert_events(document.get("events"), round(time.time() * 1e6))
    if events.num_rows > MAX_EVENTS:
        raise BadInput("events", f"must be at most {MAX_EVENTS:,} events, not {events.num_rows:,}")
    trial = try_pattern(read_application(path), name, events)
    return _format_trial(
        trial, parse_expected(document.get("expected"), [event.id for event in trial.events]), explains
    )


def _format_trial(trial: PatternTrial, expected: list[list[str]] | None, explains: bool) -> dict[str, Any]:
    emitted = [match for match in trial.matches if not match.suppressed]
    result: dict[str, Any] = {
        "matches": [list(match.events) for match in emitted],
        "measures": [match.measures for match in emitted],
        "suppressed": [list(match.events) for match in trial.matches if match.suppressed],
        "notes": list(trial.notes),
    }
    if explains:
        result["events"] = [asdict(event) for event in trial.events]
    if expected is not None:
        result |= compare_matches(expected, result["matches"], trial.events)
    return result
