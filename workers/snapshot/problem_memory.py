"""The problems of the last half hour: when each began, when it ended, and what it explained.

A problem is a subject whose state is a warning or critical and that nothing else explains. It is over when its subject
has been calm for CALM_SECONDS; a queue that catches up is not calm. If another problem comes to explain it, both are
one, which began with the first of them.
"""

from collections.abc import Mapping

from common.stored_document import replace_fields
from workers.documents.snapshot import Snapshot
from workers.documents.states import Problem, SubjectState

KINDS = ("plant", "pipeline", "application", "node", "queue", "host")
SEVERE = ("warning", "critical")
CALM_SECONDS = 5.0
MIN_SECONDS = 3.0  # a shorter problem is not remembered
KEPT_SECONDS = 1_800.0  # after its end: the longest window of a rule on loops
MAX_PROBLEMS = 100


class ProblemMemory:
    """The problems, followed from one second to the next. before: the snapshot that another watcher left."""

    def __init__(self, before: Snapshot) -> None:
        self._open = {problem.subject: problem for problem in before.problems if problem.ended_at is None}
        self._over = [problem for problem in before.problems if problem.ended_at is not None]
        self._calm_since: dict[str, float] = {}

    def add(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot whose states are known with its problems."""
        now = snapshot.at or 0.0
        for subject, state in snapshot.states.items():
            if state.kind in KINDS and _is_problem(state):
                self._follow(subject, state, now)
        for subject in [*self._open]:
            self._follow_end(subject, snapshot.states, now)
        self._over = [problem for problem in self._over if 0.0 <= now - (problem.ended_at or now) <= KEPT_SECONDS]
        self._over = self._over[-MAX_PROBLEMS:]
        return replace_fields(snapshot, problems=[*self._open.values(), *self._over])

    def _follow(self, subject: str, state: SubjectState, now: float) -> None:
        self._calm_since.pop(subject, None)
        known = self._open.get(subject) or Problem(subject=subject, began_at=now)
        affected = sorted({*known.affected, *state.affected})
        self._open[subject] = replace_fields(known, finding=state.finding, affected=affected)

    def _follow_end(self, subject: str, states: Mapping[str, SubjectState], now: float) -> None:
        state, problem = states.get(subject), self._open[subject]
        root = self._open.get(state.within or "") if state is not None else None
        if root is not None and root.subject != subject:
            begun = min(root.began_at, problem.began_at)
            self._open[root.subject] = replace_fields(root, began_at=begun)
            self._open.pop(subject)
        elif state is not None and (_is_problem(state) or state.late or state.within is not None):
            self._calm_since.pop(subject, None)
        elif now - (since := self._calm_since.setdefault(subject, now)) >= CALM_SECONDS:
            self._calm_since.pop(subject)
            self._open.pop(subject)
            if since - problem.began_at >= MIN_SECONDS:
                self._over.append(replace_fields(problem, ended_at=since))


def _is_problem(state: SubjectState) -> bool:
    return state.severity in SEVERE and bool(state.finding) and state.within is None
