"""Matchers as a form posts them: rows of label, operator, and value. A row without a value is ignored."""

from dataclasses import dataclass

from django.http import QueryDict

FIRST_LABELS = ("queue", "node", "loop", "severity")  # a form has a row for each


@dataclass(frozen=True)
class MatcherRow:
    """A row of a matcher form; without a value it is not a matcher yet."""

    label: str
    operator: str
    value: str


def read_matchers(posted: QueryDict) -> list[dict[str, str]]:
    """Return the matchers as typed, not checked yet."""
    columns = (posted.getlist(f"matcher-{name}") for name in ("label", "is", "value"))
    rows = [dict(zip(("label", "is", "value"), row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if row["value"].strip()]


def build_matcher_rows(matchers: list[dict[str, str]]) -> list[MatcherRow]:
    """Return all rows of a form: first the given matchers, then labels that are not matched yet."""
    filled = [MatcherRow(matcher["label"], matcher["is"], matcher["value"]) for matcher in matchers]
    taken = {row.label for row in filled}
    empty = [MatcherRow(label, "=", "") for label in FIRST_LABELS if label not in taken]
    return [*filled, *empty[: max(1, len(FIRST_LABELS) - len(filled))]]
