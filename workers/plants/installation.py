"""The id of this Weir, which distinguishes it from another one that may use the same names.

It is made once, on the control server. A process that may not write there and finds none has no id.
"""

import secrets

import redis

from queues import keys

ID_BYTES = 4


def get_installation_id(control: redis.Redis) -> str:
    """Return eight hexadecimal digits, the same for all processes of this Weir."""
    stored = control.get(keys.INSTALLATION)
    if stored is None:
        control.set(keys.INSTALLATION, secrets.token_hex(ID_BYTES), nx=True)
        stored = control.get(keys.INSTALLATION)
    return stored.decode() if isinstance(stored, bytes) else str(stored or "")
