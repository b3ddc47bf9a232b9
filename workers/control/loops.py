"""The set of loops: each kind has one for each of its targets."""

from collections.abc import Iterable
from typing import Any

from workers.control.kinds import registry
from workers.control.parts.kind import LoopKind, LoopStart, PlantInventory, Targets
from workers.models import Loop


def ensure_loops(present: PlantInventory, laws: Iterable[str] | None = None) -> list[Loop]:
    """Activate exactly the loops that the kinds of these laws (None: all) require, and return them.

    A loop whose target has vanished is retired (`Targets.gone` says why) instead of deleted: it returns with its
    target, with its state and the values that people have set. (Loops of a worker host are deleted a month later, after
    their last decision: `workers.batch.jobs.retention`.) Raises `BadInput` for a law without loops.
    """
    kinds = registry.KINDS.values() if laws is None else [registry.get_kind(law) for law in laws]
    return [loop for kind in kinds for loop in _ensure(kind, kind.targets(present))]


def _ensure(kind: LoopKind, targets: Targets) -> list[Loop]:
    known = {loop.name: loop for loop in Loop.objects.filter(law=kind.name)}
    for name, start in targets.loops.items():
        if name in known:
            _follow(known[name], start)
        else:
            Loop.objects.get_or_create(name=name, defaults=kind.begin(start))
    for name, loop in known.items():
        if name not in targets.loops and "retired_at" not in loop.target:
            _update(loop, target={**loop.target, "retired_at": targets.gone})
    return list(Loop.objects.filter(name__in=targets.loops))


def _follow(loop: Loop, start: LoopStart) -> None:
    parameters = {**loop.parameters, **start.follows}
    if (loop.target, loop.parameters) != (start.target, parameters):
        _update(loop, target=dict(start.target), parameters=parameters)


def _update(loop: Loop, **values: Any) -> None:
    Loop.objects.filter(pk=loop.pk).update(**values)
