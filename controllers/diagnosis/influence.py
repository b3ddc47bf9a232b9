"""How near each part of a plant is to a fault: steps upstream, from what is disturbed to what can disturb it.

A part is `kind/name` ("queue/alert", "node/n1"); `influences` names, for each part, those that act on it
directly: its sources, its host, what reads from it and so holds it up, the loops that steer it.
"""

from collections.abc import Iterable, Mapping

Influences = Mapping[str, Iterable[str]]


def distances(influences: Influences, subjects: Iterable[str]) -> dict[str, int]:
    """Steps from the subjects (0) to each part that can act on them, by breadth-first search. Of parts that
    can not, there is none.
    """
    found = dict.fromkeys(subjects, 0)
    level = list(found)
    step = 0
    while level:
        step += 1
        nearer = [part for each in level for part in influences.get(each, ()) if part not in found]
        level = list(dict.fromkeys(nearer))
        found.update(dict.fromkeys(level, step))
    return found
