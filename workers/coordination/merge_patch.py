"""Differences between two snapshots as a JSON merge patch (RFC 7396).

In a merge patch, null removes a key. A value that became unknown is therefore removed at the receiver, where absent and
null both mean unknown. Lists are replaced whole.
"""

from typing import Any

from msgspec.structs import astuple

from common.stored_document import StoredDocument

JsonObject = dict[str, Any]


def compute_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the patch from old to new; empty when nothing changed. Values may be stored documents."""
    patch: JsonObject = {name: None for name in old if name not in new and old[name] is not None}
    for name, value in new.items():
        _compare(patch, name, old.get(name), value)
    return patch


def document_difference(old: StoredDocument, new: StoredDocument) -> JsonObject:
    """Return the patch between two documents of one type."""
    patch: JsonObject = {}
    for name, before, value in zip(new.__struct_encode_fields__, astuple(old), astuple(new), strict=True):
        _compare(patch, name, before, value)
    return patch


def _compare(patch: JsonObject, name: str, before: object, value: object) -> None:
    if value is before:
        return
    inner = None
    if isinstance(value, StoredDocument) and type(before) is type(value):
        inner = document_difference(before, value)
    elif isinstance(value, dict) and isinstance(before, dict):
        inner = compute_patch(before, value)
    if inner:
        patch[name] = inner
    elif inner is None and value != before:
        patch[name] = value


def apply_patch(target: object, patch: object) -> object:
    """Return the patched document (RFC 7396, section 2), as a receiver computes it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_patch(result.get(name), value)
    return result
