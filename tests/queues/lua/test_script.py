"""Every script says what it takes and answers, can be loaded by a server, and is used."""

import re
from pathlib import Path

import pytest

from queues.lua.script import FOLDER, load_script, load_scripts

ROOT = Path(__file__).resolve().parents[3]
NAMES = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in sorted(FOLDER.rglob("*.lua"))]
WHOLE = [name for name in NAMES if not name.startswith("parts/")]
HEAD = re.compile(r"(#!lua( flags=allow-oom)?\n)?(-- .+\n)+-- KEYS    .+\n-- ARGV    .+\n(-- .+\n)*-- Answer  .+\n")
CODE = {
    path: path.read_text("utf-8") for root in ("queues", "workers", "console") for path in (ROOT / root).rglob("*.py")
}
COPIED_ALONE = ROOT / "workers/plants/guard/weir_guard.py"  # runs where Weir is not installed


@pytest.mark.parametrize("name", WHOLE)
def test_a_script_begins_with_its_keys_arguments_and_answer(name):
    assert HEAD.match((FOLDER / f"{name}.lua").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WHOLE)
def test_a_server_takes_a_script(name, control):
    assert len(control.script_load(load_script(name))) == 40


@pytest.mark.parametrize("name", WHOLE)
def test_a_script_is_used(name):
    folder, _, own = name.partition("/")
    said = f'script("{name}")' if folder != "segment" else f'"{own}"'
    assert any(said in text for text in CODE.values())


def test_what_a_script_includes_stands_in_place_of_the_line():
    text = load_script("segment/requeue")
    assert "include" not in text
    assert text.index("local function fields") < text.index("local function shown") < text.index("local moved")


def test_only_what_receives_from_another_node_is_refused_by_a_full_one():
    refused = {name for name, text in load_scripts("segment").items() if not text.startswith("#!lua flags=allow-oom\n")}
    assert refused == {"receive", "receive_dead_letter"}


def test_no_module_holds_a_script_itself():
    holders = {path for path, text in CODE.items() if re.search(r"redis\.p?call\(", text)}
    assert holders <= {COPIED_ALONE}
