"""What the laws of parallelism share: operators of paths, and what of them was not measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.framework.decision import Decision
from controllers.framework.reason import listed, no_action


def operators_of(paths: Sequence[Sequence[str]]) -> list[str]:
    """Every operator of the paths once, in their order."""
    return list(dict.fromkeys(name for path in paths for name in path))


def held_unmeasured(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], needed: Sequence[str]
) -> Decision | None:
    """No action while a measurement that is `needed` of an operator is missing; None where all are there."""
    missing = [name for name in names if any(rows[name][each] is None for each in needed)]
    if not missing:
        return None
    reason = no_action(f"{listed(missing)} {'was' if len(missing) == 1 else 'were'} not measured")
    return Decision(None, reason, limited_by="unmeasured")
