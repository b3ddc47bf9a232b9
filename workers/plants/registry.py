"""Plants by name: the local one, and those that an administrator has added."""

from common.errors import BadInput
from controllers.parallelism.measured_topology import MeasuredTopology
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot
from workers.plants.plant import PlantUnavailable
from workers.plants.topology import build_topology

LOCAL = "main"


class UnknownPlant(BadInput):
    """A plant that is not registered."""


def find_topology(snapshot: Snapshot, name: str) -> MeasuredTopology:
    """Return the plant's topology from a snapshot.

    Raise `UnknownPlant`, and `PlantUnavailable` while it is not observed.
    """
    if name == snapshot.plant:
        return build_topology(snapshot)
    others = snapshot.plants
    if name not in others:
        known = ", ".join([snapshot.plant, *others])
        raise UnknownPlant("plant", f"{name} is unknown. Known plants: {known}.")
    row = others[name]
    if row.state != "seen" or row.topology is None:
        raise PlantUnavailable(explain_unseen(name, row))
    return MeasuredTopology.from_document(row.topology)


def explain_unseen(name: str, row: PlantStatus) -> str:
    """Return since when the plant is not observed, and why if that is known."""
    since = "has not been observed yet" if row.age_seconds is None else f"was last observed {row.age_seconds:.0f} s ago"
    if row.error:
        return f"{name} {since}: {row.error}"
    return f"{name} {since}. No error is known. Check that the observer is not overloaded."
