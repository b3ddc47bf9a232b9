"""The columns of an event that an application reads, and their types in Arrow and in Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from queues.events import block
from workers.pipeline.events.attributes import SQL_TYPES, TYPES, Attribute

TIMESTAMP = pa.timestamp("us", tz="UTC")
_KINDS = {
    **{field.name: field.type for field in block.SCHEMA},
    "queue": pa.string(),
    "node": pa.string(),
    "block": pa.string(),
    "published": TIMESTAMP,
}
_SQL = {pa.string(): "string", pa.float64(): "double", TIMESTAMP: "timestamp"}
COLUMNS = tuple(_KINDS)
CARRIED = ("id", "type", "source", "key", "value")  # in every row, besides what patterns read


@dataclass(frozen=True)
class Layout:
    """The columns that are read, in order: some of COLUMNS, then the declared attributes.

    criteria: criteria whose present values follow as columns.
    """

    columns: tuple[str, ...] = COLUMNS
    attributes: tuple[Attribute, ...] = ()
    criteria: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        own = [pa.field(name, _KINDS[name]) for name in self.columns]
        return pa.schema([*own, *(pa.field(attribute.name, TYPES[attribute.kind]) for attribute in self.attributes)])

    @property
    def sql(self) -> str:
        """Return the Spark schema."""
        own = [f"{name} {_SQL[_KINDS[name]]}" for name in self.columns]
        attributes = [f"`{attribute.name}` {SQL_TYPES[attribute.kind]}" for attribute in self.attributes]
        criteria = [f"`{get_criterion_column(name)}` double" for name in self.criteria]
        return ", ".join([*own, *attributes, *criteria])

    def add_criteria(self, rows: pa.RecordBatch, criteria: Mapping[str, float]) -> pa.RecordBatch:
        """Return the rows under `schema` with the columns of the criteria."""
        for name in self.criteria:
            rows = rows.append_column(get_criterion_column(name), pa.repeat(float(criteria[name]), rows.num_rows))
        return rows


def get_criterion_column(name: str) -> str:
    """Return the name of a criterion's column. A value in a column can change without a new plan."""
    return f"criterion {name}"
