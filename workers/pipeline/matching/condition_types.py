"""Type checks of the conditions of patterns.

Conditions must fit the columns that events have after the rules. The checks run before any event arrives.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from common.errors import BadInput
from workers.pipeline.matching.matcher import compute_masks
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.predicate import format_previous_name

_OF_SQL: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "boolean": pa.bool_(),
    "timestamp": pa.int64(),  # patterns see it as microseconds
}


def check_conditions(patterns: Iterable[Pattern], kinds: Mapping[str, str]) -> None:
    """Raise `BadInput` that names the pattern and its condition if a condition doesn't fit the columns.

    kinds: column → its SQL type. If a pattern reads a column of another type than these, it is only checked on its
    first events.
    """
    known = {name: _OF_SQL[kind] for name, kind in kinds.items() if kind in _OF_SQL}
    none = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in known.values()], list(known))
    before = {format_previous_name(name): none.column(name) for name in known}
    for pattern in patterns:
        if not pattern.columns <= set(known):
            continue
        try:
            compute_masks(pattern, none, before)
        except BadInput as error:
            raise BadInput(f"{pattern.name}.{error.field}", error.message) from None
