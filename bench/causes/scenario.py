"""One scenario: innocent changes, its causes, what an incident says of them, and the way back."""

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from bench.causes.kinds import KINDS, Named, queue_for, report
from bench.causes.shop import CALM_SECONDS, QUEUES, Shop

FIRST = 3  # rows that somebody reads
LASTING_SECONDS = 60.0  # of a cause; as long is compared with the time before it
MAX_SECONDS = 150.0  # until somebody is notified
SETTLE_SECONDS = 20.0  # the archive has what happened, and changes are searched again
CHECK_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """found: of each cause, whether it is among the first rows; changes, differences: those rows, in words;
    incidents: what fired and nothing explains.
    """

    kinds: list[str]
    queues: list[str]
    found: list[bool]
    notified_seconds: float | None
    incidents: list[str]
    changes: list[str]
    differences: list[str]

    def document(self) -> dict[str, Any]:
        return asdict(self)


class AlertWatch:
    """Alerts that fire from an instant on at which none is open, each as it was seen last."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.rows: dict[int, dict[str, Any]] = {}

    def check(self, snapshot: dict[str, Any] | None) -> None:
        for row in (snapshot or {"alerts": []})["alerts"]:
            if row["severity"] != "notice":
                self.rows[row["id"]] = row

    def incidents(self) -> list[dict[str, Any]]:
        """Those that no other explains, the first to fire first."""
        rows = sorted(self.rows.values(), key=lambda row: (row["since"], row["id"]))
        return [row for row in rows if row["under"] is None]


def innocent(shop: Shop, taken: set[str], chance: Random) -> None:
    """Changes beside the cause, at a queue that it does not strike."""
    others = [queue for queue in QUEUES if queue not in taken]
    for queue in chance.sample(others, min(len(others), chance.randint(1, 2))):
        if chance.random() < 0.5:
            report(shop, f"queue/{queue}", f"{queue} {chance.randrange(1_000, 9_999)}", chance)
        else:
            shop.define(queue, handler_timeout_seconds=float(chance.randrange(60, 90)))
        time.sleep(chance.uniform(1.0, 5.0))


def play(shop: Shop, kinds: list[str], chance: Random) -> Outcome:
    """Raises AssertionError when the plant is not calm again in time."""
    shop.reset_calm()
    shop.sign_in()
    queues: list[str] = []
    for kind in kinds:
        queues.append(queue_for(kind, set(queues), chance))
    innocent(shop, set(queues), chance)
    watch = AlertWatch(time.time())
    with ExitStack() as stack:
        named = [
            stack.enter_context(KINDS[kind](shop, queue, chance)) for kind, queue in zip(kinds, queues, strict=True)
        ]
        notified = _check_until_notified(shop, watch)
    shop.producers.calm()
    changes, differences, found_cause = _collect_results(shop, watch, named)
    shop.work_off()
    _wait_until_over(shop, watch)
    return Outcome(
        kinds=kinds,
        queues=queues,
        found=found_cause,
        notified_seconds=None if notified is None else round(notified, 1),
        incidents=[f"{row['title']}: {row['sentence']}" for row in watch.incidents()],
        changes=[f"{row['kind']}: {row['words']}" for row in changes],
        differences=[f"{row['dimension']} {row['value']}: {row['effect']:+.2f}" for row in differences],
    )


def _check_until_notified(shop: Shop, watch: AlertWatch) -> float | None:
    """While the cause lasts, and until the first call; the seconds to that, None when there was none."""
    while (passed := time.time() - watch.since) < MAX_SECONDS:
        watch.check(shop.snapshot())
        called = shop.calls.first_after(watch.since)
        if passed >= LASTING_SECONDS and called is not None:
            break
        time.sleep(CHECK_SECONDS)
    called = shop.calls.first_after(watch.since)
    return None if called is None else called[0] - watch.since


def _collect_results(
    shop: Shop, watch: AlertWatch, named: list[Named]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[bool]]:
    """The first rows of what changed before any of the incidents, those of what is different, and which
    causes are among them.
    """
    until = time.time() + SETTLE_SECONDS
    while time.time() < until:
        watch.check(shop.snapshot())
        time.sleep(CHECK_SECONDS)
    incidents = watch.incidents()
    changes = [row for incident in incidents for row in _changes(shop, incident["id"])]
    differences = _differences(shop, watch.since)
    labels = [incident["labels"] for incident in incidents]
    named_rows = [
        any(named_row.change(row) for row in changes)
        or any(named_row.difference(row) for row in differences)
        or (named_row.labels is not None and any(named_row.labels.items() <= have.items() for have in labels))
        for named_row in named
    ]
    return changes, differences, named_rows


def _changes(shop: Shop, alert: int) -> list[dict[str, Any]]:
    rows = shop.answer(f"alerts/{alert}/changes")["changes"][:FIRST]
    return [{**row, "at": datetime.fromisoformat(row["at"]).timestamp()} for row in rows]


def _differences(shop: Shop, since: float) -> list[dict[str, Any]]:
    first, last = (datetime.fromtimestamp(at, UTC).isoformat() for at in (since, since + LASTING_SECONDS))
    rows: list[dict[str, Any]] = shop.answer("differences", **{"from": first, "to": last})["differences"]
    return rows[:FIRST]


def _wait_until_over(shop: Shop, watch: AlertWatch) -> None:
    """Whatever fires until then belongs to the scenario."""

    def is_over(snapshot: dict[str, Any]) -> bool:
        watch.check(snapshot)
        return shop.is_calm(snapshot)

    shop.wait_until(is_over, CALM_SECONDS, "all is over")
