"""Reference tables that events are enriched from.

They are CSV files with a header, small enough to be sent to every task. A table by subnet is stored by prefix length.
An address is searched among the networks of each length by its first bits, and the longest matching prefix wins. The
number of searches is thus the number of lengths, not of subnets. A table whose file changes is read again; if it is
then invalid, the old one stays in use.

A declaration names a table, but its author may not read arbitrary files. A name is therefore a plain name of a regular
file in the reference folder, and no error message says what a file contains or where it is.
"""

import csv
import errno
import io
import ipaddress
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.documents import decode_text
from common.errors import BadInput, Forbidden
from common.parsing import describe_separator

Row = tuple[str, ...]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}\.csv\Z", re.ASCII)
MAX_BYTES = 2**20
MAX_ROWS = 10_000
MAX_COLUMNS = 32
# Doesn't wait for a writer of a pipe, and never follows a link.
_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Reference:
    """The content of a table.

    columns: names of the values of a row. equal: key → row. networks: prefix length → first bits of an address, as a
    number → row.
    """

    columns: tuple[str, ...]
    equal: Mapping[str, Row]
    networks: Mapping[int, Mapping[int, Row]] = field(default_factory=dict)


@dataclass
class ReferenceTable:
    """A table on disk.

    `current` is its last valid content; `last_error` says why it is not newer. seen: the state of the file when it was
    last checked.
    """

    path: Path
    by: str
    columns: tuple[str, ...]
    where: str
    current: Reference
    last_error: str | None = None
    seen: tuple[int, int, int] | None = None

    @classmethod
    def open(cls, path: Path, by: str, columns: tuple[str, ...], where: str) -> "ReferenceTable":
        """Open a table. Raises `BadInput` that names `where`."""
        table = cls(path, by, columns, where, read_reference(path, by, columns, where))
        table.seen = table._stamp()
        return table

    def refresh(self) -> None:
        """Read the table again if its file has changed."""
        seen = self._stamp()
        if seen is None or seen == self.seen:
            return
        self.seen = seen
        try:
            self.current = read_reference(self.path, self.by, self.columns, self.where)
            self.last_error = None
        except BadInput as error:
            self.last_error = str(error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def get_table_path(folder: Path, name: str, field: str) -> Path:
    """Return the path of the table of that name. Raises `BadInput` that names `field` if it is not a plain name."""
    if not NAME.match(name):
        raise Forbidden(
            field,
            "must be the plain name of a file in the reference folder (letters, digits, _, -, and ., "
            "ending in .csv), such as hosts.csv",
        )
    return folder / name


def read_reference(path: Path, by: str, columns: tuple[str, ...], field: str) -> Reference:
    """Read a table whose key is column `by`; `subnet` is matched by address. Raises `BadInput` that names `field`."""
    keyed: dict[str, Row] = {}
    for line, row in _read_rows(path, (by, *columns), field):
        key = row[by]
        if not key or key in keyed:
            raise BadInput(field, f"{path.name} line {line}: {by} {'repeats an earlier value' if key else 'is empty'}")
        keyed[key] = tuple(row[name] for name in columns)
    if by != "subnet":
        return Reference(columns, keyed)
    return Reference(
        columns, {}, group_by_prefix({_parse_network(key, path, field): row for key, row in keyed.items()})
    )


def group_by_prefix(networks: Mapping[ipaddress.IPv4Network, Row]) -> dict[int, dict[int, Row]]:
    """Group the networks by prefix length, the longest first."""
    rows_by_prefix: dict[int, dict[int, Row]] = {}
    for network, row in sorted(networks.items(), key=lambda item: -item[0].prefixlen):
        bits = int(network.network_address) >> (32 - network.prefixlen)
        rows_by_prefix.setdefault(network.prefixlen, {})[bits] = row
    return rows_by_prefix


def _read_text(path: Path, field: str) -> str:
    """Return the text of a table. Raises `BadInput`."""
    unreadable = f"{path.name} can't be read. It must be a CSV file in the reference folder"
    try:
        file = os.open(path, _READ_ONLY)
    except (OSError, ValueError) as error:
        is_link = isinstance(error, OSError) and error.errno == errno.ELOOP
        raise (Forbidden if is_link else BadInput)(field, unreadable) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Forbidden(field, unreadable)
        with os.fdopen(os.dup(file), "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError:
        raise BadInput(field, unreadable) from None
    finally:
        os.close(file)
    if len(data) > MAX_BYTES:
        raise BadInput(field, f"{path.name} is larger than {MAX_BYTES // 2**20} MiB, the maximum for a table")
    try:
        return decode_text(data)
    except UnicodeDecodeError:
        raise BadInput(field, f"{path.name} is not UTF-8") from None


def _read_rows(path: Path, needed: tuple[str, ...], field: str) -> list[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(_read_text(path, field), newline=""), strict=True)
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        header = reader.fieldnames or []
        if len(header) > MAX_COLUMNS:
            raise BadInput(field, f"{path.name} has more than {MAX_COLUMNS} columns")
        for name in needed:
            if name not in header:
                hint = describe_separator(header[0]) if len(header) == 1 else ""
                raise BadInput(field, f"{path.name} has no column {name!r}{hint}")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput(field, f"{path.name} line {reader.line_num} must have as many columns as the first line")
            if len(rows) == MAX_ROWS:
                raise BadInput(field, f"{path.name} has more than {MAX_ROWS} rows")
            rows.append((reader.line_num, row))
    except csv.Error:
        raise BadInput(field, f"{path.name} line {reader.line_num} is not valid CSV") from None
    return rows


def _parse_network(text: str, path: Path, field: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        raise BadInput(
            field, f"{path.name} has an invalid subnet, or one with host bits set; write a subnet as 92.126.10.0/24"
        ) from None


def parse_subnet(text: str, field: str) -> tuple[int, int]:
    """Return the first address of a subnet as a number, and its prefix length. Raises `BadInput` that names `field`."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise BadInput(field, f"{error}; write a subnet as 92.126.10.0/24") from None
    return int(network.network_address), network.prefixlen
