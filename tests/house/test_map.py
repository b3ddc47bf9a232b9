"""The map (ARCHITECTURE.md) and the pages on how things work name what is there, and all of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
FOLDERS = (*PACKAGES, "tests", "templates", "static", "docs", "bench", "bin", ".ci")
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*\Z")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+\Z")
MAX_LINES = 48  # of a package's part: one screen
WIDEST = 120
EXPLAINING = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "understand").rglob("*.md"))]


def folders_of(root: str) -> list[Path]:
    """The folders below a root that hold something, but for what Python and Django keep."""
    kept = ("__pycache__", "migrations")
    return sorted(
        path for path in (ROOT / root).rglob("*") if path.is_dir() and path.name not in kept and any(path.iterdir())
    )


def part_of(package: str) -> str:
    return MAP.split(f"**`{package}`**")[1].split("\n**`")[0].split("\n## ")[0]


def markdown() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_is_named_in_its_part(package):
    part = part_of(package)
    for folder in folders_of(package):
        below = folder.relative_to(ROOT / package).as_posix()
        assert f"`{below}/`" in part or f"`{folder.name}/`" in part, folder


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_s_part_is_one_screen(package):
    assert len(part_of(package).splitlines()) <= MAX_LINES


def test_every_folder_beside_the_packages_is_named():
    for root in FOLDERS:
        assert f"`{root}/`" in MAP or f"**`{root}`**" in MAP, root
    for folder in (*(ROOT / "docs").iterdir(), *(ROOT / "static").iterdir()):
        if folder.is_dir():
            assert f"`{folder.relative_to(ROOT).as_posix()}/`" in MAP, folder


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_that_the_map_names_is_there(package):
    for room in re.findall(r"^\| `([^`]+)/` \|", part_of(package), re.MULTILINE):
        assert (ROOT / package / room).is_dir(), room


@pytest.mark.parametrize("page", EXPLAINING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_and_every_module_that_is_named_is_there(page):
    for name in NAMED.findall(page.read_text(encoding="utf-8")):
        if PATH.match(name):
            assert (ROOT / name).exists(), name
        elif DOTTED.match(name) and not any(name.startswith(f"{each}.tasks.") for each in PACKAGES):
            assert is_there(name), name


def is_there(dotted: str) -> bool:
    """A package, a module, or what a module defines."""
    found, rest = ROOT, dotted.split(".")
    while rest and (found / rest[0]).is_dir():
        found, rest = found / rest[0], rest[1:]
    if not rest:
        return (found / "__init__.py").exists()
    module = found / f"{rest[0]}.py"
    return module.exists() and all(name in module.read_text(encoding="utf-8") for name in rest[1:])


@pytest.mark.parametrize("page", markdown(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_line_of_markdown_is_wider_than_the_page(page):
    assert list(too_wide(page)) == []


def too_wide(page: Path) -> Iterator[int]:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > WIDEST:
            yield number
