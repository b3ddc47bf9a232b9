"""Where a Celery app on Redis (Valkey) stores its messages, according to its `broker_transport_options`.

Two clients use the broker: kombu's, which asks workers and receives their events, and one that counts waiting messages.
Both follow the layout that is read here, so an option always applies to both.

An app names its lists `queue`, a separator, and a priority. It uses the same separator in the bindings of queues, so
kombu must know it before it binds a queue of its own: a binding that workers can't read breaks every answer of the
app's own remote control. The bindings that workers have made show which separator it is.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common import checks
from common.errors import BadInput
from workers.plants.foreign.kind import PlantAddress

OPTION = "transport_options"
MAX_OPTION_CHARACTERS = 2_000
ANY_SEPARATOR, USUAL_SEPARATOR = "any", "usual"
SEPARATORS: Mapping[str, tuple[str, ...]] = {
    ANY_SEPARATOR: ("\x06\x16", ":"),
    USUAL_SEPARATOR: ("\x06\x16",),
    ":": (":",),
}
PRIORITIES = tuple(range(10))
_TEXT = checks.accept_matching_text(re.compile(r".{1,100}\Z", re.DOTALL), "a string of 1 to 100 characters")
_FOLLOWED: Mapping[str, checks.Check] = {
    "fanout_patterns": checks.accept_boolean(),
    "fanout_prefix": checks.accept_either(checks.accept_boolean(), _TEXT),
    "global_keyprefix": _TEXT,
    "priority_steps": checks.list_of(checks.accept_whole_number(0, 9), "a list of numbers from 0 to 9"),
    "sep": _TEXT,
    "unacked_key": _TEXT,
}
# These options concern the app's own consumers and connections: Weir takes no task, restores none, and has
# its own timeouts. They are accepted so that an app's options can be copied unchanged.
_OF_ITS_CONSUMERS = frozenset(
    {
        "ack_emulation",
        "client_name",
        "health_check_interval",
        "max_connections",
        "max_retries",
        "queue_order_strategy",
        "retry_on_timeout",
        "retry_policy",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_timeout",
        "unacked_index_key",
        "unacked_mutex_expire",
        "unacked_mutex_key",
        "unacked_restore_interval",
        "unacked_restore_limit",
        "unacked_restore_throttle",
        "visibility_timeout",
    }
)
_KNOWN = sorted({*_FOLLOWED, *_OF_ITS_CONSUMERS})
# A worker's own queue is bound with two empty parts in front of its name.
_TWO_EMPTY_PARTS = re.compile(r"(.+?)\1(?!\1)", re.DOTALL)


@dataclass(frozen=True)
class RedisLayout:
    """The layout of the broker.

    separators: possible separators in list names; kombu uses the first if workers show none. follows: whether kombu
    uses the separator that workers show. priorities: those that have a list.
    """

    separators: tuple[str, ...] = SEPARATORS[ANY_SEPARATOR]
    follows: bool = True
    prefix: str = ""
    fanout_prefix: bool | str = True
    fanout_patterns: bool = True
    unacked_key: str = "unacked"
    priorities: tuple[int, ...] = PRIORITIES

    def build_kombu_options(self) -> dict[str, Any]:
        """Return the options for kombu's transport."""
        return {
            "sep": self.separators[0],
            "follows_separator": self.follows,
            "global_keyprefix": self.prefix,
            "fanout_prefix": self.fanout_prefix,
            "fanout_patterns": self.fanout_patterns,
            "unacked_key": self.unacked_key,
        }

    def list_queue_keys(self, queue: str) -> list[tuple[int, str]]:
        """Return the priority and the key of each list that the queue may have."""
        name = f"{self.prefix}{queue}"
        more = [
            (priority, f"{name}{separator}{priority}")
            for priority in self.priorities
            if priority
            for separator in self.separators
        ]
        return [(0, name), *more]

    @property
    def unacknowledged(self) -> str:
        """Return the key of the messages that workers have taken and not acknowledged."""
        return f"{self.prefix}{self.unacked_key}"


def read_layout(address: PlantAddress) -> RedisLayout:
    """Read the options of a registration. Raise `BadInput`, naming the option."""
    options = _parse_transport_options(address.get_option(OPTION))
    separator, prefix = address.get_option("separator"), address.get_option("prefix")
    declared = options.get("sep")
    if declared and separator and declared not in SEPARATORS[separator]:
        raise BadInput("separator", f"is {separator}, but {OPTION} has sep {declared!r}; remove one.")
    if prefix and options.get("global_keyprefix", prefix) != prefix:
        raise BadInput("prefix", f"differs from global_keyprefix in {OPTION}; remove one.")
    separators = (declared,) if declared else SEPARATORS[separator or ANY_SEPARATOR]
    usual = RedisLayout()
    return RedisLayout(
        separators=separators,
        follows=len(separators) > 1,
        prefix=prefix or options.get("global_keyprefix", ""),
        fanout_prefix=options.get("fanout_prefix", usual.fanout_prefix),
        fanout_patterns=options.get("fanout_patterns", usual.fanout_patterns),
        unacked_key=options.get("unacked_key", usual.unacked_key),
        priorities=tuple(options.get("priority_steps", usual.priorities)),
    )


def _parse_transport_options(text: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(OPTION, 'must be a JSON object, such as {"sep": ":"}.') from None
    if not isinstance(options, dict):
        raise BadInput(
            OPTION, f'must be a JSON object, such as {{"sep": ":"}}, not {checks.shorten_for_message(options)}.'
        )
    checks.refuse_unknown(options, _KNOWN, OPTION)
    return {
        name: check.validate(options[name], f"{OPTION}.{name}", end=".")
        for name, check in _FOLLOWED.items()
        if name in options
    }


def find_binding_separators(bindings: Iterable[str | bytes]) -> list[str]:
    """Return the separators of workers' own bindings, most frequent first."""
    texts = [binding.decode("utf-8", "replace") if isinstance(binding, bytes) else binding for binding in bindings]
    separators = [match[1] for text in texts if (match := _TWO_EMPTY_PARTS.match(text))]
    return sorted(set(separators), key=lambda separator: (-separators.count(separator), separator))
