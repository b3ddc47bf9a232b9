"""Matchers as a form posts them: rows of label, is and value; a row without a value is none."""

from typing import Any

from django.http import QueryDict

FIRST_LABELS = ("queue", "node", "loop", "severity")  # a form has a row for each


def matchers_of(posted: QueryDict) -> list[dict[str, str]]:
    """What was typed, not checked yet."""
    columns = (posted.getlist(f"matcher-{name}") for name in ("label", "is", "value"))
    rows = [dict(zip(("label", "is", "value"), row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if row["value"].strip()]


def rows_of(matchers: list[dict[str, str]]) -> list[dict[str, Any]]:
    """As many rows as a form has, filled from the first; the others offer what is not matched yet."""
    taken = {row["label"] for row in matchers}
    left = [label for label in FIRST_LABELS if label not in taken]
    empty = [{"label": label, "is": "=", "value": ""} for label in left]
    return [*matchers, *empty[: max(1, len(FIRST_LABELS) - len(matchers))]]
