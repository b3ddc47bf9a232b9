"""Changes of the controls of a running application on the control server, atomic."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import redis

from queues import keys
from queues.lua.script import load_script
from workers.pipeline.declaration.controls import Controls


def steer(control: redis.Redis, application: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change these control values of the application and return all that are set.

    Applying the same values again changes nothing. Raises `BadInput` that names the control.
    """
    return _change_orders(control, application, lambda before: {**before, **changes})


def steer_named(
    control: redis.Redis, application: str, name: str, values: Mapping[str, Any], declared: Mapping[str, Any]
) -> dict[str, Any]:
    """Change values of a control that maps names to values (tasks, criteria); None removes a value.

    The other values stay as they are set, or as `declared`, even if others change them concurrently.
    """

    def change(before: dict[str, Any]) -> dict[str, Any]:
        known = {**before.get(name, declared), **values}
        return {**before, name: {each: value for each, value in known.items() if value is not None}}

    return _change_orders(control, application, change)


def _change_orders(
    control: redis.Redis, application: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    replace = control.register_script(load_script("pipeline/replace_controls"))
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
