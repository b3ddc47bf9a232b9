"""The types of ASGI: what a server passes to an application, and both say to each other.

They are those of every ASGI library: `asgiref.typing` knows every message, and no library accepts its types.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = dict[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Reply: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[Reply], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
