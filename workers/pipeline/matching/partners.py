"""Which events of a batch have no partner: they begin no match, and nothing is open that could go on with
them.

A matcher searches an event only where something of its key is open, or an event before it in the batch may
begin a match. All others could add to none, whatever comes: `once` gives an event to an open attempt or
begins one with it, `skip-past-last` searches from the first event on that may begin. So a search without them
finds the same matches, in the same order, and leaves the same. What a NOT forbids is never left out.

It is decided from the state that the batch begins with, so it is the same in every replay.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

# Per key (text, distinct) whether a matcher holds something open of it.
OpenKeys = Callable[[pa.Array], np.ndarray]


def without_partner(
    keys: pa.Array, masks: np.ndarray, begins: int, absent: int, is_open: OpenKeys
) -> np.ndarray:
    """bool per row, of rows in event-time order. keys: text, none null. masks: the bits of the symbols each
    satisfies; begins: those that may begin a match; absent: those that a NOT forbids.
    """
    beginning = np.flatnonzero(masks & begins)
    if len(beginning) == np.count_nonzero(masks):
        return np.zeros(len(masks), bool)
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    # Per key the place of its first event that may begin: the first is written last, and stays.
    first = np.full(len(encoded.dictionary), len(masks))
    first[codes[beginning[::-1]]] = beginning[::-1]
    first[is_open(encoded.dictionary)] = 0
    found: np.ndarray = (masks != 0) & (masks & absent == 0) & (np.arange(len(masks)) < first[codes])
    return found
