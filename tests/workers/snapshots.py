"""Snapshots for tests, written as JSON has them: what is left out is as by default."""

from collections.abc import Mapping
from typing import Any

from common.stored_document import convert_to_plain, encode_document, replace_fields
from workers.documents.snapshot import Snapshot
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.health import evaluate_health


def snapshot_of(document: Mapping[str, Any]) -> Snapshot:
    """The snapshot of plain values, or of documents among them."""
    return Snapshot.from_json(encode_document(document))


def judged(snapshot: Snapshot) -> Snapshot:
    """With the states of its subjects and the plant's, as the observer publishes it."""
    snapshot = replace_fields(snapshot, states=evaluate_states(snapshot, snapshot.states))
    return replace_fields(snapshot, health=evaluate_health(snapshot))


def judged_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same of plain values."""
    return convert_to_plain(judged(snapshot_of(document)))


def without_nulls(document: Any) -> Any:
    """In a merge patch null and absent are the same; lists are values of their own."""
    if not isinstance(document, dict):
        return document
    return {name: without_nulls(value) for name, value in document.items() if value is not None}
