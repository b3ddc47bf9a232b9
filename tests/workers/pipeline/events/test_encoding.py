"""Batches as Arrow streams: small ones are written without compression."""

import pyarrow as pa
import pytest

from workers.pipeline.events.layout import MIN_COMPRESSED_BYTES, decode, encode


def build_batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"time": list(range(rows)), "source": ["host"] * rows})


@pytest.mark.parametrize("rows", [0, 1, 100, 100_000])
def test_a_batch_of_any_size_reads_back_as_it_was_written(rows):
    batch = build_batch(rows)
    (read,) = decode(encode(batch))
    assert read.equals(batch)


def test_a_slice_is_written_without_the_rows_around_it():
    batch = build_batch(100_000)
    assert len(encode(batch.slice(50_000, 3))) < 1_000
    assert decode(encode(batch.slice(50_000, 3)))[0].equals(batch.slice(50_000, 3))


def test_a_small_batch_is_no_larger_than_with_compression():
    rows = next(rows for rows in range(1, 10_000) if build_batch(rows).nbytes >= MIN_COMPRESSED_BYTES)
    assert len(encode(build_batch(8))) < 1_000 and len(encode(build_batch(10 * rows))) < 6 * MIN_COMPRESSED_BYTES


def test_texts_in_a_dictionary_are_written_with_it():
    batch = pa.RecordBatch.from_pydict({"type": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert decode(encode(batch))[0].equals(batch)
