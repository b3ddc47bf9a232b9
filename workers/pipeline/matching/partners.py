"""Events of a batch without a partner: they start no match, and nothing is open that they could continue.

A matcher searches an event only if something of its key is open, or an earlier event of the batch may start a match.
All other events can add to no match, whatever follows: `once` gives an event to an open attempt or starts one with it,
and `skip-past-last` searches from the first event that may start. A search without them therefore finds the same
matches, in the same order, and leaves the same state. Events that a NOT forbids are never left out.

The decision depends on the state at the start of the batch, so it is the same in every replay. It takes a small part of
the time of a search event by event, but a tenth of that of one in arrays. The array matchers therefore only use it if
much may be left out (`is_rare`).
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

# Per key (text, distinct) whether a matcher has something of it open.
OpenKeys = Callable[[pa.Array], np.ndarray]
RARE_SHARE, SAMPLED_ROWS = 0.25, 512


def is_rare(keys: pa.Array, relevant: int, beginning: int, open_rows: int, is_open: OpenKeys) -> bool:
    """Return whether most events of a batch may be left out.

    That is the case if few of them start a match, few are retained, and most of a sample have keys of which nothing is
    open. keys: of all rows. relevant, beginning: how many of them satisfy any symbol, and one that a match may start
    with.
    """
    if beginning + open_rows > RARE_SHARE * relevant:
        return False
    places = np.linspace(0, len(keys) - 1, min(len(keys), SAMPLED_ROWS)).astype(np.int64)
    sample = keys.take(pa.array(places)).dictionary_encode()
    is_open_of_rows = is_open(sample.dictionary)[sample.indices.to_numpy()]
    return bool(is_open_of_rows.mean() < 1 / 2)


def find_without_partner(keys: pa.Array, masks: np.ndarray, begins: int, absent: int, is_open: OpenKeys) -> np.ndarray:
    """Return a bool per row, for rows in event-time order.

    keys: text, none null. masks: the bits of the symbols that each row satisfies. begins: bits that may start a match.
    absent: bits that a NOT forbids.
    """
    beginning = np.flatnonzero(masks & begins)
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    # Per key the place of its first event that may start a match: it is written last, and stays.
    first = np.full(len(encoded.dictionary), len(masks))
    first[codes[beginning[::-1]]] = beginning[::-1]
    first[is_open(encoded.dictionary)] = 0
    alone: np.ndarray = (masks != 0) & (masks & absent == 0) & (np.arange(len(masks)) < first[codes])
    return alone
