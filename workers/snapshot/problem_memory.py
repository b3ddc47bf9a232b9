"""The problems of the last half hour: when each began, when it ended, and what it explained.

A problem is a subject whose state is a warning or critical and that nothing else explains. It ends when its subject is
calm, and continues if it returns within CALM_SECONDS. A queue that catches up is not calm. If another problem explains
it later, both are one problem, which began when the first of them began.
"""

from common.stored_document import replace_fields
from workers.documents.snapshot import Snapshot
from workers.documents.states import Problem, SubjectState
from workers.snapshot.parts import SAME_RUN_SECONDS
from workers.snapshot.recovery import FindAction, describe_recovery, describe_return

KINDS = ("plant", "pipeline", "application", "node", "queue", "host")
SEVERE = ("warning", "critical")
CALM_SECONDS = 5.0
MIN_SECONDS = 3.0  # a shorter problem is not remembered
KEPT_SECONDS = 1_800.0  # after its end: the longest window of a rule on loops
MAX_PROBLEMS = 100


class ProblemMemory:
    """The problems, followed from one second to the next.

    before: the snapshot that another watcher left. find_action: finds what a loop did on the subject of a problem.
    """

    def __init__(self, before: Snapshot, find_action: FindAction = lambda problem: None) -> None:
        self._find_action, self._left_at = find_action, before.at
        self._open = {problem.subject: problem for problem in before.problems if problem.ended_at is None}
        self._over = [problem for problem in before.problems if problem.ended_at is not None]

    def add(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with its problems. Its states must be known."""
        now = snapshot.at or 0.0
        if self._left_at is not None and now - self._left_at > SAME_RUN_SECONDS:
            self._open.clear()  # Their ends were not observed.
        self._left_at = None
        for subject, state in snapshot.states.items():
            if state.kind in KINDS and _is_problem(state):
                self._follow(subject, state, snapshot)
        for subject in [*self._open]:
            self._follow_end(subject, snapshot)
        self._over = [
            problem
            for problem in self._over[-MAX_PROBLEMS:]
            if 0.0 <= (ago := now - (problem.ended_at or now)) <= KEPT_SECONDS
            and not (ago <= CALM_SECONDS and self._join_root(problem, snapshot.states.get(problem.subject)))
        ]
        return replace_fields(snapshot, problems=[*self._open.values(), *self._over])

    def _follow(self, subject: str, state: SubjectState, snapshot: Snapshot) -> None:
        now = snapshot.at or 0.0
        known = self._open.get(subject) or self._reopen(subject, now) or Problem(subject=subject, began_at=now)
        affected = sorted({*known.affected, *state.affected})
        returns_to = describe_return(subject, state, snapshot) or known.returns_to
        self._open[subject] = replace_fields(known, finding=state.finding, affected=affected, returns_to=returns_to)

    def _reopen(self, subject: str, now: float) -> Problem | None:
        """Return the problem of a subject that was calm only for a moment."""
        for problem in self._over:
            if problem.subject == subject and now - (problem.ended_at or 0.0) <= CALM_SECONDS:
                self._over.remove(problem)
                return replace_fields(problem, ended_at=None, recovery="")
        return None

    def _follow_end(self, subject: str, snapshot: Snapshot) -> None:
        state, problem, now = snapshot.states.get(subject), self._open[subject], snapshot.at or 0.0
        if self._join_root(problem, state):
            self._open.pop(subject)
        elif state is None or not (_is_problem(state) or state.late or state.within is not None):
            ended = replace_fields(problem, ended_at=now)
            # A subject that is gone has not recovered.
            is_back = state is not None and now - problem.began_at >= MIN_SECONDS
            recovery = describe_recovery(ended, snapshot.processes, self._find_action) if is_back else ""
            self._open.pop(subject)
            if now - problem.began_at >= MIN_SECONDS:
                self._over.append(replace_fields(ended, recovery=recovery))

    def _join_root(self, problem: Problem, state: SubjectState | None) -> bool:
        """Join the problem with another one that explains it now. Return whether there is one."""
        root = self._open.get(state.within or "") if state is not None else None
        if root is None or root.subject == problem.subject:
            return False
        self._open[root.subject] = replace_fields(root, began_at=min(root.began_at, problem.began_at))
        return True


def _is_problem(state: SubjectState) -> bool:
    return state.severity in SEVERE and bool(state.finding) and state.within is None
