"""The result of inspecting a plant's address, in sentences: for the page, the API, and `attach`."""

from controllers.framework.reason import format_count
from workers.documents.plants import FoundPart, FoundPlant

MAX_NAMES = 12


def describe_discovered_plant(plant: FoundPlant) -> list[str]:
    """Return the description of a discovered plant.

    It says what was found, what could be controlled, what would only be observed, and what it would need.
    """
    settable = [part for part in plant.parts if part.fixed is None]
    fixed = [part for part in plant.parts if part.fixed is not None]
    steer = f"Weir can set: {_format_names([_range(part) for part in settable])}." if settable else ""
    nothing = "" if settable else "Weir can't currently set any values of this plant."
    seen = f"Weir would only observe: {_format_names([f'{part.name} ({part.fixed})' for part in fixed])}."
    every = [
        _end_sentence(plant.what),
        *map(_end_sentence, plant.said),
        *(f"Choices for {name}: {_format_names(values)}." for name, values in plant.choices.items() if values),
        steer,
        nothing,
        seen if fixed else "",
        *(f"Required: {_end_sentence(need)}" for need in plant.needs),
    ]
    return [sentence for sentence in every if sentence]


def _range(part: FoundPart) -> str:
    now = "tasks unknown" if part.tasks is None else f"now {format_count(part.tasks, 'task')}"
    if part.minimum is None or part.maximum is None:
        return f"{part.name} ({now})"
    return f"{part.name} ({now}, {part.minimum:,} to {part.maximum:,})"


def _format_names(names: list[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _end_sentence(sentence: str) -> str:
    return sentence if sentence[-1:] in ".!?" else f"{sentence}."
