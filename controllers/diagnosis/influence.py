"""Distance of each part of a plant from a fault: steps upstream, from the affected part to its influences.

A part is `kind/name` ("queue/alert", "node/n1"); `influences` names, for each part, those that act on it directly: its
sources, its host, its readers (which may hold it up), and the loops that control it.
"""

from collections.abc import Iterable, Mapping

Influences = Mapping[str, Iterable[str]]


def compute_distances(influences: Influences, subjects: Iterable[str]) -> dict[str, int]:
    """Return the steps from the subjects (0) to each part that can act on them, by breadth-first search.

    Parts that cannot act on them are left out.
    """
    steps = dict.fromkeys(subjects, 0)
    level = list(steps)
    step = 0
    while level:
        step += 1
        nearer = [part for neighbor in level for part in influences.get(neighbor, ()) if part not in steps]
        level = list(dict.fromkeys(nearer))
        steps.update(dict.fromkeys(level, step))
    return steps
