"""IPv4 addresses that an IPv6 address embeds: a packet to the one may arrive at the other."""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

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
