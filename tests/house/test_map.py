"""The map (ARCHITECTURE.md) and the pages on how things work name what is there, and all of it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
FOLDERS = (*PACKAGES, "tests", "templates", "static", "docs", "bench", "bin", ".ci")
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*\Z")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+\Z")
WIDEST = 120
EXPLAINING = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "understand").rglob("*.md"))]


def folders_of(root: str) -> list[Path]:
    """The folders below a root that hold a source file; a removed folder's byte code may remain on a disk."""
    files = (path for path in (ROOT / root).rglob("*") if path.is_file())
    parents = {file.parent for file in files if not {"__pycache__", "migrations"} & set(file.parts)}
    return sorted(parents - {ROOT / root})


def part_of(package: str) -> str:
    return MAP.split(f"**`{package}`**")[1].split("\n**`")[0].split("\n## ")[0]


def test_every_folder_of_a_package_is_named_in_its_part():
    for package in PACKAGES:
        part = part_of(package)
        for folder in folders_of(package):
            below = folder.relative_to(ROOT / package).as_posix()
            assert f"`{below}/`" in part or f"`{folder.name}/`" in part, folder


def test_every_folder_beside_the_packages_is_named():
    for root in FOLDERS:
        assert f"`{root}/`" in MAP or f"**`{root}`**" in MAP, root
    for folder in (*(ROOT / "docs").iterdir(), *(ROOT / "static").iterdir()):
        if folder.is_dir():
            assert f"`{folder.relative_to(ROOT).as_posix()}/`" in MAP, folder


def test_every_package_that_the_map_names_is_there():
    for package in PACKAGES:
        for room in re.findall(r"^\| `([^`]+)/` \|", part_of(package), re.MULTILINE):
            assert (ROOT / package / room).is_dir(), room


def test_every_path_and_every_module_that_is_named_is_there():
    missing = [
        (page.relative_to(ROOT).as_posix(), name)
        for page in EXPLAINING
        for name in NAMED.findall(page.read_text(encoding="utf-8"))
        if (PATH.match(name) and not (ROOT / name).exists())
        or (DOTTED.match(name) and ".tasks." not in name and not is_there(name))
    ]
    assert missing == []


def is_there(dotted: str) -> bool:
    """A package, a module, or what a module defines."""
    found, rest = ROOT, dotted.split(".")
    while rest and (found / rest[0]).is_dir():
        found, rest = found / rest[0], rest[1:]
    if not rest:
        return (found / "__init__.py").exists()
    module = found / f"{rest[0]}.py"
    return module.exists() and all(name in module.read_text(encoding="utf-8") for name in rest[1:])


def test_no_line_of_markdown_is_wider_than_the_page():
    wide = [
        (page.relative_to(ROOT).as_posix(), number)
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDEST
    ]
    assert wide == []
