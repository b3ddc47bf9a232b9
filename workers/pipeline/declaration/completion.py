"""Names that the editor of a declaration suggests while you write a condition or a measure.

The text can be incomplete or invalid. Names that can't be read are omitted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.documents import read_yaml
from common.errors import BadInput
from workers.pipeline.events.layout import COLUMNS
from workers.pipeline.patterns.references import FUNCTIONS

MAX_NAMES = 500
_SYMBOL = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\()")
_WORDS = ("NOT",)


def list_completions(text: str) -> dict[str, list[str]]:
    """Return the names of a declaration: {"symbols", "columns", "functions", "patterns"}.

    symbols: the symbols of all patterns that conditions can refer to. columns: attributes, measures, and the columns of
    every event. Both are sorted. patterns: in the order of the text.
    """
    try:
        document = read_yaml(text, "application").value
    except BadInput:
        document = None
    patterns = list(_iterate_patterns(document))
    symbols = {name for pattern in patterns for name in _SYMBOL.findall(str(pattern.get("pattern", "")))}
    measures = {name for pattern in patterns for name in _list_keys(pattern.get("measures"))}
    names = [pattern.get("name") for pattern in patterns]
    attributes = _list_keys(document.get("attributes")) if isinstance(document, Mapping) else []
    return {
        "symbols": sorted(symbols - {*_WORDS})[:MAX_NAMES],
        "columns": sorted({*COLUMNS, *attributes, *measures})[:MAX_NAMES],
        "functions": [*FUNCTIONS, "prev"],
        "patterns": [name for name in names if isinstance(name, str)][:MAX_NAMES],
    }


def _iterate_patterns(document: object) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        return
    operators = document.get("operators")
    holders = [document, *(operators if isinstance(operators, list) else [])]
    for patterns in (holder.get("patterns") for holder in holders if isinstance(holder, Mapping)):
        if isinstance(patterns, list):
            yield from (pattern for pattern in patterns if isinstance(pattern, Mapping))


def _list_keys(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, Mapping) else []
