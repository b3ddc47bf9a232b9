"""Reference tables that events are enriched from: a CSV file with a header, small enough to be sent to every
task.

A table by subnet is turned into ranges that don't overlap (the longest prefix wins), so that a join finds at
most one row for an address.
"""

import csv
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from queues.errors import BadInput

Row = tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """columns: the names of what a row gives. equal: key → row. ranges: (low, high, row), addresses as
    numbers, both ends inside.
    """

    columns: tuple[str, ...]
    equal: Mapping[str, Row]
    ranges: tuple[tuple[int, int, Row], ...] = ()


def read_reference(path: Path, by: str, columns: tuple[str, ...], field: str) -> Reference:
    """Reads a table whose key is column `by`; a column named `subnet` is matched by address. Raises BadInput
    naming `field`.
    """
    rows = _rows(path, (by, *columns), field)
    keyed: dict[str, Row] = {}
    for line, row in rows:
        key = row[by]
        if not key or key in keyed:
            raise BadInput(
                field, f"{path.name} line {line}: {by} is {'given twice' if key else 'empty'} ({key!r})"
            )
        keyed[key] = tuple(row[name] for name in columns)
    if by != "subnet":
        return Reference(columns, keyed)
    return Reference(columns, {}, disjoint({_network(key, path, field): row for key, row in keyed.items()}))


def _rows(path: Path, needed: tuple[str, ...], field: str) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [(reader.line_num, row) for row in reader]
            header = reader.fieldnames or []
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise BadInput(field, f"{path} can't be read as a CSV file: {error}") from None
    for name in needed:
        if name not in header:
            raise BadInput(field, f"{path.name} has no column {name!r}; it has {', '.join(header) or 'none'}")
    for line, row in rows:
        if None in row or None in row.values():
            raise BadInput(field, f"{path.name} line {line} does not have {len(header)} columns")
    return rows


def _network(text: str, path: Path, field: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise BadInput(field, f"{path.name}: {error}; write a subnet as 92.126.10.0/24") from None


def subnet_of(text: str, field: str) -> tuple[int, int]:
    """First address of a subnet as a number, and its prefix length. Raises BadInput naming `field`."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise BadInput(field, f"{error}; write a subnet as 92.126.10.0/24") from None
    return int(network.network_address), network.prefixlen


def disjoint(networks: Mapping[ipaddress.IPv4Network, Row]) -> tuple[tuple[int, int, Row], ...]:
    """Ranges that don't overlap, in order: within a subnet, a longer prefix takes its part."""
    found: list[tuple[int, int, Row]] = []
    # Subnets nest or are apart, never cross: from the shortest prefix on, each one cuts its place out of at
    # most one range.
    for network in sorted(networks, key=lambda item: (item.prefixlen, int(item.network_address))):
        low, high = int(network.network_address), int(network.broadcast_address)
        cut: list[tuple[int, int, Row]] = []
        for first, last, row in found:
            if last < low or first > high:
                cut.append((first, last, row))
                continue
            if first < low:
                cut.append((first, low - 1, row))
            if last > high:
                cut.append((high + 1, last, row))
        found = [*cut, (low, high, networks[network])]
    return tuple(sorted(found))
