"""Steering a running application: its controls on the control server, changed whole or not at all."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import redis

from queues import keys
from queues.lua.script import script
from workers.pipeline.declaration.controls import Controls


def steer(control: redis.Redis, application: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Puts these values in place of the application's; what is steered now. Taking the same again changes
    nothing. Raises BadInput naming the control.
    """
    return _change_orders(control, application, lambda before: {**before, **changes})


def steer_named(
    control: redis.Redis,
    application: str,
    name: str,
    values: Mapping[str, Any],
    declared: Mapping[str, Any],
) -> dict[str, Any]:
    """Puts values in place of those of a control that is by name (tasks, criteria), None takes one away; the
    others stay as they are steered, or `declared`, whoever else steers meanwhile.
    """

    def change(before: dict[str, Any]) -> dict[str, Any]:
        known = {**before.get(name, declared), **values}
        return {**before, name: {each: value for each, value in known.items() if value is not None}}

    return _change_orders(control, application, change)


def _change_orders(
    control: redis.Redis, application: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    replace = control.register_script(script("pipeline/replace_controls"))
    key = keys.PIPELINE_CONTROLS.build(application)
    while True:
        stored = control.get(key) or b""
        before = json.loads(stored) if stored else {}
        wanted = change(before)
        if wanted == before:
            return before
        wanted["revision"] = before.get("revision", 0) + 1
        Controls().apply_changes(wanted)
        if replace(keys=[key], args=[stored, json.dumps(wanted)]):
            return wanted
