"""One policy for all addresses that people enter: receivers' webhooks, plants, handlers' webhooks.

    scheme    http, https; for a plant, those of its adapter (redis, amqp, kafka …)
    port      80, 443, and 1024 to 65535 except those of databases and of a host's own services (OWN_PORTS);
              for a plant, also those of its adapter's protocol
    user      none: a password in an address would be displayed
    host      a name, or an IP address in its usual form
    address   not loopback, link-local, unspecified, multicast, reserved, or a cloud's metadata service,
              also when an IPv6 address embeds it (`list_carried_addresses`)

Private networks (10/8, 172.16/12, 192.168/16, fc00::/7) are allowed, because the plants and receivers of a site are
there. Refused addresses can be allowed by network in the environment (WEIR_EGRESS_ALLOW), which no page can change.

A name is resolved once for each connection, and the connection goes to the address that was checked, so a later change
of the name has no effect. TLS and the header Host use the name. Redirects are not followed, proxies of the environment
are not used, a request has a time limit, and a response is read up to a limit.
"""

import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

import httpcore
import httpx
from django.conf import settings

from common import checks
from common import environment as variables
from common.errors import BadInput, Forbidden, describe_connection_error

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

SCHEMES: Mapping[str, int] = {"http": 80, "https": 443}
LOW_PORTS = (80, 443)
FIRST_PORT, LAST_PORT = 1024, 65_535
# Redis, PostgreSQL, MySQL, SQL Server, Oracle, MongoDB, Cassandra, memcached, Elasticsearch's transport,
# Docker, etcd, kubelet, ZooKeeper, X11, NFS.
OWN_PORTS = frozenset(
    {1433, 1521, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 5432, 6000, 6379, 9042, 9300, 10250, 11211, 16379}
    | {26379, 27017}
)
RESOLVING_SECONDS = 5.0  # default time limit for resolving a name
_REFUSED = {
    "this host": ("0.0.0.0/8", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10", "fec0::/10"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("240.0.0.0/4", "192.0.0.0/24", "100::/64"),
    # AWS on IPv6, Alibaba, Azure; the others' is 169.254.169.254.
    "cloud metadata service": ("fd00:ec2::254/128", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32"),
}
REFUSED: tuple[tuple[str, Network], ...] = tuple(
    (kind, ipaddress.ip_network(text)) for kind, texts in _REFUSED.items() for text in texts
)
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z", re.IGNORECASE)
SECRET_HELP = "must start with WEIR_SECRET_ or have the form WEIR_…_TOKEN, such as WEIR_SECRET_DESK"


class AddressRefused(ConnectionError):  # noqa: N818
    """Raised for a name that does not resolve or leads to an address that the policy refuses."""


class EgressRefused(httpx.ConnectError):
    """Raised when the policy refuses the address of a name."""


def check_secret_name(name: str, field: str) -> None:
    """Raise Forbidden unless people may name this variable: any other variable may have any content."""
    if not variables.SECRET_NAME.match(name):
        raise Forbidden(field, f"{SECRET_HELP}. Other variables are not allowed.")


def check_secret_host(
    name: str, host: str | None, field: str = "secret_environment", environment: Mapping[str, str] = variables.PROCESS
) -> None:
    """Raise Forbidden where the environment binds the secret to other hosts.

    Otherwise a person who may name it and enter an address could have it sent there.
    """
    bound = variables.list_secret_hosts(name, environment)
    if bound and (host or "").rstrip(".").lower() not in bound:
        listed = ", ".join(sorted(bound))
        raise Forbidden(
            field,
            f"names {name}, which may only be used at {listed}, not {f'at {host}' if host else 'without a host'}.",
        )


def check_url(
    url: object, field: str = "url", schemes: Mapping[str, int] = SCHEMES, ports: frozenset[int] = frozenset()
) -> httpx.URL:
    """Return the address if its form is allowed.

    Raises BadInput naming the field, and Forbidden for what the policy refuses. The address of a name is checked when
    connecting. schemes: the allowed ones, with their default ports, which are allowed; ports: additional allowed ports,
    for callers that speak their protocol.
    """
    begins = " or ".join(f"{scheme}://" for scheme in reversed(list(schemes)))
    takes = f"must be an address that starts with {begins}."
    try:
        parsed = httpx.URL(url if isinstance(url, str) else "")
        port = schemes.get(parsed.scheme, 0) if parsed.port is None else parsed.port
        host = parsed.host
    except (httpx.InvalidURL, UnicodeError, ValueError):
        raise BadInput(field, takes) from None
    if parsed.scheme not in schemes or not host:
        raise BadInput(field, takes)
    if parsed.userinfo or "@" in parsed.netloc.decode("ascii", "replace"):
        raise BadInput(field, "must be an address without a username or a password.")
    check_port(port, field, ports | {schemes[parsed.scheme]})
    _check_host(host, field)
    return parsed


def check_port(port: int, field: str = "url", ports: frozenset[int] = frozenset()) -> None:
    """Check a port. ports: additional allowed ports."""
    if port in ports:
        return
    if port not in LOW_PORTS and not (FIRST_PORT <= port <= LAST_PORT and port not in OWN_PORTS):
        raise Forbidden(
            field,
            f"must use port 80, 443, or a port from {FIRST_PORT} to {LAST_PORT} (except database ports), not {port}.",
        )


def _check_host(host: str, field: str) -> None:
    plain = host.rstrip(".").lower()
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        if _NUMBER.match(plain.rpartition(".")[2]) or "%" in plain or not plain:
            raise Forbidden(field, "must have a hostname, or an IP address in standard notation.") from None
        if plain == "localhost" or plain.endswith(".localhost"):
            address = ipaddress.IPv4Address("127.0.0.1")
        else:
            return
    if why := explain_refusal(address):
        raise Forbidden(field, why)


def explain_refusal(address: Address, allowed: Iterable[Network] | None = None) -> str:
    """Return why the policy refuses an address, "" when it is allowed."""
    networks = parse_networks(settings.WEIR_EGRESS_ALLOW) if allowed is None else tuple(allowed)
    carried = list_carried_addresses(address)
    for candidate in [address, *carried]:
        kind = next((kind for kind, network in REFUSED if candidate in network), "")
        if kind and not any(candidate in network for network in networks):
            return (
                f"leads to {address} ({kind}), which is not allowed. An administrator can allow networks in"
                " WEIR_EGRESS_ALLOW."
            )
    return ""


def parse_networks(text: str) -> tuple[Network, ...]:
    networks = []
    for part in text.split():
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError:
            message = f"must be networks such as 10.1.0.0/16, separated by spaces, not {part[:60]!r}."
            raise BadInput(variables.EGRESS_ALLOW.name, message) from None
    return tuple(networks)


def resolve_addresses(host: str, port: int) -> list[str]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def _run_with_deadline(seconds: float, resolve: Resolve, host: str, port: int) -> Sequence[str]:
    """Return what `resolve` returns. Raises what it raises, and TimeoutError.

    The system's own timeout is half a minute where no name server answers, and the call cannot be cancelled, so it is
    left to finish in its thread.
    """
    answers: SimpleQueue[tuple[Sequence[str], Exception | None]] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put((resolve(host, port), None))
        except Exception as error:  # any exception is for the caller
            answers.put(((), error))

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        resolved, error = answers.get(timeout=max(seconds, 0.001))
    except Empty:
        raise TimeoutError("no name server responded in time") from None
    if error is not None:
        raise error
    return resolved


def resolve_allowed_addresses(
    host: str,
    port: int,
    resolve: Resolve = resolve_addresses,
    ports: frozenset[int] = frozenset(),
    seconds: float = RESOLVING_SECONDS,
) -> list[str]:
    """Return the checked addresses of a name.

    Raises AddressRefused if any address is refused: a name with good and bad addresses is not trusted. Callers that use
    protocols other than HTTP connect to one of these and never to the name. ports: as in `check_url`. seconds: the time
    limit for the answer.
    """
    try:
        check_port(port, ports=ports)
        addresses = [ipaddress.ip_address(resolved) for resolved in _run_with_deadline(seconds, resolve, host, port)]
    except BadInput as error:
        raise AddressRefused(f"{host}: {error.message}") from None
    except (OSError, UnicodeError, ValueError) as error:
        raise AddressRefused(f"{host} cannot be resolved: {describe_connection_error(error)}") from None
    for address in addresses:
        check_address(host, address, port, ports)
    return list(map(str, addresses))


def check_address(host: str, address: Address, port: int, ports: frozenset[int] = frozenset()) -> None:
    """Raise AddressRefused for an address that the policy refuses. host: the name that resolved to it."""
    try:
        check_port(port, ports=ports)
        why = explain_refusal(address)
    except BadInput as error:
        raise AddressRefused(f"{host}: {error.message}") from None
    if why:
        raise AddressRefused(f"{host} {why}")


def connect(host: str, port: int, timeout_seconds: float, ports: frozenset[int] = frozenset()) -> socket.socket:
    """Return a connection to a checked address of the name, for protocols other than HTTP.

    Raises OSError, which AddressRefused is.
    """
    failed: OSError | None = None
    for address in resolve_allowed_addresses(host, port, ports=ports, seconds=timeout_seconds):
        try:
            return socket.create_connection((address, port), timeout_seconds)
        except OSError as error:
            failed = error
    raise failed or AddressRefused(f"{host} has no address")


class _Stream(httpcore.NetworkStream):
    """A connection whose reads and writes end with the request's time limit."""

    def __init__(self, stream: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._stream, self._left = stream, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._limit_timeout(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._limit_timeout(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        made = self._stream.start_tls(ssl_context, server_hostname, self._limit_timeout(timeout))
        return _Stream(made, self._left)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)

    def _limit_timeout(self, timeout: float | None) -> float:
        left = self._left()
        if left <= 0:
            raise httpcore.ReadTimeout("the request exceeded its time limit")
        return left if timeout is None else min(timeout, left)


class _Backend(httpcore.NetworkBackend):
    """A backend that connects only to checked addresses."""

    def __init__(self, resolve: Resolve, left: Callable[[], float]) -> None:
        self._plain, self._resolve, self._left = httpcore.SyncBackend(), resolve, left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failed: Exception | None = None
        for address in self._resolve_host(host, port):
            try:
                within = min(timeout or self._left(), max(self._left(), 0.001))
                stream = self._plain.connect_tcp(address, port, within, local_address, socket_options)
                return _Stream(stream, self._left)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")

    def connect_unix_socket(self, *args: object, **named: object) -> httpcore.NetworkStream:
        raise httpcore.ConnectError("Unix sockets are not allowed")

    def _resolve_host(self, host: str, port: int) -> list[str]:
        try:
            return resolve_allowed_addresses(host, port, self._resolve, seconds=self._left())
        except AddressRefused as error:
            raise httpcore.ConnectError(str(error)) from None


class Transport(httpx.HTTPTransport):
    """A transport for httpx.Client that applies the policy above.

    `total_seconds` limits a request (None: only the client's timeouts of each step apply).
    """

    def __init__(
        self,
        total_seconds: float | None = None,
        resolve: Resolve = resolve_addresses,
        monotonic: Callable[[], float] = time.monotonic,
        verify: ssl.SSLContext | str | bool = True,
    ) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._total_seconds, self._monotonic = total_seconds, monotonic
        self._local = threading.local()
        # httpx has no argument for it; tests/security/host/test_egress.py verifies that it is in place.
        self._pool._network_backend = _Backend(resolve, self._compute_time_left)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._total_seconds is not None:
            self._local.deadline = self._monotonic() + self._total_seconds
        try:
            check_url(str(request.url))
        except BadInput as error:
            raise EgressRefused(f"{request.url.host} {error.message}", request=request) from None
        return super().handle_request(request)

    def _compute_time_left(self) -> float:
        deadline: float | None = getattr(self._local, "deadline", None)
        return 3_600.0 if deadline is None else deadline - self._monotonic()


def create_client(
    timeout_seconds: float,
    *,
    headers: dict[str, str] | None = None,
    total_seconds: float | None = None,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Return an HTTP client for addresses that people entered. `transport`: a replacement for tests."""
    return httpx.Client(
        headers={"Accept-Encoding": "identity", **(headers or {})},
        timeout=timeout_seconds,
        transport=transport or Transport(total_seconds or timeout_seconds),
        follow_redirects=False,
        trust_env=False,
    )


def read(response: httpx.Response, most_bytes: int) -> bytes:
    """Read the first bytes of a response, without the rest and without decompression."""
    body = bytearray()
    if response.headers.get("Content-Encoding", "identity") != "identity":
        return b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291
IPV4_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")  # RFC 2765
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215
_UNSPECIFIED_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_ISATAP_MARKS = (0x0000_5EFE, 0x0200_5EFE)  # RFC 5214: the upper half of the interface identifier


def list_carried_addresses(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that the address embeds, in every form that a network may translate."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    bits = int(address)
    carried: list[ipaddress.IPv4Address] = []
    if address.sixtofour is not None:
        carried.append(address.sixtofour)
    if address.teredo is not None:
        carried += address.teredo
    if address in NAT64 or address in IPV4_TRANSLATED or (address in IPV4_COMPATIBLE and bits > 1):
        carried.append(_convert_last_32_bits(bits))
    if bits >> 32 & 0xFFFF_FFFF in _ISATAP_MARKS:
        carried.append(_convert_last_32_bits(bits))
    if address in NAT64_LOCAL:
        carried += _list_local_nat64_addresses(bits)
    return carried


def _list_local_nat64_addresses(bits: int) -> list[ipaddress.IPv4Address]:
    """Return the readings of a local NAT64 address, whose prefix length only its network knows.

    RFC 6052 puts the IPv4 address behind a prefix of 48, 56, 64 or 96 bits and leaves bits 64 to 71 out. A reading in
    0.0.0.0/8 is the padding of a longer prefix.
    """
    without_gap = (bits >> 64 << 56) | (bits & (1 << 56) - 1)  # 120 bits
    readings = [ipaddress.IPv4Address(without_gap >> 88 - prefix & 0xFFFF_FFFF) for prefix in (48, 56, 64)]
    readings.append(_convert_last_32_bits(bits))
    return [fromkey for fromkey in dict.fromkeys(readings) if fromkey not in _UNSPECIFIED_NETWORK]


def _convert_last_32_bits(bits: int) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bits & 0xFFFF_FFFF)


HIDDEN = "…"


def mask_address(url: str) -> str:
    """Return scheme, host, and port, with HIDDEN for the rest; for an invalid address only HIDDEN."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    if not parts.scheme:
        return HIDDEN
    host = parts.hostname or ""
    server = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    return f"{server}/{HIDDEN}" if parts.path.strip("/") or parts.query or parts.fragment else server


MAX_HEADERS = 32
MAX_VALUE_CHARACTERS = 4_096
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")  # RFC 9110's token
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?\Z")  # printable ASCII without blanks at either end
# Headers that determine where a request goes and ends, which only the HTTP client sets.
CLIENT_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def check_headers(headers: Mapping[str, str], field: str) -> None:
    """Raise BadInput for a header that cannot be sent, and Forbidden for one that frames the request."""
    if len(headers) > MAX_HEADERS:
        raise BadInput(field, f"must have at most {MAX_HEADERS} headers, not {len(headers):,}.")
    for name, value in headers.items():
        shown = checks.shorten_for_message(name)
        if not _NAME.match(name):
            raise BadInput(field, f"has an invalid header name, {shown}. Use letters, digits, and -.")
        if name.lower() in CLIENT_HEADERS:
            raise Forbidden(field, f"sets {shown}, which the HTTP client sets itself. Remove it.")
        if len(value) > MAX_VALUE_CHARACTERS:
            raise BadInput(field, f"sets {shown} to {len(value):,} characters. Use at most {MAX_VALUE_CHARACTERS:,}.")
        if value and not is_header_value(value):
            raise BadInput(
                field,
                f"sets {shown} to an invalid value. Use printable ASCII without line breaks and"
                " without spaces at the ends.",
            )


def is_header_value(value: str) -> bool:
    """Return whether a header can have the value unchanged."""
    return _VALUE.match(value) is not None


def check_header_secret(name: str, secret: str, field: str = "secret_environment") -> None:
    """Raise BadInput for a secret that no header can have: an HTTP library would quote the invalid value."""
    if secret and not is_header_value(secret):
        raise BadInput(
            field,
            f"names {name}, whose value cannot be sent as a header. Remove spaces and line breaks at its"
            " ends, and characters other than printable ASCII.",
        )
