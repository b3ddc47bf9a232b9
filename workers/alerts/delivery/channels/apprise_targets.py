"""An apprise address that names several chats, as a service for each chat.

For several chats, apprise answers only whether all have a message. Only `apprise_process` imports this module: apprise
takes a second to load.
"""

import hashlib
import hmac
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

# The parts of an address that apprise reads, where the names of the chats are, too.
_WITH_NAMES = frozenset({"url", "fullpath", "path", "query"})
_MARK_DIGITS = 16


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """One of several chats.

    `mark` identifies it in the record of who has a message, without revealing who it is; "" for the only one, which may
    still represent several.
    """

    mark: str
    service: Any


def list_chat_targets(address: str, key: str, asset: Any) -> list[ChatTarget]:
    """Return each chat once; none if apprise does not know the address.

    What apprise takes for no name of a chat is left out, as apprise does. `key` is the message's.
    """
    from apprise import Apprise, plugins

    read: Any = plugins.url_to_dict  # apprise has no types
    parsed: dict[str, Any] = read(address, secure_logging=True) or {}
    names = _list_target_names(parsed)
    targets = []
    for name in names if len(names) > 1 else ():
        service = Apprise.instantiate({**deepcopy(parsed), "targets": [name]}, asset=asset)
        if service is not None:
            targets.append(ChatTarget(_mark(parsed, key, name), service))
    if targets:
        return targets
    whole = Apprise.instantiate(address, asset=asset)
    return [] if whole is None else [ChatTarget("", whole)]


def _list_target_names(parsed: Mapping[str, Any]) -> list[str]:
    names = parsed.get("targets")
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return list(dict.fromkeys(names)) if is_list and names else []


def _mark(parsed: Mapping[str, Any], key: str, name: str) -> str:
    """Return the mark of a chat.

    The mark is the same for as long as the login at the service is the same, regardless of the other chats named beside
    it.
    """
    login = sorted(
        (field, value) for field, value in parsed.items() if isinstance(value, str) and field not in _WITH_NAMES
    )
    made = hmac.new(repr((key, login)).encode(), name.encode(), hashlib.sha256)
    return made.hexdigest()[:_MARK_DIGITS]
