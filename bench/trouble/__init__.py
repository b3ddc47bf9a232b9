"""Trouble as an operator sees it: does the console name the cause, and does its first action end the trouble?

A plant (./run) with the small shop of `bench.causes`, and a browser on the overview. Each kind of trouble comes as in
earnest: a producer, a changed handler, a signal to a process. Every half second the headlines, the impact, the first
action, and the strip are read. Then the right action is pressed.

    named             seconds until all causes are named by a headline
    named share       share of the readings from KNOWN_SECONDS after the first effect on, until the action is pressed,
                      that name all of them; of what ends without an action, those after its end that name nothing
    changes           the most changes of the first headline within CHANGE_SECONDS
    incidents         alerts that fired and that no other explains
    notifications     calls of a webhook, including those for the end
    clicks, taps      from another page to the end of the action, on a desktop and on a phone
    ended             seconds until no critical problem is left, after the action; or after the trouble, if nothing
                      has to be done

`--seconds`: one kind for each TROUBLE_SECONDS of them; 1,980 for all. The table is logged; readings and figures are
written to `trouble.json` in the data folder.
"""

import json
import logging
from pathlib import Path
from random import Random
from typing import Any

from django.conf import settings

from bench.causes.shop import Shop
from bench.console.browser import chromium
from bench.trouble.kinds import TROUBLES
from bench.trouble.outcome import Outcome, format_table
from bench.trouble.play import Console, play

log = logging.getLogger(__name__)
TROUBLE_SECONDS = 180.0
SEED = 58
MISSED = 99.0  # clicks and taps where the action is missing
LIMITS = {
    "named_share": 1.0,
    "headline_changes": 1.0,
    "incidents_a_cause": 1.0,
    "notifications_a_cause": 2.0,
    "clicks": 3.0,
    "taps": 4.0,
    "ended_share": 1.0,
}
AT_LEAST = ["named_share", "ended_share"]


def run(seconds: float) -> dict[str, Any]:
    chance = Random(SEED)
    count = min(len(TROUBLES), max(1, round(seconds / TROUBLE_SECONDS)))
    outcomes: list[Outcome] = []
    with Shop() as shop, chromium() as browser:
        shop.open()
        console = Console(browser, shop.url, shop.password)
        for trouble in TROUBLES[:count]:
            outcomes.append(play(shop, console, trouble, chance))
            log.warning("%s", format_table(outcomes[-1:]))
            _write(outcomes)
    log.warning("\n%s", format_table(outcomes))
    figures = figures_of(outcomes)
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: (figures[name] or 0.0) / limit for name, limit in LIMITS.items()},
        "at_least": AT_LEAST,
        "said": {"table": format_table(outcomes)},
    }


def _write(outcomes: list[Outcome]) -> None:
    """Write what is known so far."""
    document = {"figures": figures_of(outcomes), "outcomes": [outcome.document() for outcome in outcomes]}
    Path(settings.WEIR_DATA).mkdir(parents=True, exist_ok=True)
    (Path(settings.WEIR_DATA) / "trouble.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def figures_of(outcomes: list[Outcome]) -> dict[str, float]:
    """Return the worst of all kinds. What could not be measured counts as the worst value."""
    acted = [outcome for outcome in outcomes if outcome.needs_action]
    return {
        "kinds": len(outcomes),
        "named_share": min(outcome.named_share for outcome in outcomes),
        "headline_changes": max(outcome.headline_changes for outcome in outcomes),
        "incidents_a_cause": max(len(outcome.incidents) / outcome.causes for outcome in outcomes),
        "notifications_a_cause": max(outcome.notifications / outcome.causes for outcome in outcomes),
        "clicks": max((outcome.clicks or MISSED for outcome in acted), default=0.0),
        "taps": max((outcome.taps or MISSED for outcome in acted), default=0.0),
        "ended_share": sum(outcome.ended_seconds is not None for outcome in outcomes) / len(outcomes),
    }
