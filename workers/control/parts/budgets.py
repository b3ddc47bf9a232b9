"""Error budgets that a loop may spend, from the snapshot (`controllers.shedding.budgets`)."""

from collections.abc import Collection

from controllers.shedding.budgets import Budget, Level
from workers.documents.objectives import ObjectiveStatus
from workers.documents.snapshot import Snapshot


def list_budgets(
    level: Level, snapshot: Snapshot, queues: Collection[str], applications: Collection[str]
) -> list[Budget]:
    """Return the budgets of objectives that pay for a level and concern these queues or applications.

    Objectives about the whole plant are included.
    """
    subjects = {"queue": queues, "application": applications}
    return [
        Budget(level=level, name=name, left=row.left, share=row.left_share)
        for name, row in sorted(snapshot.objectives.items())
        if row.pays_for == level and _is_relevant(row, subjects.get(row.kind))
    ]


def _is_relevant(row: ObjectiveStatus, names: Collection[str] | None) -> bool:
    """Return whether an objective is relevant; one without a subject concerns all of its kind together."""
    return names is None or (row.subject in names if row.subject else bool(names))
