"""Open runs of batch tasks in the snapshot."""

from common.stored_document import StoredDocument


class RunStatus(StoredDocument, frozen=True, kw_only=True):
    """A run.

    share: its progress, 0 to 1. working: workers at it now; workers_wanted: the number that it should have.
    """

    task: str
    state: str
    share: float | None = None
    rows: int = 0
    chunks_done: int = 0
    chunks_total: int | None = None
    stages_done: int = 0
    stages_total: int = 0
    working: int = 0
    workers_wanted: int = 0
    started_at: float | None = None
    deadline_at: float | None = None
