"""Loops of what comes and goes (applications, worker hosts): one for each target that is there."""

from collections.abc import Collection, Mapping
from typing import Any

from workers.models import Loop


def ensure(laws: Collection[str], wanted: Mapping[str, Mapping[str, Any]], gone: str) -> list[Loop]:
    """Exactly the `wanted` loops of these laws are active: name → how it is made, with law and target.

    One whose target has vanished is retired (`gone` says why), not deleted: with its target it comes back,
    with its state and whatever people have set.
    """
    known = {loop.name: loop for loop in Loop.objects.filter(law__in=laws)}
    for name, made in wanted.items():
        if name not in known:
            Loop.objects.get_or_create(name=name, defaults=dict(made))
        elif known[name].target != made["target"]:
            Loop.objects.filter(pk=known[name].pk).update(target=made["target"])
    for name, loop in known.items():
        if name not in wanted and "retired_at" not in loop.target:
            Loop.objects.filter(pk=loop.pk).update(target={**loop.target, "retired_at": gone})
    return list(Loop.objects.filter(name__in=wanted))
