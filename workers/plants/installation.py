"""The id of this Weir: it differs from that of another one, which may have given the same names.

Made once, on the control server. Who may not write there and finds none has none yet: it is nobody's.
"""

import secrets

import redis

from queues import keys

ID_BYTES = 4


def installation_id(control: redis.Redis) -> str:
    """Eight hexadecimal digits; the same for all of its processes."""
    stored = control.get(keys.INSTALLATION)
    if stored is None:
        control.set(keys.INSTALLATION, secrets.token_hex(ID_BYTES), nx=True)
        stored = control.get(keys.INSTALLATION)
    return stored.decode() if isinstance(stored, bytes) else str(stored or "")
