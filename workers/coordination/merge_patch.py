"""What changed between two snapshots, as a JSON merge patch (RFC 7396).

In a merge patch null removes a key. So a value that became unknown is removed at the receiver; absent and
null mean the same there: unknown. Lists are replaced whole.
"""

from typing import Any

JsonObject = dict[str, Any]


def difference(old: JsonObject, new: JsonObject) -> JsonObject:
    """The patch that leads from old to new; empty when nothing changed."""
    patch: JsonObject = {name: None for name in old if name not in new and old[name] is not None}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := difference(before, value):
                patch[name] = inner
        elif value != before:
            patch[name] = value
    return patch


def applied(target: Any, patch: Any) -> Any:
    """The patched document (RFC 7396, section 2), as a receiver makes it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = applied(result.get(name), value)
    return result
