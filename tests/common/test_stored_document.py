"""Documents are read by many threads of a process, also when it has just started."""

import subprocess
import sys

import pytest

# A second thread reads the document while the first one is still building the description of its types: the annotation
# of `size` is Python code, which runs then.
TWO_FIRST_READERS = """
import threading
from common.stored_document import StoredDocument, convert, decode_document, get_decoder

def find_type():
    if not threads:
        threads.append(threading.Thread(target=read))
        threads[0].start()
        threads[0].join(0.2)  # without a lock, it reads now
    return int

class Part(StoredDocument):
    names: list[str] = []
    size: "find_type()" = 0

class Whole(StoredDocument):
    parts: dict[str, Part] = {}
    at: float = 0.0

TEXT = b'{"parts": {"a": {"names": ["x"], "size": 1}}, "at": 2.5}'
results, threads = [], []

def read():
    results.append(READ)

read()
threads[0].join()
assert [each.parts["a"].size for each in results] == [1, 1]
print("ok")
"""


@pytest.mark.parametrize(
    "read",
    [
        "decode_document(Whole, TEXT, 'whole')",
        "convert(Whole, {'parts': {'a': {'size': 1}}})",
        "get_decoder(Whole).decode(TEXT)",
    ],
)
def test_two_threads_read_a_type_for_the_first_time(read):
    """msgspec would crash: it stores the description of a type before it is complete."""
    code = TWO_FIRST_READERS.replace("READ)", f"{read})")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "ok\n", (ended.returncode, ended.stderr)
