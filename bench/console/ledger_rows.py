"""A ledger of a million entries in a database, and how long each filter takes there; run with its settings.

The entries are what the manager law decides on made observations: eight containers, a tick each two seconds, 26 days.
Each 400th was limited, each 5000th did harm, one in all says a word that no other does.
"""

import random
import resource
import statistics
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.utils import timezone

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from queues.models import Queue
from workers.models import LedgerEntry, Loop

ENTRIES, TEMPLATES, TICK_SECONDS, ROUNDS = 1_000_000, 2_000, 2, 3
RARE = "zeppelin"
CONTAINERS = [(queue, f"n{number}") for queue in ("alert", "process") for number in (1, 2, 3, 4)]


def seed() -> None:
    """The loops and their entries, the oldest first, as they would have been written."""
    for name in ("alert", "process"):
        Queue.objects.create(name=name, kind="jobs")
    loops = [
        Loop.objects.create(
            name=f"worker_rate/{queue}/{node}", law="worker_rate", target={"queue": queue, "node": node}
        )
        for queue, node in CONTAINERS
    ]
    columns = [field for field in LedgerEntry._meta.concrete_fields if not (field.primary_key or field.generated)]
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in columns)
    statement = f"INSERT INTO workers_ledgerentry ({names}) VALUES ({', '.join(['%s'] * len(columns))})"
    with connection.cursor() as cursor:
        rows = _rows(loops, columns)
        while batch := [row for _, row in zip(range(20_000), rows, strict=False)]:
            cursor.executemany(statement, batch)
        cursor.execute("ANALYZE")


def _rows(loops: list[Loop], columns: list[Any]) -> Iterator[list[Any]]:
    templates = [[_prepare_field(field, entry) for field in columns] for entry in _decisions()]
    place = {field.attname: index for index, field in enumerate(columns)}
    begin = timezone.now() - timedelta(seconds=ENTRIES / len(loops) * TICK_SECONDS)
    for number in range(ENTRIES):
        row = list(templates[number % len(templates)])
        row[place["loop_id"]] = loops[number % len(loops)].pk
        row[place["at"]] = begin + timedelta(seconds=number // len(loops) * TICK_SECONDS)
        row[place["fence"]] = number // len(loops) + 1
        if number % 5_000 == 0:
            row[place["verdict"]] = LedgerEntry.Verdict.HARMFUL.value
        if number % 400 == 0:
            row[place["limited_by"]] = "slew"
        if number == ENTRIES // 2:
            row[place["reason"]] += f" It waited for the {RARE}."
        yield row


def _prepare_field(field: Any, entry: LedgerEntry) -> Any:
    return field.get_db_prep_save(getattr(entry, field.attname), connection)


def _decisions() -> list[LedgerEntry]:
    """What the law says to a queue that fills and empties."""
    chance, law = random.Random(5), catalog.get_law("worker_rate")
    parameters = catalog.read_parameters(law, {})
    state, entries = start_state(law, parameters), []
    for _ in range(TEMPLATES):
        given = {"queue_length": chance.choice((0, 0, chance.randrange(20_000))), "removed": chance.randrange(9_000)}
        observation = catalog.read_observation(law, given)
        before = state
        state, decision = decide_next(law, parameters, state, observation)
        entries.append(
            LedgerEntry(
                loop_id=0,
                mode="auto",
                parameters=parameters,
                state_before={"law": before, "guard": {}, "sensor": {"removed_events": 1}},
                observation=observation,
                action=decision.action,
                raw=decision.raw,
                guarded=decision.raw,
                reason=decision.reason,
                terms=decision.terms,
                applied=decision.action is not None,
                verdict="effective" if decision.action else "no action",
                code="0123456789ab",
            )
        )
    return entries


def addresses() -> dict[str, str]:
    """Filters as the page's address has them, each alone and those that have to look at most together."""
    newest: datetime = LedgerEntry.objects.latest("pk").at
    old = f"{newest - timedelta(days=20):%Y-%m-%dT%H:%M:%S}"
    loop, middle = Loop.objects.latest("pk").pk, ENTRIES // 2
    return {
        "all": "",
        "deep_page": f"before={middle}",
        "newer_page": f"after={middle}",
        "loop": f"loop={loop}",
        "law": "law=worker_rate",
        "queue": "queue=alert",
        "node": "node=n1",
        "acted": "acted=1",
        "not_acted": "acted=0",
        "verdict_rare": "verdict=harmful",
        "verdict_never": "verdict=ineffective",
        "mode_never": "mode=manual",
        "limited": "limited_by=any",
        "limited_never": "limited_by=cooldown",
        "time_old": f"to={old}",
        "time_span": f"from={old}&to={newest - timedelta(days=19):%Y-%m-%dT%H:%M:%S}",
        "words_often": "text=worker+starts",
        "words_once": f"text={RARE}",
        "words_never": "text=submarine",
        "loop_verdict_rare": f"loop={loop}&verdict=harmful",
        "loop_verdict_never": f"loop={loop}&verdict=ineffective",
        "queue_acted_limited": "queue=process&acted=1&limited_by=any",
        "words_verdict_rare": "text=waits&verdict=harmful",
        "words_once_acted": f"text={RARE}&acted=0&queue=alert",
        "words_often_never": "text=worker+starts&verdict=ineffective",
        "words_often_old": f"text=worker+starts&to={old}",
        "everything": f"loop={loop}&acted=1&mode=auto&limited_by=any&text=starts&to={old}",
    }


def measure() -> None:
    """Print {filter: seconds of the whole page}, by clock and by processor, and what an entry takes."""
    reader, _ = User.objects.get_or_create(username="reader")
    reader.groups.add(Group.objects.get_or_create(name="viewer")[0])
    browser = Client()
    browser.force_login(reader, backend="django.contrib.auth.backends.ModelBackend")
    seen = {name: _seconds(browser, query) for name, query in addresses().items()}
    seconds, processor = ({name: pair[place] for name, pair in seen.items()} for place in (0, 1))
    with connection.cursor() as cursor:
        cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        size_bytes = cursor.fetchone()[0]
    told = {"seconds": seconds, "processor_seconds": processor, "bytes_per_entry": size_bytes / ENTRIES}
    told |= export(browser)
    print(orjson.dumps(told).decode())


def export(browser: Client) -> dict[str, float]:
    """All entries as CSV: how many a second, and how much the process grows by it."""
    before_bytes, began = _resident_bytes(), time.perf_counter()
    most_bytes, lines = before_bytes, 0
    answer: Any = browser.get("/api/v1/ledger/export?format=csv")  # its type here knows no streams
    for number, piece in enumerate(answer.streaming_content):
        lines += piece.count(b"\n")
        if number % 20 == 0:
            most_bytes = max(most_bytes, _resident_bytes())
    if lines < ENTRIES:
        raise AssertionError(f"{lines} of {ENTRIES} entries were exported")
    return {
        "export_entries_per_second": ENTRIES / (time.perf_counter() - began),
        "export_grows_bytes": float(most_bytes - before_bytes),
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _seconds(browser: Client, query: str) -> tuple[float, float]:
    """By the clock, and of the processor: the medians."""
    seen = []
    for _ in range(ROUNDS):
        began, worked = time.perf_counter(), time.process_time()
        answer = browser.get(f"/ledger/?{query}")
        seen.append((time.perf_counter() - began, time.process_time() - worked))
        if answer.status_code != 200:
            raise AssertionError(f"{query} answered {answer.status_code}")
    return statistics.median(sample[0] for sample in seen), statistics.median(sample[1] for sample in seen)
