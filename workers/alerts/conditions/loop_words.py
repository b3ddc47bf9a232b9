"""The names of loops in sentences: ladder/telemetry is the remedy ladder of telemetry."""

from workers.control.kinds.registry import find_display


def describe_loop(name: str) -> str:
    """Return law/target as `law of target`: a container as its queue on its node, a plant by its name."""
    law, *target = name.replace("plant:", "plant ").split("/")
    display = find_display(law)
    what = display.title or law.replace("_", " ")
    return f"{what} of {display.joint.join(target)}" if target else what
