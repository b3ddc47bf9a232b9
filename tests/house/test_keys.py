"""The names of keys stand in `queues.keys` alone, and each says truly who writes it and who reads it."""

import ast
import copy
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from console.help import reference
from queues import keys
from queues.nodes.server_roles import ROLES
from tests.house import sources
from tests.house.test_structure import ROOT, named

CODE = ("common", "queues", "controllers", "workers", "console", "bench")
NAME = re.compile(r"\bweir:(?! )")  # "weir: …" begins a sentence, or a row of the schedule
# The number of an advisory lock of PostgreSQL; and all of them, in the words of an ACL.
NO_KEYS = {"workers/consumer/handlers/sql.py": "weir:handled", "queues/nodes/server_roles.py": "weir:*"}
SOURCES = [path for root in CODE for path in (ROOT / root).rglob("*.py") if path != ROOT / "queues/keys.py"]
KEYS = {name: value for name, value in vars(keys).items() if isinstance(value, keys.Key)}


def texts(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    """Literals of a module, but for its docstrings."""
    said = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def names_of(path: Path) -> list[str]:
    found = texts(sources.nodes(path))
    return [text for text in found if NAME.search(text) and NO_KEYS.get(named(path), "-") not in text]


def test_no_module_spells_a_key():
    assert {named(path): names for path in SOURCES if (names := names_of(path))} == {}


def test_every_key_is_used_and_its_parts_are_filled_in():
    used = set()
    for path in SOURCES:
        for name, filled in re.findall(r"\bkeys\.([A-Z_]+)\b(\.build\(|\.pattern)?", path.read_text("utf-8")):
            assert name in KEYS or name in {"OF_QUEUE", "KEYS"}, f"{named(path)}: keys.{name} is no key"
            assert filled or "{" not in KEYS.get(name, ""), f"{named(path)}: keys.{name} takes parts"
            used.add(name)
    used |= {name for name, key in KEYS.items() if key in keys.OF_QUEUE}
    assert KEYS.keys() - used == set()


def test_somebody_writes_each_key_and_somebody_reads_it():
    roles = {role.name for role in ROLES}
    for key in keys.KEYS:
        assert key.writers and set(key.writers) <= roles, key
        assert key.readers and set(key.readers) <= roles, key


def test_a_key_has_one_line():
    assert len(keys.KEYS) == len(set(keys.KEYS))


def granted(rights: str, reading: bool) -> list[str]:
    """The patterns of an ACL that may be read, or written."""
    found = re.findall(r"(?:^| )(%R~|~|&)(\S+)", rights)
    return [pattern for sign, pattern in found if reading or sign != "%R~"]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_may_touch_what_it_writes_and_reads(role):
    for key in keys.KEYS:
        rights = role.node if key.on_nodes else role.control
        name = key.pattern.replace("*", "x")
        if key.on_nodes and role.name == "telemetry":
            name = name.replace("weir:x:", "weir:process:")
        for reading, roles in ((False, key.writers), (True, key.readers)):
            may = any(fnmatchcase(name, pattern) for pattern in granted(rights, reading))
            assert may or role.name not in roles, f"{role.name} is refused {key}"


@pytest.mark.parametrize("role", ROLES[2:], ids=lambda role: role.name)
def test_a_role_but_web_and_workers_writes_nothing_else_at_the_control_server(role):
    own = {key.pattern for key in keys.KEYS if role.name in key.writers}
    assert set(granted(role.control, reading=False)) - own == set()


@pytest.mark.parametrize("role", ROLES[2:], ids=lambda role: role.name)
def test_only_web_and_workers_may_register_sessions_of_producers(role):
    assert keys.PRODUCER_SESSIONS.pattern not in granted(role.control, reading=False)


def test_a_name_takes_its_parts_in_order():
    assert keys.RUNNING.build("alert", "n1") == "weir:running:alert:n1"
    assert keys.PIPELINE_RESULT.pattern == "weir:pipeline:result:*:*:*"
    with pytest.raises(TypeError, match="takes 2 parts, not 1"):
        keys.RUNNING.build("alert")


def test_a_copy_of_a_name_is_a_plain_text():
    assert type(copy.deepcopy(keys.CELERY)) is str
    assert copy.deepcopy(keys.CELERY) == keys.CELERY


def test_the_reference_has_each_key_with_who_writes_and_reads_it():
    page = reference.build_keys_page()
    for key in keys.KEYS:
        row = f"| `{key}` | {key.kind} | {', '.join(key.writers)} | {', '.join(key.readers)} | "
        assert row in page, key
