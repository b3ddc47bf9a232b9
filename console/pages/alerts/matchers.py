"""Matchers as a form posts them: rows of label, is and value; a row without a value is none."""

from dataclasses import dataclass

from django.http import QueryDict

FIRST_LABELS = ("queue", "node", "loop", "severity")  # a form has a row for each


@dataclass(frozen=True)
class MatcherRow:
    """A matcher in a form; without a value it is none yet."""

    label: str
    operator: str
    value: str


def matchers_of(posted: QueryDict) -> list[dict[str, str]]:
    """What was typed, not checked yet."""
    columns = (posted.getlist(f"matcher-{name}") for name in ("label", "is", "value"))
    rows = [dict(zip(("label", "is", "value"), row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if row["value"].strip()]


def rows_of(matchers: list[dict[str, str]]) -> list[MatcherRow]:
    """As many rows as a form has, filled from the first; the others offer what is not matched yet."""
    filled = [MatcherRow(matcher["label"], matcher["is"], matcher["value"]) for matcher in matchers]
    taken = {row.label for row in filled}
    empty = [MatcherRow(label, "=", "") for label in FIRST_LABELS if label not in taken]
    return [*filled, *empty[: max(1, len(FIRST_LABELS) - len(filled))]]
