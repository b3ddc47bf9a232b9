"""The tree reads as an index: small rooms, each with one sentence, and imports between them run one way."""

import ast
import collections
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import sources

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
# A table keeps its name; and handlers that others wrote name what they are given.
SHARED = {"Delivery"}


def rooms(*roots: str) -> list[Path]:
    """All packages below these, themselves included; migrations are Django's."""
    found = (path.parent for root in roots for path in (ROOT / root).rglob("__init__.py"))
    return sorted(path for path in found if path.name != "migrations")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules(room: Path) -> list[Path]:
    return [path for path in room.glob("*.py") if path.name != "__init__.py"]


def imported(path: Path) -> Iterator[str]:
    """What a module imports of ours: each as a path from the root, of the module or of a name in it."""
    for node in sources.nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}".replace(".", "/") for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name.replace(".", "/") for each in node.names)


def rooms_imported(room: Path, siblings: list[Path]) -> set[str]:
    """Which of its siblings a room imports, from any depth into any depth."""
    wanted = {f"{named(each)}/": each.name for each in siblings if each != room}
    names = (f"{name}/" for path in room.rglob("*.py") for name in imported(path))
    return {sibling for name in names for start, sibling in wanted.items() if name.startswith(start)}


def first_line(room: Path) -> str:
    return ast.get_docstring(sources.tree(room / "__init__.py")) or ""


def test_each_package_says_in_one_line_what_it_is():
    silent = [named(room) for room in rooms(*PACKAGES, "tests") if not re.fullmatch(r".+\.", first_line(room))]
    assert silent == [], "their __init__.py takes a line that says the package's idea"


def test_the_map_shows_each_package_with_its_line():
    tree = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## Source tree")[1].split("\n## ")[0]
    missing = []
    for room in rooms(*PACKAGES):
        package, _, below = named(room).partition("/")
        rows = tree.split(f"**`{package}`**")[1].split("\n**`")[0]
        if below.count("/") < 2 and below and f"| `{below}/` | {first_line(room).removesuffix('.')}" not in rows:
            missing.append(named(room))
    assert missing == []


def test_a_class_has_a_name_of_its_own():
    places = collections.defaultdict(list)
    for path in (path for room in rooms(*PACKAGES) for path in modules(room)):
        if path.parent.name == "commands":
            continue
        for node in sources.tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(named(path))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED}
    assert twice == {}


def test_imports_between_the_packages_of_a_package_run_one_way():
    for room in rooms(*PACKAGES, "bench"):
        inner = [path for path in rooms(named(room)) if path.parent == room]
        graph = {each.name: rooms_imported(each, inner) for each in inner}
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            pytest.fail(f"in {named(room)} these packages import each other: {' → '.join(reversed(error.args[1]))}")


def test_every_room_of_the_console_s_pages_has_its_templates():
    pages = {path.name for path in rooms("console/pages") if path.parent.name == "pages"}
    templates = {path.parent.name for path in (ROOT / "templates").glob("*/*.html")}
    assert templates - pages == set()
    assert pages - templates == {"health"}, "a page without a template answers JSON or text"
