"""One number from a Redis or Valkey server, by a command that only reads and whose cost has a bound.

| command | the number |
|---|---|
| LLEN, SCARD, ZCARD, HLEN, XLEN key | how many it holds; 0 where there is no such key |
| ZCOUNT key from to | members with scores between the two |
| EXISTS key | 1 or 0 |
| GET key; HGET key field; ZSCORE key member | the number that stands there; none: not known |

The address comes from the environment: whoever sets it decides which login is used, and that login needs no
more than these commands (`+@read`).
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

import redis

from queues.documents import decoded_text
from queues.errors import BadInput
from workers.plants.foreign import redis_client
from workers.plants.plant import PlantConfused, PlantSilent

LONGEST_NUMBER = 100
# Each with the number of words behind it.
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
    """Its words; one with spaces stands in quotes. Raises BadInput."""
    try:
        name, *rest = shlex.split(text)
    except ValueError as error:
        raise BadInput(where, f"is no command ({str(error).rstrip('.').lower()})") from None
    if (count := COMMANDS.get(name.upper())) is None:
        raise BadInput(where, f"takes one of {', '.join(COMMANDS)}, not {name[:40]!r}")
    if len(rest) != count:
        words = "one word" if count == 1 else f"{count} words"
        raise BadInput(where, f"takes {words} behind {name.upper()}, not {len(rest)}")
    return (name.upper(), *rest)


def one_number(name: str, address: str, command: Sequence[str]) -> Any:
    """What the server answers; None where nothing is there. `name` stands in what is said, never the address:
    it holds a password. Raises PlantSilent and PlantConfused.
    """
    # A connection for each look: sensors are few, and a server that moved is found again.
    with redis_client.client_of(name, address) as server:
        try:
            return _answer(name, server, command)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise PlantSilent(
                f"{name}: the server can't be asked ({redis_client.describe_error(error)})."
            ) from None
        except redis.RedisError as error:
            raise PlantConfused(f"{name}: {redis_client.describe_error(error)}.") from None


def _answer(name: str, server: redis.Redis, command: Sequence[str]) -> Any:
    """A value that is no number may be of any length, so no more of it is asked for than a number needs."""
    kind, *rest = command
    if kind == "GET":
        text = cast(bytes, server.getrange(rest[0], 0, LONGEST_NUMBER))
        return decoded_text(text, "replace") or None
    if kind == "HGET" and server.hstrlen(rest[0], rest[1]) > LONGEST_NUMBER:
        raise PlantConfused(f"{name}: {rest[0]} {rest[1]} holds no number.")
    untyped: Any = server
    text = untyped.execute_command(*command)
    return decoded_text(text, "replace") if isinstance(text, bytes) else text
