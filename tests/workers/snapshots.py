"""Snapshots for tests, written as JSON has them: what is left out is as by default."""

from collections.abc import Mapping
from typing import Any

from queues.stored_document import encoded
from workers.documents.snapshot import Snapshot


def snapshot_of(document: Mapping[str, Any]) -> Snapshot:
    """The snapshot of plain values, or of documents among them."""
    return Snapshot.from_json(encoded(document))
