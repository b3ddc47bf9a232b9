"""What kinds that place containers do alike: their decisions become plans."""

from datetime import datetime

from workers.control.parts.kind import LoopStart, Targets
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Plan
from workers.placement import proposals
from workers.plants.plant import Plant


def move_points(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Make the entry's plan, approved by the loop; it is executed within about a second.

    An entry has one plan, however often it is applied.
    """
    proposals.from_decision(entry, plant.observe(), entry.at, approved=True)


def propose(entry: LedgerEntry, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Put the entry's plan before a person. Raises WeirError: the plant has changed since the snapshot."""
    return proposals.from_decision(entry, snapshot, now, approved=False)


def whole_plant(law: str) -> Targets:
    """One loop, with the law's name, and always there."""
    return Targets({law: LoopStart({})}, gone="the plant has none")
