"""What was found at the address of a plant, in plain sentences: for the page, the API and `attach`."""

from workers.documents.plants import FoundPart, FoundPlant

MOST_NAMES = 12


def sentences(plant: FoundPlant) -> list[str]:
    """What stands there, what could be steered, what would only be seen, what it would need."""
    settable = [part for part in plant.parts if part.fixed is None]
    fixed = [part for part in plant.parts if part.fixed is not None]
    steer = f"Weir can set: {_listed([_range(part) for part in settable])}." if settable else ""
    nothing = "" if settable else "Weir can set nothing there as it is."
    seen = f"Weir would only observe: {_listed([f'{part.name} ({part.fixed})' for part in fixed])}."
    every = [
        _ended(plant.what),
        *map(_ended, plant.said),
        *(f"For {name} there are: {_listed(values)}." for name, values in plant.choices.items() if values),
        steer,
        nothing,
        seen if fixed else "",
        *(f"It would need: {_ended(need)}" for need in plant.needs),
    ]
    return [each for each in every if each]


def _range(part: FoundPart) -> str:
    now = "unknown tasks" if part.tasks is None else f"{part.tasks} now"
    if part.minimum is None or part.maximum is None:
        return f"{part.name} ({now})"
    return f"{part.name} ({now}, {part.minimum:,} to {part.maximum:,})"


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _ended(sentence: str) -> str:
    return sentence if sentence[-1:] in ".!?" else f"{sentence}."
