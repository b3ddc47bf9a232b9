"""One plant a seed, and faults on it one after another, chosen by the seed; then what it cost."""

import logging
import math
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from random import Random
from typing import Any

import httpx
import psutil
import redis

from bench.faults.account import Account, account
from bench.faults.broken_plant import BrokenPlant
from bench.faults.kinds import Kind, kinds_for
from bench.faults.load import Load
from bench.faults.whole import Evidence, evidence, list_missing
from common.errors import BadInput, WeirError

log = logging.getLogger(__name__)
FIRST_SECONDS = 600.0  # a plant may take to be whole for the first time
MAX_SECONDS = 120.0  # after a fault; then it counts as not recovered
CHECK_SECONDS = 0.25
PAUSE_SECONDS = 2.0, 6.0  # between two faults


@dataclass(frozen=True)
class Struck:
    """One fault and its end. seconds: until all was whole again; None when that did not happen in time.
    waited_for: {what was missing: seconds from the fault's end until it was there}. load: of the machine, the processes
    that run or want to, when the fault ended. not_tried: why it was not, "" where it was.
    """

    seed: int
    kind: str
    limit_seconds: float
    seconds: float | None
    missing: tuple[str, ...] = ()
    waited_for: dict[str, float] = field(default_factory=dict)
    load: float = 0.0
    not_tried: str = ""

    @property
    def is_within(self) -> bool:
        """Within its limit, which is one on a calm machine and twice that at a load of 8."""
        return self.seconds is not None and self.seconds <= self.limit_seconds * (1 + self.load / 8)


def run(seeds: Sequence[int], faults: int, rate_per_second: int, only: Collection[str] = ()) -> dict[str, Any]:
    """The document: counts of events and decisions, recovery by kind of fault, what can't be broken here.
    only: the kinds' names; none: all. Raises BadInput when there is no such kind.
    """
    struck: list[Struck] = []
    whole = Account(*[0] * len(fields(Account)))
    left_out: dict[str, str] = {}
    for seed in seeds:
        faults_struck, counted, left_out = one_seed(seed, faults, rate_per_second, only)
        log.warning("seed %d: %s", seed, counted)  # a night's run that ends early has said this much
        struck += faults_struck
        whole += counted
    tried = [fault for fault in struck if not fault.not_tried]
    return {
        "seeds": list(seeds),
        "faults": len(tried),
        "rate_per_second": rate_per_second,
        "account": asdict(whole),
        "recovery": recovery(tried),
        "not_recovered": [asdict(fault) for fault in tried if fault.seconds is None],
        "late": [asdict(fault) for fault in tried if not fault.is_within],
        "not_tried": [asdict(fault) for fault in struck if fault.not_tried],
        "left_out": left_out,
    }


def one_seed(
    seed: int, faults: int, rate_per_second: int, only: Collection[str] = ()
) -> tuple[list[Struck], Account, dict[str, str]]:
    """A new plant, broken so often. Raises AssertionError when it never is whole at all."""
    with BrokenPlant() as plant, Load(plant.control_url(), rate_per_second) as load:
        kinds, left_out = kinds_for(plant)
        kinds = select_kinds(kinds, only)
        _, why, _ = wait_until_whole(plant, FIRST_SECONDS)
        assert not why, f"the plant was never whole: {why}"
        struck = list(_strike(plant, seed, choose_kinds(kinds, faults, Random(seed))))
        load.end()
        _drain(plant)
        return struck, account(plant, load), left_out


def select_kinds(kinds: Sequence[Kind], only: Collection[str]) -> list[Kind]:
    """Those of these names; without names all. Raises BadInput."""
    known = {kind.name: kind for kind in kinds}
    if unknown := [name for name in only if name not in known]:
        raise BadInput("--only", f"{unknown[0]} is no kind of fault; there are: {', '.join(sorted(known))}.")
    return [known[name] for name in only] or list(kinds)


def choose_kinds(kinds: Sequence[Kind], faults: int, chance: Random) -> list[Kind]:
    """So many kinds in random order: none twice before each was there once."""
    found: list[Kind] = []
    while len(found) < faults:
        found += chance.sample(list(kinds), len(kinds))
    return found[:faults]


def _strike(plant: BrokenPlant, seed: int, kinds: Sequence[Kind]) -> Iterator[Struck]:
    chance = Random(seed)
    for kind in kinds:
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        found = _inject(plant, seed, kind, chance)
        log.warning("%s", found)
        yield found


def _inject(plant: BrokenPlant, seed: int, kind: Kind, chance: Random) -> Struck:
    """A fault in whose own steps the plant does not answer counts as not recovered; one that finds no turn at
    a busy database is not tried. The next one comes.
    """
    wrong = not_tried = ""
    try:
        with kind.strike(plant, chance):
            log.warning("seed %d: %s", seed, kind.name)
    except (TimeoutError, httpx.HTTPError, redis.RedisError, psutil.Error) as error:
        wrong = f"in the fault: {error}"
    except sqlite3.Error as error:
        not_tried = str(error)
    load = os.getloadavg()[0]
    seconds, why, waited_for = wait_until_whole(plant, MAX_SECONDS)
    if wrong:
        seconds, why = None, [wrong, *why]
    load = round(load, 1)
    return Struck(seed, kind.name, kind.limit_seconds, seconds, tuple(why), waited_for, load, not_tried)


def wait_until_whole(plant: BrokenPlant, most_seconds: float) -> tuple[float | None, list[str], dict[str, float]]:
    """(seconds from now until everything runs and has moved on, nothing); or None, and what is missing after
    so long; and when each of what was missing was there. How far everything was is known as soon as all servers answer.
    """
    began = time.monotonic()
    since: Evidence | None = None
    found = ["the servers do not answer"]
    waited_for: dict[str, float] = {}
    while (elapsed := time.monotonic() - began) < most_seconds:
        waited_for |= dict.fromkeys(found, round(elapsed, 1))
        since = since or _now(plant)
        if since is not None and not (found := list_missing(plant, since)):
            return elapsed, [], waited_for
        time.sleep(CHECK_SECONDS)
    return None, found, waited_for


def _now(plant: BrokenPlant) -> Evidence | None:
    try:
        return evidence(plant)
    except (redis.RedisError, WeirError, OSError, sqlite3.Error):
        return None


def _drain(plant: BrokenPlant) -> None:
    """Until everything that was stored is handled."""
    deadline = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < deadline:
        now = _now(plant)
        if now is not None and now.handled >= now.stored:
            return
        time.sleep(1.0)
    log.warning("events still wait")


def recovery(struck: Sequence[Struck]) -> list[dict[str, Any]]:
    """A row a kind: how often, how often within the limit at the load there was, and the seconds until whole
    (p50, p95, most), beside the limit on a calm machine.
    """
    rows = []
    for name in sorted({fault.kind for fault in struck}):
        own = [fault for fault in struck if fault.kind == name]
        seconds = sorted(fault.seconds for fault in own if fault.seconds is not None)
        row: dict[str, Any] = {
            "kind": name,
            "count": len(own),
            "within": sum(fault.is_within for fault in own),
            "limit_seconds": own[0].limit_seconds,
            "most_load": max(fault.load for fault in own),
        }
        for label, share in (("p50_seconds", 0.5), ("p95_seconds", 0.95), ("most_seconds", 1.0)):
            place = max(0, math.ceil(share * len(seconds)) - 1)
            row[label] = round(seconds[place], 2) if seconds else None
        rows.append(row)
    return rows
