"""Rows of two versions of a declaration together: the type of a column may have changed."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def unify_types(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Cast each column to its type in the last table. Values that can't be cast become null."""
    kinds: dict[str, pa.DataType] = {}
    for table in tables:
        kinds.update({field.name: field.type for field in table.schema if not pa.types.is_null(field.type)})
    return [_cast_table(table, kinds) for table in tables]


def as_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with a schema of the same columns."""
    if rows.schema == schema:
        return rows
    columns = [_cast(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_table(table: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    for place, field in enumerate(table.schema):
        kind = kinds.get(field.name, field.type)
        if field.type not in (kind, pa.null()):
            column = _cast(table.column(place).combine_chunks(), kind)
            table = table.set_column(place, pa.field(field.name, kind), column)
    return table


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(column, kind, safe=False)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)
