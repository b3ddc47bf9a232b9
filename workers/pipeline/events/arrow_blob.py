"""Record batches with their schema, as bytes: what tiers pass on, and what matchers store."""

import pyarrow as pa

# Compression more than halves the bytes. It costs less than sending, storing, and logging the rest would.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def encode(batch: pa.RecordBatch) -> bytes:
    """Encode a record batch with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes) -> list[pa.RecordBatch]:
    """Return the record batches of a blob."""
    return list(pa.ipc.open_stream(data))
