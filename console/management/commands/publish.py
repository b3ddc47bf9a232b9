"""`manage.py publish QUEUE [FILE|-]`: publishes the events of a file to a queue."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from django.conf import settings
from django.core.management.base import CommandParser

from common.errors import BadInput, ControlUnavailable, NoContainerAvailable, WeirError
from common.parsing import parse_option_number, parse_option_whole_number
from console.embedded.running import describe_plant_choice
from console.management.document import JsonCommand
from controllers.framework.reason import format_count
from queues.events.columns import Columns
from queues.events.lines import FORMATS, NAMED, EventLines, format_of, open_events
from queues.publishing.client import Client, PublishResult
from queues.publishing.replay import Pace, limit_events, multiply_events

PRODUCER = "publish"


class Command(JsonCommand):
    help = "Publish CSV or JSON lines, also gzipped. Malformed lines are counted, listed, and skipped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", metavar="QUEUE")
        parser.add_argument("file", metavar="FILE|-", nargs="?", default="-")
        parser.add_argument("--format", choices=FORMATS, help="default: from the filename, else from the content")
        for part in ("time", "type", "key", "value", "source"):
            parser.add_argument(f"--{part}", metavar="COL", help=f"column with the event's {part}")
        replay = "replay by event time, X times faster; 0 (default): as fast as possible"
        parser.add_argument("--speed", type=parse_option_number, default=0.0, metavar="X", help=replay)
        multiply = "publish every event N times, as separate events"
        parser.add_argument("--multiply", type=parse_option_whole_number, default=1, metavar="N", help=multiply)
        limit = "read at most N events (default: all)"
        parser.add_argument("--limit", type=parse_option_whole_number, metavar="N", help=limit)
        parser.add_argument("--strict", action="store_true", help="stop at the first malformed line")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def handle(self, *args: object, **options: object) -> None:
        try:
            super().handle(*args, **options)
        except ControlUnavailable as error:
            self.stderr.write(f"{error} {describe_plant_choice()}")
            sys.exit(1)
        except WeirError as error:
            self.stderr.write(str(error))
            sys.exit(1)

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        check(options)
        began_seconds = time.monotonic()
        with Client(settings.REDIS_URL, producer=PRODUCER) as client:
            client.get_topology().queue(options["queue"])  # before the file is touched
            with open_events(options["file"]) as stream:
                lines = EventLines(
                    stream,
                    format=options["format"] or format_of(options["file"]),
                    columns=Columns(**{part: options[part] for part in Columns().__dict__}),
                    strict=options["strict"],
                )
                published = self._publish(client, lines, options)
            client.count_rejected(options["queue"], lines.rejected)
        self._report_rejected_lines(lines)
        columns = {} if lines.csv_columns is None else {"columns": lines.csv_columns.parts}
        if lines.csv_columns is not None:
            self.stderr.write(lines.csv_columns.format_sentence())
        return {
            "published": published.events,
            "blocks": published.blocks,
            "rejected": lines.rejected,
            "seconds": round(time.monotonic() - began_seconds, 3),
            "throttled_seconds": round(client.throttled_seconds, 3),
            "by_container": dict(published.by_container),
            "rerouted": published.rerouted,
            "durability": published.durability,
            **columns,
        }

    def format_output(self, document: dict[str, Any]) -> str:
        rate_per_second = document["published"] / max(document["seconds"], 0.001)
        places = ", ".join(f"{name} {events:,}" for name, events in document["by_container"].items())
        waited = document["throttled_seconds"]
        throttled = f", {waited} s of them throttled" if waited else ""
        return (
            f"{format_count(document['published'], 'event')} in {format_count(document['blocks'], 'block')}, "
            f"{document['seconds']} s{throttled} "
            f"({rate_per_second:,.0f}/s); {document['rejected']:,} rejected\n"
            f"{places}; durability: {document['durability']}"
        )

    def _publish(self, client: Client, lines: EventLines, options: dict[str, Any]) -> PublishResult:
        """Publish all of it, or exit with how far it came."""
        published, readable = PublishResult(), ReadableBatches(lines)
        try:
            for batches in batch_lines(readable, options):
                published += client.publish_batches(options["queue"], batches)
            readable.check()
        except WeirError as error:
            if isinstance(error, NoContainerAvailable) and isinstance(error.stored, PublishResult):
                published += error.stored
            self._report_rejected_lines(lines)
            events, blocks = format_count(published.events, "event"), format_count(published.blocks, "block")
            self.stderr.write(f"stored before the error: {events} in {blocks}")
            raise
        return published

    def _report_rejected_lines(self, lines: EventLines) -> None:
        for rejection in lines.rejections:
            self.stderr.write(f"line {rejection.line}: {rejection.error}")
        if lines.rejected > NAMED:
            self.stderr.write(f"and {lines.rejected - NAMED} more malformed lines")


class ReadableBatches:
    """Batches of a file up to an unreadable part: what came before is stored completely, and counted."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._refusal: BadInput | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except BadInput as error:
            self._refusal = error

    def check(self) -> None:
        """Raise `BadInput` if the batches ended for that reason."""
        if self._refusal is not None:
            raise self._refusal


def check(options: dict[str, Any]) -> None:
    """Raise `BadInput` that names an option that is out of range."""
    if not 0.0 <= options["speed"] <= 1e9:  # also rejects NaN
        raise BadInput("speed", f"must be 0 to 1e9, not {options['speed']}.")
    if not 1 <= options["multiply"] <= 1_000_000:
        raise BadInput("multiply", f"must be 1 to 1000000, not {options['multiply']}.")
    if options["limit"] is not None and options["limit"] < 1:
        raise BadInput("limit", f"must be 1 or more, not {options['limit']}.")


def batch_lines(lines: Iterable[pa.RecordBatch], options: dict[str, Any]) -> Iterable[Iterable[pa.RecordBatch]]:
    """Yield what is published at once: everything, or (paced) what is due together, so that nothing waits."""
    batches = iter(lines)
    if options["limit"] is not None:
        batches = limit_events(batches, options["limit"])
    if options["speed"] == 0 and not options["strict"]:
        return [multiply_events(batches, options["multiply"])]
    # With --strict also in pieces: if it stops, the position is known.
    pieces = Pace(options["speed"])(batches) if options["speed"] else batches
    return (multiply_events([piece], options["multiply"]) for piece in pieces)
