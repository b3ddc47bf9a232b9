"""Arrow streams as an attacker writes them: by Arrow's own writer, and put together by hand."""

import struct

import pyarrow as pa

CONTINUATION = b"\xff\xff\xff\xff"
END = CONTINUATION + b"\0\0\0\0"


def stream(*batches, **options):
    """Batches of one schema as Arrow writes them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def columns(**arrays):
    return pa.RecordBatch.from_pydict(arrays)


def schema_of(schema):
    """A stream that has got no further than its schema."""
    return schema.serialize().to_pybytes()


def batch_of(rows, nodes, buffers, body, body_bytes=None):
    """A record batch's message with a header that says what it is told to, then the body."""
    vectors = [_pairs(nodes), _pairs(buffers)]
    # Tables: root (at 24), batch (at 64), then the vectors; each with its vtable before it.
    header = bytearray(120)
    struct.pack_into("<I", header, 0, 24)
    struct.pack_into("<6H", header, 12, 12, 32, 4, 6, 8, 16)  # version, type, header, body length
    struct.pack_into("<i", header, 24, 12)
    struct.pack_into("<HB", header, 28, 4, 3)  # V5, record batch
    struct.pack_into("<I", header, 32, 72 - 32)
    struct.pack_into("<q", header, 40, len(body) if body_bytes is None else body_bytes)
    struct.pack_into("<5H", header, 60, 10, 24, 8, 4, 16)  # length, nodes, buffers
    struct.pack_into("<i", header, 72, 12)
    struct.pack_into("<q", header, 80, rows)
    struct.pack_into("<I", header, 76, 124 - 76)
    struct.pack_into("<I", header, 88, 124 + len(vectors[0]) - 88)
    whole = bytes(header) + b"\0" * 4 + vectors[0] + vectors[1]
    whole += b"\0" * (-len(whole) % 8)
    return CONTINUATION + struct.pack("<i", len(whole)) + whole + body


def _pairs(pairs):
    """A vector of structs; its length is padded so that the structs lie on 8 bytes."""
    return struct.pack("<I", len(pairs)) + b"".join(struct.pack("<qq", *pair) for pair in pairs) + b"\0" * 4
