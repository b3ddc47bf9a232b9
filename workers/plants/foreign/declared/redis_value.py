"""One number from a Redis or Valkey server, by a command that only reads and has a bounded cost.

| command | the number |
|---|---|
| LLEN, SCARD, ZCARD, HLEN, XLEN key | number of entries; 0 if the key does not exist |
| ZCOUNT key from to | members with scores between the two |
| EXISTS key | 1 or 0 |
| GET key; HGET key field; ZSCORE key member | the stored number; unknown if there is none |

The address comes from the environment: the person who sets it decides which login is used. That login needs only these
commands (`+@read`).
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

import redis

from common.documents import decode_text
from common.errors import BadInput
from workers.plants.foreign import redis_client
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

MAX_NUMBER = 100
# command → number of words after it
COMMANDS: Mapping[str, int] = {
    "LLEN": 1,
    "SCARD": 1,
    "ZCARD": 1,
    "HLEN": 1,
    "XLEN": 1,
    "ZCOUNT": 3,
    "EXISTS": 1,
    "GET": 1,
    "HGET": 2,
    "ZSCORE": 2,
}


def read_command(text: str, where: str) -> tuple[str, ...]:
    """Return the words of a command; a word with spaces is quoted. Raise `BadInput`."""
    try:
        name, *rest = shlex.split(text)
    except ValueError as error:
        raise BadInput(where, f"is not a valid command ({str(error).rstrip('.').lower()})") from None
    if (count := COMMANDS.get(name.upper())) is None:
        raise BadInput(where, f"must start with one of {', '.join(COMMANDS)}, not {name[:40]!r}")
    if len(rest) != count:
        words = "one word" if count == 1 else f"{count} words"
        raise BadInput(where, f"must have {words} after {name.upper()}, not {len(rest)}")
    return (name.upper(), *rest)


def read_single_value(name: str, address: str, command: Sequence[str]) -> Any:
    """Return the server's answer, or None if the value does not exist.

    `name` appears in error messages; the address never does, because it contains a password. Raise `PlantUnavailable`
    and `InvalidPlantResponse`.
    """
    # One connection per reading: sensors are few, and a server that moved is found again.
    with redis_client.open_client(name, address) as server:
        try:
            return _answer(name, server, command)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise PlantUnavailable(
                f"{name}: the request to the server failed ({redis_client.describe_error(error)})."
            ) from None
        except redis.RedisError as error:
            raise InvalidPlantResponse(f"{name}: {redis_client.describe_error(error)}.") from None


def _answer(name: str, server: redis.Redis, command: Sequence[str]) -> Any:
    """Return the answer.

    A value that is not a number may be long, so only the length of a number is requested.
    """
    kind, *rest = command
    if kind == "GET":
        text = cast(bytes, server.getrange(rest[0], 0, MAX_NUMBER))
        return decode_text(text, "replace") or None
    if kind == "HGET" and server.hstrlen(rest[0], rest[1]) > MAX_NUMBER:
        raise InvalidPlantResponse(f"{name}: {rest[0]} {rest[1]} does not contain a number.")
    untyped: Any = server
    text = untyped.execute_command(*command)
    return decode_text(text, "replace") if isinstance(text, bytes) else text
