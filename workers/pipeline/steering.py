"""Steering a running application: its controls on the control server, changed whole or not at all."""

import json
from collections.abc import Mapping
from typing import Any

import redis

from workers.pipeline.controls import Controls, key_of

# KEYS controls; ARGV what they were, what they are to be. 0: somebody else has changed them meanwhile.
_REPLACE = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


def steer(control: redis.Redis, application: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Puts these values in place of the application's; what is steered now. Taking the same again changes
    nothing. Raises BadInput naming the control.
    """
    replace = control.register_script(_REPLACE)
    key = key_of(application)
    while True:
        stored = control.get(key) or b""
        before = json.loads(stored) if stored else {}
        wanted = {**before, **changes}
        if wanted == before:
            return before
        wanted["revision"] = before.get("revision", 0) + 1
        Controls().changed(wanted)
        if replace(keys=[key], args=[stored, json.dumps(wanted)]):
            return wanted
