"""Keep a file whose name comes from outside inside its folder.

`folder / name` follows an absolute name, `..` and symbolic links to any place of the host. Names that come from
backups, uploads, declarations, task parameters, or the database go through this module instead.
"""

import csv
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from numbers import Number
from pathlib import Path
from typing import Any

import orjson

from common.errors import BadInput, Forbidden

MAX_PART_BYTES = 255
MAX_NAME_BYTES = 4_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The errors, by system, of a folder or file at a path that must not be followed.
_NOT_PLAIN = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


def split_relative_name(name: str, field: str) -> tuple[str, ...]:
    """Return the parts of a relative name.

    Raises `Forbidden` that names `field` for a name that could leave its folder on any system.
    """
    parts = tuple(name.split("/"))
    if (
        len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES
        or not name.isprintable()
        or "\\" in name
        or any(part in ("", ".", "..") for part in parts)
        or any(len(part.encode("utf-8", "surrogatepass")) > MAX_PART_BYTES for part in parts)
    ):
        raise Forbidden(
            field, f"must be a relative path inside the folder, such as archive/a.parquet, not {name[:80]!r}."
        )
    return parts


def resolve_inside_folder(folder: Path, name: str, field: str) -> Path:
    """Return `folder / name`.

    Raises `Forbidden` that names `field` if the path leaves the folder, also by a symbolic link inside it. The folder
    itself may be a link.
    """
    path = folder.joinpath(*split_relative_name(name, field))
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        is_inside = False
    if not is_inside:
        raise _build_link_error(name, field)
    return path


def write_inside(
    folder: Path,
    name: str,
    pieces: Iterable[bytes],
    field: str,
    *,
    replace: bool = False,
    changed_at: float | None = None,
) -> None:
    """Write a file below a folder, for its owner alone, without following links.

    Missing folders are created with mode 0700, and existing ones keep their mode. Raises `Forbidden` that names `field`
    if a link, a device or, without `replace`, any file is in the way; then nothing was written. Raises `OSError`.
    """
    *parents, last = split_relative_name(name, field)
    with ExitStack() as opened:
        place = _open(folder, None, opened)
        for part in parents:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=place)
            try:
                place = _open(part, place, opened)
            except OSError as error:
                if error.errno in _NOT_PLAIN:
                    raise _build_link_error(name, field) from None
                raise
        _check_free(last, place, name, field, replace)
        fresh = f".{secrets.token_hex(8)}.part" if replace else last
        try:
            descriptor = os.open(fresh, _NEW_FILE, 0o600, dir_fd=place)
        except FileExistsError:
            raise _is_taken(name, field) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                if changed_at is not None:
                    os.utime(file.fileno(), (changed_at, changed_at))
            os.replace(fresh, last, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            os.unlink(fresh, dir_fd=place)
            raise


def _open(folder: Path | str, place: int | None, opened: ExitStack) -> int:
    descriptor = os.open(folder, _FOLDER | (0 if place is None else os.O_NOFOLLOW), dir_fd=place)
    opened.callback(os.close, descriptor)
    return descriptor


def _check_free(last: str, place: int, name: str, field: str, replace: bool) -> None:
    try:
        mode = os.stat(last, dir_fd=place, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _build_link_error(name, field)
    if not replace:
        raise _is_taken(name, field)


def _build_link_error(name: str, field: str) -> Forbidden:
    return Forbidden(
        field, f"the path {name[:80]!r} contains a link, a device, or another special file. Remove it first."
    )


def _is_taken(name: str, field: str) -> Forbidden:
    return Forbidden(
        field,
        f"the file {name[:80]!r} already exists. Names that differ only in case or accents may be the same "
        "file here. Use an empty folder on a file system that distinguishes them.",
    )


# Write CSV that no spreadsheet interprets as formulas.
#
# A spreadsheet runs a cell that starts with one of = + - @. Which text is one cell depends on the reader's locale: many
# split at a semicolon or a tab, where a comma and its quotes mean nothing. Text is therefore marked with an apostrophe
# at the start of a cell and after every character at which some locale splits.

# Also in full width, which spreadsheets of some languages interpret in the same way.
_BEGINS_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_SPLITS = ";|\t\r\n\x0b\x0c\x1c-\x1f\x85\u2028\u2029"
# Characters that a spreadsheet drops before it checks the first character of a cell.
_DROPPED = ' "\t\r\n\x00\u00a0\u200b\u3000\ufeff'
# Java interprets it in the same way: Spark marks its CSV with it, and with MARKED.
FORMULA = f"(^(?=[\t\r\n])|(?:^|[{_SPLITS}])(?=[{_DROPPED}]*[{_BEGINS_FORMULA}]))"
_FORMULA = re.compile(FORMULA)
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\Z", re.ASCII)


def mark_formulas(text: str) -> str:
    """Return text that is no formula, and has none after a separator. Numbers stay as they are."""
    return text if _PLAIN_NUMBER.match(text) else _FORMULA.sub(r"\1'", text)


def iterate_csv_text(header: Sequence[str], pages: Iterable[Iterable[Sequence[Any]]]) -> Iterator[str]:
    """Return a table as CSV text, a page of rows at a time."""
    yield _format_rows([header])
    for page in pages:
        yield _format_rows(page)


def _format_rows(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([_format_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _format_cell(value: object) -> object:
    """Return documents as JSON, times as ISO 8601, and text without formulas."""
    if value is None or isinstance(value, Number):
        return value
    if isinstance(value, dict | list):
        return mark_formulas(orjson.dumps(value).decode())
    return mark_formulas(value.isoformat() if isinstance(value, datetime) else str(value))


# Files of a plant are private to their owner: the umask of its processes, secrets, and existing files.

UMASK = 0o077
OTHERS = 0o077  # the bits that group and others must not have
MAX_ENTRIES = 1_000_000
# By path, chmod would follow a link that replaced an entry; Linux can open the entry itself.
_OPENED = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW


@dataclass(frozen=True)
class RepairResult:
    """The result of `mend`.

    `foreign`: entries of other users, which are left as they are; `unseen`: whether a limit ended the walk
    (the unseen entries are still in a folder that no other user can enter).
    """

    changed: int = 0
    foreign: int = 0
    unseen: bool = False


def keep_private() -> None:
    """Keep files that this process and its children create private from group and others."""
    os.umask(UMASK)


def create_private_folder(path: Path) -> None:
    """Create a folder and its parents for its owner alone, or restrict an existing one.

    Raises `BadInput` for a folder that all users of the machine share (/tmp): restricting it would lock them out.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode
    if mode & stat.S_ISVTX:
        raise BadInput("folder", f"{path} is shared by all users of this machine; use a folder of your own")
    if mode & OTHERS:
        path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically. It has mode 0600 before its first byte, whatever was there before."""
    fresh = _write_temporary_file(path, text)
    fresh.replace(path)


def load_or_create_secret(path: Path, fresh: str) -> str:
    """Return the secret in a file, or store `fresh` if there is none. The first process's secret is kept."""
    if not path.exists():
        create_private_folder(path.parent)
        made = _write_temporary_file(path, fresh)
        try:
            path.hardlink_to(made)
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_text()


def _write_temporary_file(path: Path, text: str) -> Path:
    """Write a new file next to `path`, synced to the disk: a named file must not be empty after a power loss.

    O_EXCL: no other user can have placed it, or a link, for us to write into.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def mend(folder: Path, most_entries: int = MAX_ENTRIES) -> RepairResult:
    """Remove the rights of group and others from a folder and everything below it.

    It follows no links, and changes only what belongs to this user. The folder itself comes first: from then on no
    other user can enter it.
    """
    me = os.getuid()
    create_private_folder(folder)
    seen = changed = foreign = 0
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            seen += 1
            if seen > most_entries:
                return RepairResult(changed, foreign, unseen=True)
            owner, mended = _mend_entry(name, descriptor, me)
            changed += mended
            foreign += owner != me
    return RepairResult(changed, foreign)


def _mend_entry(name: str, folder: int, me: int) -> tuple[int, bool]:
    """Return the entry's owner, and whether its mode changed. Entries that have vanished are ignored."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_uid != me or stat.S_ISLNK(status.st_mode) or not status.st_mode & OTHERS:
            return status.st_uid, False
        entry = os.open(name, _OPENED, dir_fd=folder)
    except FileNotFoundError:
        return me, False
    try:
        now = os.fstat(entry)
        if stat.S_ISLNK(now.st_mode) or now.st_uid != me:
            return now.st_uid, False
        mode = stat.S_IMODE(now.st_mode) & ~OTHERS
        if hasattr(os, "O_PATH"):  # such a descriptor takes no fchmod
            Path(f"/proc/self/fd/{entry}").chmod(mode)
        else:
            os.fchmod(entry, mode)
    finally:
        os.close(entry)
    return me, True
