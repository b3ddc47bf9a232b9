"""Seeded causes on a real plant: is the true one among the first three that an incident names, and who is
notified when?

A plant (./run) with a small shop: three queues of emulated work, three producers, an application of the pipeline. A
scenario waits until no alert is open, makes one or two innocent changes, and then a cause (two at once in some) through
the same door as in earnest: the API, a producer, a report of a deploy, a signal to a server. What happens is undone,
its backlog is worked off, and the next scenario begins; so each finds the causes of all before it among what changed.

    found         each cause is among the first FIRST rows of *what changed*, or of *what is different* in the
                  minute after it against the minute before; of a node that is lost: the incident names it
    incidents     alerts that fired until all was over and that no other explains; of each cause at most one
    notified      seconds from the cause until a webhook is called with an alert that fired after it

Rules fire sooner than as shipped (`shop.RULES`), as nobody waits minutes for each of thirty: the limit on
*notified* holds for these rules alone; `queue-behind` as shipped needs 90 s at least. It fires later on a
host where events wait for seconds when all is well (`Shop.allow_for_the_host`). `--seconds`: a scenario for each
SCENARIO_SECONDS of them.
"""

import logging
import math
from random import Random
from statistics import fmean
from typing import Any

import numpy as np

from bench.causes.kinds import KINDS
from bench.causes.scenario import Outcome, play
from bench.causes.shop import Shop

log = logging.getLogger(__name__)
SCENARIO_SECONDS = 150.0
SEED = 20
LIMITS = {"found_share": 0.9, "incidents_a_cause": 1.0, "notified_p95_seconds": 20.0}


def choose_kinds(count: int, chance: Random) -> list[list[str]]:
    """The kinds of so many scenarios: all before any comes again, and each fifth has two at once."""
    bag: list[str] = []
    scenarios: list[list[str]] = []
    for number in range(count):
        kinds: list[str] = []
        while len(kinds) < (2 if number % 5 == 4 else 1):
            bag = bag or chance.sample(sorted(KINDS), len(KINDS))
            kinds.append(bag.pop())
        # The last of one bag and the first of the next may be the same.
        scenarios.append(list(dict.fromkeys(kinds)))
    return scenarios


def figures_of(outcomes: list[Outcome]) -> dict[str, float]:
    causes = sum(len(outcome.kinds) for outcome in outcomes)
    waits = [math.inf if outcome.notified_seconds is None else outcome.notified_seconds for outcome in outcomes]
    return {
        "scenarios": len(outcomes),
        "causes": causes,
        "found_share": sum(sum(outcome.found) for outcome in outcomes) / causes,
        "incidents_a_cause": max(len(outcome.incidents) / len(outcome.kinds) for outcome in outcomes),
        "mean_incidents_a_cause": fmean(len(outcome.incidents) / len(outcome.kinds) for outcome in outcomes),
        "notified_p95_seconds": float(np.quantile(waits, 0.95, method="inverted_cdf")),
        "notified_p50_seconds": float(np.quantile(waits, 0.5, method="inverted_cdf")),
    }


def _play(shop: Shop, kinds: list[str], chance: Random) -> Outcome:
    outcome = play(shop, kinds, chance)
    log.warning("%s", outcome)
    return outcome


def run(seconds: float) -> dict[str, Any]:
    chance = Random(SEED)
    with Shop() as shop:
        shop.open()
        scenarios = choose_kinds(max(1, round(seconds / SCENARIO_SECONDS)), chance)
        outcomes = [_play(shop, kinds, chance) for kinds in scenarios]
    figures = figures_of(outcomes)
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items()},
        "at_least": ["found_share"],
        "said": {"scenarios": [outcome.document() for outcome in outcomes]},
    }
