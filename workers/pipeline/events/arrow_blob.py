"""Record batches with their schema, as bytes: what tiers hand on, and what matchers remember."""

import pyarrow as pa

# Less than half the bytes: what it costs is less than sending, keeping and logging the rest would.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def encode(batch: pa.RecordBatch) -> bytes:
    """A record batch with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes) -> list[pa.RecordBatch]:
    """The record batches of a blob."""
    return list(pa.ipc.open_stream(data))
