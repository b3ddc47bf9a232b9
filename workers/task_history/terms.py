"""Terms of tasks, and the filters that say which blocks may have a term.

A term is a word of a task's texts in lower case, a pair of words with a sign between them, such as `shop.pay`, or a key
and a value, such as `state=failed`. Pairs make paths and addresses as rare as they are. A filter is a Bloom filter of
lines of 64 bytes: all bits of one term are in one line, so that a test reads one line only, which a database
and a file can both return without the rest. A filter never misses a term that its block has. It reports a term that its
block does not have in about 1 of 500 cases.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from workers.task_history.record import OPEN, TaskRecord

LINE_BYTES = 64
BITS_PER_TERM = 16
BITS = 7  # of a term in its line
SHORT_ID = 8
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
WORD = re.compile(rf"{_UUID}|[^\W_]+")
JOINTS = frozenset("-_.@/:#+=~")
TEXTS = ("id", "name", "args", "kwargs", "error", "worker", "queue", "parent", "root")
KEYS = ("name", "worker", "queue", "failure")
# A failure of one kind of task among many that succeed: both terms alone are in every block.
NAME_STATE = "name+state"


@dataclass(frozen=True)
class TermPlace:
    """The place of a term in a filter: `line % lines`, and its bits there as a number of 512 bits."""

    line: int
    bits: int

    def is_in(self, line: bytes) -> bool:
        return int.from_bytes(line, "little") & self.bits == self.bits


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case. A UUID is one word."""
    return WORD.findall(text.lower())


def list_text_terms(text: str) -> set[str]:
    """Return the words of a text in lower case, and its pairs of words."""
    lowered, terms = text.lower(), set[str]()
    last, end = "", -2
    for match in WORD.finditer(lowered):
        word, start = match[0], match.start()
        terms.add(word)
        if start == end + 1 and (joint := lowered[end]) in JOINTS:
            terms.add(f"{last}{joint}{word}")
        last, end = word, match.end()
    return terms


def build_key_term(key: str, *values: str) -> str:
    return f"{key}={chr(10).join(values)}"


def list_terms(record: TaskRecord) -> set[str]:
    """Return the terms of a task."""
    terms = list_text_terms("\n".join([getattr(record, name) for name in TEXTS]))
    terms.add(record.id[:SHORT_ID].lower())
    terms.add(record.id.lower())
    for key in KEYS:
        if value := getattr(record, key):
            terms.add(build_key_term(key, value))
    for state in (record.state,) if record.is_finished else (record.state, OPEN):
        terms |= {build_key_term("state", state), build_key_term(NAME_STATE, record.name, state)}
    return terms


def locate_term(term: str) -> TermPlace:
    digest = _digest(term)
    line, spread = int.from_bytes(digest[:4], "little") >> 1, int.from_bytes(digest[4:12], "little")
    bits = 0
    for number in range(BITS):
        bits |= 1 << (spread >> (9 * number) & 511)
    return TermPlace(line, bits)


def build_filter(terms: Collection[str]) -> bytes:
    """Return the filter of a block's terms."""
    lines = max(1, -(-len(terms) * BITS_PER_TERM // (8 * LINE_BYTES)))
    packed = np.frombuffer(b"".join(map(_digest, terms)), np.dtype([("line", "<u4"), ("spread", "<u8")]))
    bits = np.zeros(lines * LINE_BYTES * 8, bool)
    starts = ((packed["line"] >> 1) % lines).astype(np.int64) * (LINE_BYTES * 8)
    for number in range(BITS):
        bits[starts + (packed["spread"] >> np.uint64(9 * number) & np.uint64(511)).astype(np.int64)] = True
    return np.packbits(bits, bitorder="little").tobytes()


def count_lines(filter_: bytes) -> int:
    return len(filter_) // LINE_BYTES


def collect_terms(records: Iterable[TaskRecord]) -> set[str]:
    """Return the terms of all records of a block."""
    terms: set[str] = set()
    for record in records:
        terms |= list_terms(record)
    return terms


def iterate_places(terms: Iterable[str]) -> Iterator[TermPlace]:
    return map(locate_term, sorted(terms))


def _digest(term: str) -> bytes:
    return hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=12).digest()
