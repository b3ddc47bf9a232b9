"""What people have done at plants that others built, besides setting tasks: a queue paused, a rate limited.
It is in force until its end, or until somebody undoes it, and all is then as it was before.

What there was before is noted on the control server before anything is done, so that it can be undone
whatever dies in between. Who begins the same one again changes its end and its value, not what it goes back
to.
"""

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, cast

import redis

from queues import keys
from queues.errors import BadInput, WeirError
from workers.plants.foreign.bounded import within
from workers.plants.foreign.kind import Adapter, InterventionKind
from workers.plants.models import RegisteredPlant

logger = logging.getLogger(__name__)
LONGEST = 255  # of a subject and a value; a queue's name can be so long
MOST_IN_FORCE = 100  # at a plant
GIVE_UP_SECONDS = 3_600.0
ANSWER_SECONDS = 10.0  # an app with many workers is asked several times


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """kind: name of its `InterventionKind`. before: what it goes back to, as its adapter wrote it. until:
    seconds since 1970.
    """

    kind: str
    subject: str
    value: str
    before: str
    by: str
    until: float

    @property
    def field(self) -> str:
        """Of the hash."""
        return _field(self.kind, self.subject)


def in_force(control: redis.Redis, plant: str) -> list[Intervention]:
    """The first to end first."""
    stored = cast(dict[bytes, bytes], control.hgetall(keys.PLANT_INTERVENTIONS.of(plant)))
    found = (Intervention(**json.loads(each)) for each in stored.values())
    return sorted(found, key=lambda each: each.until)


def begin(
    control: redis.Redis,
    plant: str,
    adapter: Adapter,
    kind: InterventionKind,
    subject: str,
    value: str,
    *,
    by: str,
    until: float,
) -> None:
    """Raises BadInput naming subject or value, and what the plant raises. Where the plant fails in the midst
    of it, it is noted as in force, so that it is undone.
    """
    if not subject or len(subject) > LONGEST:
        raise BadInput("subject", f"takes {kind.subject}, at most {LONGEST} characters.")
    if len(value) > LONGEST:
        raise BadInput("value", f"takes at most {LONGEST} characters.")
    noted = {each.field: each for each in in_force(control, plant)}
    earlier = noted.get(_field(kind.name, subject))
    before = earlier.before if earlier else _within(plant, adapter.before, kind.name, subject, value)
    if not kind.lasting:
        _within(plant, adapter.intervene, kind.name, subject, value)
        return
    if earlier is None and len(noted) >= MOST_IN_FORCE:
        raise BadInput("subject", f"comes after {MOST_IN_FORCE} others that are in force: undo one first.")
    note = Intervention(kind=kind.name, subject=subject, value=value, before=before, by=by, until=until)
    _note(control, plant, note)
    try:
        _within(plant, adapter.intervene, kind.name, subject, value)
    except BadInput:  # refused: nothing was done
        _note(control, plant, earlier) if earlier else _forget(control, plant, note)
        raise


def undo(control: redis.Redis, plant: str, adapter: Adapter, kind: str, subject: str) -> Intervention:
    """As it was before. Raises BadInput where it is not in force, and what the plant raises; it then still
    is.
    """
    found = {each.field: each for each in in_force(control, plant)}.get(_field(kind, subject))
    if found is None:
        raise BadInput("subject", f"has no {kind.replace('_', ' ')} that is in force.")
    _within(plant, adapter.undo, kind, subject, found.before)
    _forget(control, plant, found)
    return found


def undo_due(
    control: redis.Redis,
    rows: Iterable[RegisteredPlant],
    now_seconds: float,
    make: Callable[[RegisteredPlant], Adapter],
) -> list[Intervention]:
    """Those whose end has come, of registered plants. One whose plant does not answer is tried again until it
    is GIVE_UP_SECONDS late: then the plant, or that part of it, is taken to be gone. What is started anew is
    as its owner set it up.
    """
    undone: list[Intervention] = []
    for row in rows:
        due = [each for each in in_force(control, row.name) if each.until <= now_seconds]
        try:
            if due:
                with closing(make(row)) as adapter:
                    undone += [undo(control, row.name, adapter, each.kind, each.subject) for each in due]
        except WeirError as error:
            logger.warning("What people did at %s can't be undone yet: %s", row.name, error)
            _give_up(control, row.name, [each for each in due if each.until <= now_seconds - GIVE_UP_SECONDS])
    return undone


def _give_up(control: redis.Redis, plant: str, late: Iterable[Intervention]) -> None:
    for each in late:
        logger.error("%s at %s was never undone: the plant has not answered for an hour.", each.field, plant)
        _forget(control, plant, each)


def _within(plant: str, call: Callable[..., Any], *arguments: str) -> Any:
    return within(ANSWER_SECONDS, plant, call, *arguments)


def _note(control: redis.Redis, plant: str, each: Intervention) -> None:
    control.hset(keys.PLANT_INTERVENTIONS.of(plant), each.field, json.dumps(asdict(each)))


def _forget(control: redis.Redis, plant: str, each: Intervention) -> None:
    control.hdel(keys.PLANT_INTERVENTIONS.of(plant), each.field)


def _field(kind: str, subject: str) -> str:
    return f"{kind} {subject}"
