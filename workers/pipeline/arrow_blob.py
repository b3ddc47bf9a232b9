"""Record batches with their schema, as bytes: what tiers hand on, and what matchers remember."""

import pyarrow as pa


def encode(batch: pa.RecordBatch) -> bytes:
    """A record batch with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes) -> list[pa.RecordBatch]:
    """The record batches of a blob."""
    return list(pa.ipc.open_stream(data))
