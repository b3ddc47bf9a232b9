"""An apprise address that names several chats, as a service for each chat.

For several chats, apprise answers only whether all have a message. Only `apprise_process` imports this module: apprise
takes a second to load.
"""

import hashlib
import hmac
import ipaddress
import logging
import mimetypes
import os
import re
import sys
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote_plus

from common.errors import BadInput
from workers.alerts.delivery.message_text import keep_whole_lines
from workers.host import bounded_process, egress

if TYPE_CHECKING:
    from apprise import AppriseAsset, NotifyBase

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
    service: "NotifyBase"


def list_chat_targets(address: str, key: str, asset: "AppriseAsset") -> list[ChatTarget]:
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


# Services without a network address: they talk to the desktop or the log of this host.
OF_THIS_HOST = frozenset({"dbus", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"})
CONNECTIONS = frozenset({"socket.connect", "socket.sendmsg", "socket.sendto"})
REFUSED_EVENTS = ("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "syslog.")
# What libraries read: themselves, certificates, and the list of file types.
_FOLDERS = (sys.prefix, sys.base_prefix, "/usr/share", "/etc/ssl", "/etc/pki")
READABLE = tuple(map(os.path.realpath, _FOLDERS))
# By these names, regardless of where they lead: resolv.conf is a link on many hosts.
READABLE_FILES = frozenset({"/dev/null", "/dev/urandom", "/etc/hosts", "/etc/resolv.conf", *mimetypes.knownfiles})
MAX_MEMORY_BYTES = 1 << 30  # A service that answers without end must not exhaust the host.
MAX_CORE_SECONDS = 30
REQUEST_SECONDS = 10.0
SENDING_SECONDS = 30.0  # of those that the process has, to start with one more of several
NOT_ALL = "Not delivered to all targets of the address: "
# What services say once one of several has the message. With counts ("Sent 3/3", "to 0 of 3") it may be none.
SENT = re.compile(r"Sent (?!.*\d(/| of )\d)")
TITLE_MARKS = 16  # characters around a title within a body, such as <b></b><br />
MIN_SECRET = 4  # characters: shorter parts of an address are words, not secrets
MAX_ERROR = 400


class EgressGuard:
    """The audit hook. `refusals`: why connections were refused, in words; `unread`: refused files."""

    def __init__(self, allowed: str) -> None:
        self._allowed = egress.parse_networks(allowed)
        self.refusals: list[str] = []
        self.unread: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CONNECTIONS:
            self._check(arguments[-1])
        elif event == "open":
            self._check_file(arguments[0])
        elif event.startswith(REFUSED_EVENTS):
            self._refuse(f"the service tried to use {event}, which is blocked.")

    def _check_file(self, path: int | str | bytes | os.PathLike[str]) -> None:
        if isinstance(path, int):  # opened, and therefore checked
            return
        name = os.fsdecode(path)
        real = os.path.realpath(name)
        if name in READABLE_FILES or any(real == readable or real.startswith(f"{readable}/") for readable in READABLE):
            return
        why = f"the service tried to open {real}, but access to files of this host is blocked."
        self.unread.append(why)
        raise PermissionError(why)

    def _check(self, address: object) -> None:
        if address is None:  # of a socket that is connected, and therefore was checked
            return
        if not isinstance(address, tuple):
            self._refuse("the service tried to use a socket of this host, which is blocked.")
        host, port = str(address[0]).partition("%")[0], int(address[1])
        try:
            why = egress.explain_refusal(ipaddress.ip_address(host), self._allowed)
            egress.check_port(port)
        except BadInput as error:
            why = error.message
        except ValueError:
            why = f"leads to {host[:60]!r}, which is not an IP address."
        if why:
            self._refuse(f"the address {why}")

    def _refuse(self, why: str) -> NoReturn:
        self.refusals.append(why)
        raise ConnectionRefusedError(why)


def _answer(order: Mapping[str, Any]) -> dict[str, Any]:
    """Send the message to those that do not have it yet.

    `sent`: all have it, or as many as can be known of; `error`: why not, or who was left out, in words
    without the address; `reached`: marks of those that have it.
    """
    import apprise  # Imported here: the guard's own tests need not wait for its 190 services.

    asset = apprise.AppriseAsset(
        http_redirects=False,
        secure_logging=True,
        plugin_paths=[],
        storage_mode="memory",
        allow_templates=False,
        service_timeout=REQUEST_SECONDS,
    )
    address = order["address"].strip()
    if re.split(r"[^a-z0-9+.-]", address.lower(), maxsplit=1)[0] in OF_THIS_HOST:
        return _report_refusal(
            "The address names a local service of this host. Use a service that is reached over the network."
        )
    targets = list_chat_targets(address, order["key"], asset)
    if not targets:
        return _report_refusal(
            "Apprise does not support the address. Use an address such as slack://… or pagerduty://…."
        )
    try_one = _GuardedAttempt(order, EgressGuard(order["allowed"]))
    if targets[0].mark:
        return _to_several(targets, order, try_one)
    why = try_one.describe_failure(targets[0].service)
    return {"sent": not why or try_one.said.sent, "error": why, "reached": []}


def _report_refusal(why: str) -> dict[str, Any]:
    return {"sent": False, "error": why, "reached": []}


def _to_several(targets: list[ChatTarget], order: Mapping[str, Any], try_one: "_GuardedAttempt") -> dict[str, Any]:
    """Send to each target separately, and to none that has it.

    Each try starts with another target, so that one that hangs can't take the time of the others forever.
    """
    until = time.monotonic() + SENDING_SECONDS
    reached, failures = list(order["reached"]), []
    left = [target for target in targets if target.mark not in reached]
    first = order["tries"] % max(1, len(left))
    for target in [*left[first:], *left[:first]]:
        late = time.monotonic() > until
        if why := "there was not enough time for all targets" if late else try_one.describe_failure(target.service):
            failures.append(why)
        else:
            reached.append(target.mark)
    some = NOT_ALL if failures and reached else ""
    error = "; ".join(dict.fromkeys(failures))
    return {"sent": not failures, "error": f"{some}{error}"[:MAX_ERROR], "reached": reached}


class _GuardedAttempt:
    """One try after the other, under one guard: a Python audit hook can't be removed."""

    def __init__(self, order: Mapping[str, Any], guard: EgressGuard) -> None:
        self._order, self._guard = order, guard
        self.said = _AppriseOutput()
        logger = logging.getLogger("apprise")
        logger.addHandler(self.said)
        logger.setLevel(logging.INFO)
        sys.addaudithook(guard)

    def describe_failure(self, service: "NotifyBase") -> str:
        """Return why the message was not sent, without the address, or "" if it was sent.

        The message must be sent to all that the service represents.
        """
        said, guard = self.said, self._guard
        for lines in (said.lines, guard.refusals, guard.unread):
            lines.clear()
        said.sent = False
        if self._is_taken(service) and not guard.refusals:
            return ""
        why = "; ".join(dict.fromkeys(guard.refusals or guard.unread or said.lines)) or "no reason given"
        some = " did not deliver to all targets of the address" if said.sent else ""
        text = remove_secrets(f"{service.service_name}{some}: {why}", self._order["address"].strip())
        return text[:MAX_ERROR]

    def _is_taken(self, service: "NotifyBase") -> bool:
        import apprise

        service.redirects = False  # regardless of what the address says about it
        service.overflow_mode = apprise.OverflowMode.TRUNCATE
        try:
            # A service that accepts HTML needs our line breaks as HTML. Markdown is sent as it is: masking
            # its marks would break the links.
            is_html = service.resolve_format(None) == apprise.NotifyFormat.HTML
            return bool(
                service.notify(
                    body=keep_whole_lines(self._order["body"], _compute_max_characters(service, self._order, is_html)),
                    title=self._order["title"],
                    notify_type=self._order["kind"],
                    body_format=apprise.NotifyFormat.TEXT if is_html else None,
                )
            )
        except Exception as error:  # of any library that the service brings
            self.said.lines.append(repr(error))
            return False


def _compute_max_characters(service: "NotifyBase", order: Mapping[str, Any], is_html: bool) -> int:
    """Return how much of the body the service accepts.

    The title may be part of the body or count with it, and HTML marks take some of it.
    """
    most = int(service.body_maxlen) - len(order["title"]) - TITLE_MARKS
    return most - most // 10 if is_html else most


class _AppriseOutput(logging.Handler):
    """The warnings of apprise; `sent`: whether any of the targets that an address names took the message.

    Of several, apprise answers only that not all did; the services log which ones did.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.sent = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.lines.append(record.getMessage())
        elif SENT.match(record.getMessage()):
            self.sent = True


def remove_secrets(text: str, address: str) -> str:
    """Return a text without any part of an address except the kind of service.

    Parts that the service has decoded, or in which it changed upper and lower case, are removed too.
    """
    after = address.partition("://")[2]
    written = re.split(r"[/:@?&=#,\s]+", after)
    parts = {part for word in written for part in (word, unquote_plus(word)) if len(part) >= MIN_SECRET}
    for part in sorted(parts, key=len, reverse=True):
        text = re.sub(re.escape(part), "…", text, flags=re.IGNORECASE)
    return text


if __name__ == "__main__":
    bounded_process.serve(_answer, MAX_MEMORY_BYTES, MAX_CORE_SECONDS)
