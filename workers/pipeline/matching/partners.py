"""Which events of a batch have no partner: they begin no match, and nothing is open that could go on with
them.

A matcher searches an event only where something of its key is open, or an event before it in the batch may
begin a match. All others could add to none, whatever comes: `once` gives an event to an open attempt or
begins one with it, `skip-past-last` searches from the first event on that may begin. So a search without them
finds the same matches, in the same order, and leaves the same. What a NOT forbids is never left out.

It is decided from the state that the batch begins with, so it is the same in every replay. To ask takes a
small part of a search event by event, but a tenth of one in arrays: there it is asked only where much may be
left out (`is_rare`).
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

# Per key (text, distinct) whether a matcher holds something open of it.
OpenKeys = Callable[[pa.Array], np.ndarray]
RARE_SHARE, SAMPLED_ROWS = 0.25, 512


def is_rare(keys: pa.Array, relevant: int, beginning: int, open_rows: int, is_open: OpenKeys) -> bool:
    """Whether most of a batch's events may be left out: few of them begin a match, few are retained, and of a
    sample most are of keys of which nothing is open. keys: of all rows. relevant, beginning: how many of them
    satisfy any symbol, and one that a match may begin with.
    """
    if beginning + open_rows > RARE_SHARE * relevant:
        return False
    places = np.linspace(0, len(keys) - 1, min(len(keys), SAMPLED_ROWS)).astype(np.int64)
    sample = keys.take(pa.array(places)).dictionary_encode()
    is_open_of_rows = is_open(sample.dictionary)[sample.indices.to_numpy()]
    return bool(is_open_of_rows.mean() < 1 / 2)


def find_without_partner(
    keys: pa.Array, masks: np.ndarray, begins: int, absent: int, is_open: OpenKeys
) -> np.ndarray:
    """bool per row, of rows in event-time order. keys: text, none null. masks: the bits of the symbols each
    satisfies; begins: those that may begin a match; absent: those that a NOT forbids.
    """
    beginning = np.flatnonzero(masks & begins)
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    # Per key the place of its first event that may begin: the first is written last, and stays.
    first = np.full(len(encoded.dictionary), len(masks))
    first[codes[beginning[::-1]]] = beginning[::-1]
    first[is_open(encoded.dictionary)] = 0
    found: np.ndarray = (masks != 0) & (masks & absent == 0) & (np.arange(len(masks)) < first[codes])
    return found
