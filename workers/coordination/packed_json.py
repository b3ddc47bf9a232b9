"""A JSON column that is read and written whole and never searched, compressed to a fifth of its size.

Every tick of every loop writes several such documents, and most of each consists of the same few names. Those are in
DICTIONARY, which both sides know, so that only the differences are stored.
"""

import json
import math
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import orjson
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from common.stored_document import get_decoder

# The first byte of a packed document; JSON text, which older rows have, never starts with it.
MARK = b"\x01"
# Every tick packs several documents. Level 6 takes a sixth longer and saves 4 % of the bytes. A window of 4 KB holds
# the dictionary and a usual document; a larger one takes longer to set up.
LEVEL, WINDOW_BITS, MEMORY_LEVEL = 3, 12, 5
# Stored rows depend on it: never change it. The most common texts are last, where zlib finds them nearest.
DICTIONARY = b"""
{"moves":[{"queue":"from":"to":"points":"alert""process"{"nodes":[{"name":"capacity":"drained":"state":"OFFLINE"
"IDLE""BUSY""TOOBUSY""queues":[{"rate":"containers":{"n1":333,"n2":333,"n3":334},"minimum_containers":2}
{"before":{"queue_length":"removed_events":"workers_started":"node_state":"NORMAL"},"after":{"share":"actual":
{"metric":"removed_events","direction":"up","amount":"after_seconds":"settling_seconds":
{"law":{"rate":0.0,"carry":0.0,"history":[0,0,0,0,0,0,0,0,0,0,0,0],"arrivals":{"level":"trend":"deviation":},
"executed":0.0,"cap":null,"waited_seconds":0.0,"pledged":0.0},"guard":{"applied":"applied_at":"actuator":"sign":
"changes":[],"held_since":null},"sensor":{"removed_events":"workers_started":}}
{"method":"forecast","rate":0.0,"rate_per_second":0.0,"arrived":0.0,"arrivals_per_second":0.0,"trend_per_second":
0.0,"deviation_per_second":0.0,"coming":0.0,"found":0.0,"backlog_events":0.0,"full_workers":0,"rest":0.0,
"age_seconds":0.0,"patience_seconds":4.0,"upper_limit":1000,"backlog":false,"executed":0.0,"cap":null,"removed":0,
"started":0,"waiting_to_run":0,"running":0,"node_state":"NORMAL","ahead":0}
{"queue_length":0,"removed":0,"started":0,"waiting_to_run":0,"running":0,"oldest_seconds":null,"node_state":
"NORMAL","age_seconds":0.2,"unfit":null}
{"method":"forecast","events_per_worker":5000,"upper_limit":1000,"interval_seconds":2,"max_wait_seconds":4.0,
"limit_wait_seconds":60.0,"fill_share":0.82,"lead_seconds":1.0,"trend_gain":0.1,"caution":0.4,"lower_share":0.5,
"raise_factor":1.2,"lower_factor":0.9,"history":12,"low_count":4,"backlog_factor":2.0,"backlog_workers":1,
"maximum_waiting_to_run":20,"pool_patience":2.0,"pool_allowance":4,"toobusy_share":0.7,"initial_rate":1.0,
"minimum_rate":1.0,"maximum_rate":1000.0,"start_when":"waiting","guard":{"minimum":null,"maximum":100,"slew_up":50,
"slew_down":null,"cooldown_seconds":0.0,"stale_seconds":5.0}}
""".replace(b"\n", b"")


# The longest documents are the parameters of loops, and many loops have equal parameters.
MIN_SHARED_BYTES = 600
# This packer has loaded the dictionary. Copying it is faster than creating a packer.
_PACKER = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
FLAT = frozenset({int, str, bool, type(None)})  # types of values that contain no infinity or NaN
_AS_JSON = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def pack(document: object) -> bytes:
    """Return a document in its stored form. Raises `TypeError` if it is not JSON."""
    text = encode_json(document)
    return _compress(text) if len(text) < MIN_SHARED_BYTES else _compress_shared(text)


def _compress(text: bytes) -> bytes:
    packer = _PACKER.copy()
    return MARK + packer.compress(text) + packer.flush()


_compress_shared = lru_cache(maxsize=256)(_compress)


def encode_json(document: object) -> bytes:
    """Return a document as JSON text. Raises `TypeError` if it is not JSON."""
    try:
        text = orjson.dumps(document, option=_AS_JSON)
    except TypeError:  # a number of more than 64 bits, or half of a surrogate pair
        return json.dumps(document, separators=(",", ":")).encode()
    # orjson writes null for a number that is not finite, such as a law's term without a limit.
    if b"null" in text and not _is_finite(document):
        return json.dumps(document, separators=(",", ":")).encode()
    return text


def _is_finite(document: object) -> bool:
    """Return whether all numbers of a document are finite. Each tick checks several documents of each loop."""
    if isinstance(document, float):
        return math.isfinite(document)
    if isinstance(document, dict):
        parts: Iterable[object] = document.values()
    elif isinstance(document, list | tuple):
        parts = document
    else:
        return True
    for part in parts:
        kind = type(part)
        if kind is float:  # most parts; a call for each takes four times as long
            if not -math.inf < part < math.inf:  # type: ignore[operator]
                return False
        elif kind not in FLAT and not _is_finite(part):
            return False
    return True


def unpack(stored: bytes | str) -> object:
    """Return the stored document, packed or JSON text."""
    if isinstance(stored, str) or bytes(stored[:1]) != MARK:
        return json.loads(stored)
    text = zlib.decompressobj(zdict=DICTIONARY).decompress(bytes(stored)[1:])
    try:
        return get_decoder(Any).decode(text)
    except msgspec.DecodeError:  # a number that is not finite, or half of a surrogate pair
        return json.loads(text)


class PackedJSONField(models.BinaryField):  # type: ignore[type-arg] # a field takes no types as it runs
    """A field of JSON documents; None is null. It supports no filter except for null."""

    def get_db_prep_value(self, value: object, connection: BaseDatabaseWrapper, prepared: bool = False) -> object:
        stored = None if value is None else pack(value)
        return super().get_db_prep_value(stored, connection, prepared)

    def from_db_value(self, value: bytes | str | None, expression: object, connection: object) -> object:
        return None if value is None else unpack(value)

    def to_python(self, value: object) -> object:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))
