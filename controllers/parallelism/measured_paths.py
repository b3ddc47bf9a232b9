"""What the laws of parallelism share: operators of paths, what of them was not measured, and no memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.framework.decision import Decision, Json
from controllers.framework.parameter import read_object, refuse_unknown


def operators_of(paths: Sequence[Sequence[str]]) -> list[str]:
    """Every operator of the paths once, in their order."""
    return list(dict.fromkeys(name for path in paths for name in path))


def held_unmeasured(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], needed: Sequence[str]
) -> Decision | None:
    """Nothing is done while what is `needed` of an operator is not known; None where all is."""
    missing = [name for name in names if any(rows[name][each] is None for each in needed)]
    if not missing:
        return None
    reason = f"{', '.join(missing)} was not measured; tasks stay as they are."
    return Decision(None, reason, limited_by="unmeasured")


def no_memory(document: Json) -> Json:
    """The empty state. Raises `BadInput` for a key."""
    if document is not None:
        refuse_unknown(read_object(document, "state"), (), "state")
    return {}
