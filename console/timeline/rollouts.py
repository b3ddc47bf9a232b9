"""Rollouts at attached plants as marks of the timeline: the revision of a part has changed."""

from datetime import UTC, datetime

from common.checks import make_storable
from console.actions.timeline import marks
from console.models import Mark
from workers.documents.snapshot import Snapshot

SEEN = "seen"


class RolloutMarks:
    """Follows snapshots in their order.

    A rollout while it was not running is marked when it is seen, if an earlier rollout of the part was.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], str] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Mark the rollouts in a snapshot. Raises the database's errors."""
        for plant, row in snapshot.plants.items():
            for part, revision in make_storable(row.revisions).items() if row.state == SEEN else ():
                before = self._before.get((plant, part)) or _find_marked_revision(plant, part, revision)
                # Another observer may have run in the meantime, and have marked it.
                if before not in ("", revision) and _find_marked_revision(plant, part, revision) != revision:
                    _mark(plant, part, revision, before, datetime.fromtimestamp(snapshot.at or 0.0, UTC))
                self._before[plant, part] = revision


def _mark(plant: str, part: str, revision: str, before: str, now: datetime) -> None:
    text = f"Rolled out at {plant}; the previous revision was {before}."
    marks.add_rollout(_format_author(plant), title=_format_title(part, revision), text=text, now=now)


def _find_marked_revision(plant: str, part: str, revision: str) -> str:
    """Return the revision of the newest mark, "" if there is none.

    The mark of a long one only has its start: revisions with the same title are the same.
    """
    rows = Mark.objects.filter(author=_format_author(plant), title__startswith=_format_title(part)).order_by("-at")
    if (row := rows.first()) is None:
        return ""
    return revision if row.title == _format_title(part, revision) else row.title.removeprefix(_format_title(part))


def _format_author(plant: str) -> str:
    return f"plant:{plant}"


def _format_title(part: str, revision: str = "") -> str:
    return f"{part}: revision {revision}"[: marks.MAX_TITLE]
