"""A Kafka client (librdkafka) that connects to no address that the egress policy refuses.

librdkafka connects on its own to every broker that the cluster names, and reconnects at any time. It calls its
`connect_cb` to make each connection, with the address that it resolved. confluent-kafka doesn't offer that setting, so
it is set in the library itself, before the client has its first broker to connect to.
"""

import ctypes
import errno
import ipaddress
import os
import socket
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Raises OSError, whose text gives the reason, for an address that is not allowed: (broker, address, port).
CheckConnection = Callable[[str, str, int], None]

BOOTSTRAP = "bootstrap.servers"
_LIBRARIES = ("confluent_kafka.libs/librdkafka*.so*", "confluent_kafka/.dylibs/librdkafka*.dylib")
# int connect_cb(int sockfd, const struct sockaddr *addr, int addrlen, const char *id, void *opaque)
_CONNECT_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
)
_HANDLE_OFFSET = object.__basicsize__  # in confluent-kafka's object: PyObject_HEAD, then rd_kafka_t *rk


class UncheckedLibrary(RuntimeError):  # noqa: N818
    """This installation of confluent-kafka does not let connections be checked, so none is made."""


class RefusedConnections:
    """The check of the client's connections, and the reason of each refused connection by broker."""

    def __init__(self, check: CheckConnection) -> None:
        self._check = check
        self.reasons: dict[str, str] = {}

    def allows(self, broker: str, address: str, port: int) -> bool:
        """Return whether the connection may be made; a refusal is kept with its reason."""
        try:
            self._check(broker, address, port)
        except Exception as error:  # after any failure, nothing is connected to
            self.reasons[broker] = str(error)
            return False
        self.reasons.pop(broker, None)
        return True


# By the address of the client in memory, which librdkafka passes to the callback.
_checked: dict[int, RefusedConnections] = {}


def create_checked_client(settings: Mapping[str, Any], check: CheckConnection) -> "AdminClient":
    """Return a client that connects only where `check` allows. Raise `UncheckedLibrary`, `KafkaException`."""
    from confluent_kafka.admin import AdminClient

    library, more = _load_library(), dict(settings)
    brokers = str(more.pop(BOOTSTRAP))
    client = AdminClient(more)  # it knows no broker yet, so it connects to none
    handle = ctypes.c_void_p.from_address(id(client) + _HANDLE_OFFSET).value
    if library.rd_kafka_opaque(handle) != id(client):
        raise UncheckedLibrary("confluent-kafka stores librdkafka's handle in an unexpected place.")
    _checked[id(client)] = RefusedConnections(check)
    configuration = library.rd_kafka_conf(handle)
    library.rd_kafka_conf_set_connect_cb(configuration, _connect)
    weakref.finalize(client, _refuse_all, id(client), configuration)  # also when the process ends
    library.rd_kafka_brokers_add(handle, brokers.encode())
    return client


def list_refused_connections(client: object) -> Mapping[str, str]:
    """Return why brokers were not connected to, by broker."""
    refused = _checked.get(id(client))
    return dict(refused.reasons) if refused else {}


def _refuse_all(client: int, configuration: int) -> None:
    """Prevent all further connections of the client and calls into Python: it may be about to end.

    C's `abs` returns the socket's descriptor, which is never 0; librdkafka takes that for an error.
    """
    _checked.pop(client, None)
    _load_library().rd_kafka_conf_set_connect_cb(
        configuration, ctypes.cast(_load_system_library().abs, _CONNECT_CALLBACK)
    )


@cache
def _load_library() -> ctypes.CDLL:
    """Return librdkafka as loaded by confluent-kafka."""
    import confluent_kafka

    site = Path(confluent_kafka.__file__).parents[1]
    path = next((candidate for pattern in _LIBRARIES for candidate in sorted(site.glob(pattern))), None)
    if path is None:
        raise UncheckedLibrary("librdkafka is not next to confluent-kafka. Install its wheel from PyPI.")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_opaque.argtypes, library.rd_kafka_opaque.restype = [ctypes.c_void_p], ctypes.c_void_p
    library.rd_kafka_conf.argtypes, library.rd_kafka_conf.restype = [ctypes.c_void_p], ctypes.c_void_p
    library.rd_kafka_conf_set_connect_cb.argtypes = [ctypes.c_void_p, _CONNECT_CALLBACK]
    library.rd_kafka_conf_set_connect_cb.restype = None
    library.rd_kafka_brokers_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.rd_kafka_brokers_add.restype = ctypes.c_int
    return library


def _connect_checked(descriptor: int, address: int, length: int, name: bytes, client: int) -> int:
    """Connect the socket, as librdkafka asks from a thread of its own. Return 0 or the reason (errno)."""
    try:
        place, port = _read_address(ctypes.string_at(address, length))
        refused = _checked.get(client)
        if refused is None or not refused.allows(
            name.decode("utf-8", "replace").rpartition("://")[2].partition("/")[0], place, port
        ):
            return errno.EACCES
        failed = _load_system_library().connect(descriptor, ctypes.c_void_p(address), length)
        reason = ctypes.get_errno() if failed else 0
        return 0 if reason == errno.EINPROGRESS else reason
    except Exception:  # no exception may pass through C
        return errno.EACCES


@cache
def _load_system_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _read_address(raw: bytes) -> tuple[str, int]:
    """Return host and port of a struct sockaddr_in or sockaddr_in6."""
    family = raw[1] if sys.platform == "darwin" else int.from_bytes(raw[:2], sys.byteorder)
    port = int.from_bytes(raw[2:4], "big")
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(raw[4:8])), port
    if family == socket.AF_INET6:
        return str(ipaddress.IPv6Address(raw[8:24])), port
    raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))


_connect = _CONNECT_CALLBACK(_connect_checked)  # one for all clients: it outlives each of them
