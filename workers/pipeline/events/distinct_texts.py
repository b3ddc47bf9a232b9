"""The distinct texts of a column.

Events repeat their texts. What depends on a text alone is computed once for each distinct text.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MAX_DISTINCT_SHARE = 0.25  # of the rows: with more distinct texts, each row is computed
PROBED_ROWS = 512
MAX_PROBED_SHARE = 0.75


@dataclass
class DistinctTexts:
    """The distinct texts of a column, and one null at the end. places: the place of each row's text."""

    texts: pa.Array
    places: pa.Array


def find_distinct_texts(texts: pa.Array) -> DistinctTexts | None:
    """Return the distinct texts of a column; None if they are more than MAX_DISTINCT_SHARE of the rows."""
    rows = len(texts)
    # A column of unique texts is recognized by its first rows, before all are hashed.
    if rows > 4 * PROBED_ROWS and len(texts.slice(0, PROBED_ROWS).unique()) > PROBED_ROWS * MAX_PROBED_SHARE:
        return None
    encoded = texts.dictionary_encode()
    distinct = len(encoded.dictionary)
    if distinct >= rows * MAX_DISTINCT_SHARE:
        return None
    with_null = pa.concat_arrays([encoded.dictionary, pa.nulls(1, pa.string())])
    return DistinctTexts(with_null, pc.fill_null(encoded.indices, distinct))
