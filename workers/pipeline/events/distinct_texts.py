"""The distinct texts of a column.

Events repeat their texts. A value that depends only on a text is computed once for each distinct text.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MAX_DISTINCT_SHARE = 0.25  # share of the rows; with more distinct texts, each row is computed
PROBED_ROWS = 512
MAX_PROBED_SHARE = 0.75


@dataclass
class DistinctTexts:
    """The distinct texts of a column, followed by a null. places: the index of each row's text."""

    texts: pa.Array
    places: pa.Array


def find_distinct_texts(texts: pa.Array) -> DistinctTexts | None:
    """Return the distinct texts of a column; None if there are more than MAX_DISTINCT_SHARE of the rows."""
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
