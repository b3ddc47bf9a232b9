"""Reference tables that events are enriched from: a CSV file with a header, small enough to be sent to every
task.

A table by subnet is kept by prefix length: an address is looked up among the networks of each length, by its
first bits, and the longest prefix that has it wins. That is as many look-ups as there are lengths, whatever
the number of subnets. A table whose file changes is read again; one that is then wrong leaves the old one in
use.
"""

import csv
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from queues.errors import BadInput

Row = tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """columns: the names of what a row gives. equal: key → row. networks: prefix length → first bits of an
    address, as a number → row.
    """

    columns: tuple[str, ...]
    equal: Mapping[str, Row]
    networks: Mapping[int, Mapping[int, Row]] = field(default_factory=dict)


@dataclass
class ReferenceTable:
    """A table on disk. `current` is what it held when it was last right; trouble says why it is not newer.
    seen: the state of the file when it was looked at.
    """

    path: Path
    by: str
    columns: tuple[str, ...]
    where: str
    current: Reference
    trouble: str | None = None
    seen: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path, by: str, columns: tuple[str, ...], where: str) -> "ReferenceTable":
        """Raises BadInput naming `where`."""
        table = cls(path, by, columns, where, read_reference(path, by, columns, where))
        table.seen = table._look()
        return table

    def refresh(self) -> None:
        """Reads the table again when its file has changed."""
        seen = self._look()
        if seen is None or seen == self.seen:
            return
        self.seen = seen
        try:
            self.current = read_reference(self.path, self.by, self.columns, self.where)
            self.trouble = None
        except BadInput as error:
            self.trouble = str(error)

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def read_reference(path: Path, by: str, columns: tuple[str, ...], field: str) -> Reference:
    """Reads a table whose key is column `by`; a column named `subnet` is matched by address. Raises BadInput
    naming `field`.
    """
    keyed: dict[str, Row] = {}
    for line, row in _rows(path, (by, *columns), field):
        key = row[by]
        if not key or key in keyed:
            raise BadInput(
                field, f"{path.name} line {line}: {by} is {'given twice' if key else 'empty'} ({key!r})"
            )
        keyed[key] = tuple(row[name] for name in columns)
    if by != "subnet":
        return Reference(columns, keyed)
    return Reference(columns, {}, by_prefix({_network(key, path, field): row for key, row in keyed.items()}))


def by_prefix(networks: Mapping[ipaddress.IPv4Network, Row]) -> dict[int, dict[int, Row]]:
    """The longest prefixes first."""
    found: dict[int, dict[int, Row]] = {}
    for network, row in sorted(networks.items(), key=lambda item: -item[0].prefixlen):
        bits = int(network.network_address) >> (32 - network.prefixlen)
        found.setdefault(network.prefixlen, {})[bits] = row
    return found


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
