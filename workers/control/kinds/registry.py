"""Registry of loop kinds by law name, found in this folder: modules that define `KIND = LoopKind(…)`."""

from collections.abc import Mapping
from typing import Any

from common.errors import BadInput
from controllers.framework.discovery import import_modules
from workers.control import kinds
from workers.control.parts.kind import REST_SECONDS, Display, Lanes, LoopKind

UNKNOWN = Display(Lanes("Measured", "Actuator", "set"))


def find_kinds() -> dict[str, LoopKind]:
    """Return the kinds by law, in the order of the laws. Raises ValueError where a law has two."""
    kinds_by_law: dict[str, LoopKind] = {}
    for module in import_modules(kinds):
        if isinstance(kind := getattr(module, "KIND", None), LoopKind):
            if kind.name in kinds_by_law:
                raise ValueError(f"the law {kind.name} has two kinds of loops")
            kinds_by_law[kind.name] = kind
    return dict(sorted(kinds_by_law.items()))


KINDS: Mapping[str, LoopKind] = find_kinds()


def get_kind(law: str) -> LoopKind:
    """Return the kind of a law's loops. Raises `BadInput`."""
    if law not in KINDS:
        raise BadInput("law", f"{law} has no loops; the laws with loops are {', '.join(KINDS)}")
    return KINDS[law]


def list_seeded_laws() -> list[str]:
    """List the laws whose loops exist as soon as there is a topology."""
    return [name for name, kind in KINDS.items() if kind.seeded]


def get_rest_seconds(law: str) -> float:
    """Return how long a loop of a law may write no entry, beyond its interval."""
    return REST_SECONDS if law in KINDS and KINDS[law].at_rest is not None else 0.0


def find_display(law: str, target: Mapping[str, Any] | None = None) -> Display:
    """Return how loops of a law, or a loop on a target, are displayed.

    Loops of a law that no longer exists have a generic display, since their ledger stays.
    """
    display = KINDS[law].display if law in KINDS else UNKNOWN
    return display.elsewhere if display.elsewhere is not None and "plant" in (target or {}) else display
