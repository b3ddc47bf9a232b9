"""The scope of a planned window: subjects such as queue/alert, node/n1, application/shop, or plant/main.

A plant includes its queues, nodes, applications, and loops. The subject of Weir's own plant includes everything that
belongs to no attached plant.
"""

from collections.abc import Collection, Mapping

KINDS = ("plant", "queue", "node", "application")
OWN_PLANT = "plant/main"
# The label of alerts for each kind of subject.
_LABELS = {"plant": "plant", "queue": "queue", "node": "node", "application": "pipeline"}


def covers_target(scope: Collection[str], target: Mapping[str, str]) -> bool:
    """Return whether a loop with this target is in the scope."""
    if plant := target.get("plant"):
        return f"plant/{plant}" in scope
    return OWN_PLANT in scope or any(f"{kind}/{target[kind]}" in scope for kind in KINDS if kind in target)


def list_target_subjects(target: Mapping[str, str]) -> list[str]:
    """Return the subjects of a loop's target: those of an attached plant, or of this one."""
    kinds = ("plant",) if target.get("plant") else KINDS
    return [f"{kind}/{target[kind]}" for kind in kinds if target.get(kind)]


def covers_labels(scope: Collection[str], labels: Mapping[str, str]) -> bool:
    """Return whether an alert with these labels is in the scope."""
    return covers_target(scope, {kind: labels[label] for kind, label in _LABELS.items() if labels.get(label)})


def meets(scope: Collection[str], subjects: Collection[str]) -> bool:
    """Return whether a change of these subjects changes something in the scope.

    A change of the own plant changes all of its parts.
    """
    if any(subject in scope for subject in subjects):
        return True
    own_scope, own_subjects = (
        [subject for subject in named if not is_attached_plant(subject)] for named in (scope, subjects)
    )
    return bool(own_scope and own_subjects) and (OWN_PLANT in own_scope or OWN_PLANT in own_subjects)


def is_attached_plant(subject: str) -> bool:
    return subject.startswith("plant/") and subject != OWN_PLANT


def format_scope(scope: Collection[str]) -> str:
    """Return a scope in words: queue alert, node n1; the whole plant; all alerts if it is empty."""
    words = ("the whole plant" if subject == OWN_PLANT else subject.replace("/", " ", 1) for subject in scope)
    return ", ".join(words) or "all alerts"
