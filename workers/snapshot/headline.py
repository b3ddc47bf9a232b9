"""The headline's hysteresis: people have to be able to read it.

Its sentence changes at most once in HOLD_SECONDS, also when its problem ends or becomes more severe. It stays with its
cause while no other problem is more severe, or as severe and can be ended by a person, so that it does not alternate
between causes.
"""

from collections.abc import Sequence

from workers.documents.states import SEVERITIES, SubjectFinding

HOLD_SECONDS = 5.0


class Headline:
    """The shown headline, followed from one second to the next."""

    def __init__(self, shown: SubjectFinding | None = None) -> None:
        self._shown = shown
        self._changed_at: float | None = None

    def follow(
        self, findings: Sequence[SubjectFinding], monotonic_seconds: float, ended: Sequence[SubjectFinding] = ()
    ) -> list[SubjectFinding]:
        """Return the findings with the one to show first.

        findings: worst first; ended: findings about ended problems, which come after all current ones.
        """
        wanted = self._select(findings or ended)
        findings = [*findings, *ended]
        if not self._may_change(monotonic_seconds):
            return [] if self._shown is None else self._keep(self._shown, findings)
        if not _say_the_same(self._shown, wanted):
            self._changed_at = monotonic_seconds
        self._shown = wanted
        return list(findings) if wanted is None else [wanted, *(row for row in findings if row is not wanted)]

    def _select(self, findings: Sequence[SubjectFinding]) -> SubjectFinding | None:
        """Return the worst finding: that of the shown cause, if no other is more severe."""
        if not findings:
            return None
        worst = _rank(findings[0])
        equal = [row for row in findings if _rank(row) == worst]
        subject = self._shown.subject if self._shown else None
        alike = [row for row in equal if row.subject == subject]
        same = next((row for row in alike if _say_the_same(self._shown, row)), None)
        return same or (alike[0] if alike else equal[0])

    def _may_change(self, monotonic_seconds: float) -> bool:
        if self._changed_at is None:
            return True
        return not 0.0 <= monotonic_seconds - self._changed_at < HOLD_SECONDS

    def _keep(self, shown: SubjectFinding, findings: Sequence[SubjectFinding]) -> list[SubjectFinding]:
        """Return the findings with the shown one first, as it was said, with its present figures."""
        current = next((row for row in findings if _say_the_same(shown, row)), None)
        self._shown = current or shown
        others = [row for row in findings if row is not current and row.subject != shown.subject]
        return [self._shown, *others]


def _rank(finding: SubjectFinding) -> tuple[int, bool]:
    """Return the severity, and whether a person can end the problem."""
    return SEVERITIES.index(finding.severity), bool(finding.actions)


def _say_the_same(one: SubjectFinding | None, other: SubjectFinding | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.subject, one.sentence, one.severity) == (other.subject, other.sentence, other.severity)
