"""Actions of the kinds that place containers: their decisions become plans."""

from datetime import datetime

from workers.control.parts.kind import LoopStart, Targets
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop, Plan
from workers.placement import proposals
from workers.plants.plant import Plant


def move_points(entry: LedgerEntry, loop: Loop, plant: Plant) -> None:
    """Carry out the entry's decision as a plan that is approved by the loop."""
    plant.move_points(entry)


def propose(entry: LedgerEntry, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the entry's plan, proposed to a person. Raises WeirError where the plant has changed."""
    return proposals.from_decision(entry, snapshot, now, approved=False)


def build_plant_target(law: str) -> Targets:
    """Return one target with the law's name that always exists."""
    return Targets({law: LoopStart({})}, gone="the plant has no such loop")
