"""`docs/extend/a-control-law.md` is right: its files, written as it says, are a law and a loop that ticks."""

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
from django.template.loader import select_template

import controllers.flow
import workers.control.kinds
from controllers import catalog, request
from tests.controllers import test_laws
from tests.house import test_loop_kinds
from workers.control.kinds import registry

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "a-control-law.md"
BLOCK = re.compile(r'^```\{\.python title="(\S+)"\}\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LAW, KIND, TEST = (
    "controllers/flow/lateness.py",
    "workers/control/kinds/lateness.py",
    "tests/workers/control/test_lateness.py",
)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The page's files in a folder of their own, which is looked through as if it were part of the tree."""
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = set(sys.modules)
    for package, file in ((controllers.flow, LAW), (workers.control.kinds, KIND)):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str((tmp_path / file).parent)])
        monkeypatch.setattr(package, "lateness", None, raising=False)  # and is gone afterwards
    importlib.invalidate_caches()
    monkeypatch.setattr(catalog, "LAWS", catalog.find_laws())
    monkeypatch.setattr(registry, "KINDS", registry.find_kinds())
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_it_takes_three_files():
    assert [name for name, _ in BLOCK.findall(PAGE.read_text(encoding="utf-8"))] == [LAW, KIND, TEST]


def test_the_law_is_known_wherever_laws_are(written):
    law = catalog.get_law("lateness")
    test_laws.test_every_value_a_law_takes_is_documented_with_range_and_unit(law)
    test_laws.test_the_defaults_of_a_law_and_of_its_guard_are_good_values(law)
    observation = {"late_per_second": 20.0, "in_per_second": 1_000.0, "lateness_seconds": 5.0}
    [decision] = request.answer("lateness", {"observations": [observation]})["decisions"]
    assert decision["action"] == {"seconds": 6.0}


def test_its_loops_have_a_clock_and_are_shown(written):
    assert registry.get_kind("lateness").interval_seconds == 10
    display = registry.find_display("lateness")
    assert display.past({"seconds": 6.0}) == "set seconds 6"
    words = select_template(["loops/laws/lateness.html", "loops/laws/any.html"])
    assert "late events" in words.render({"loop": {"interval_seconds": 10.0, "summary": "Waits for late events."}})


@pytest.mark.parametrize("check", sorted(test_loop_kinds.checks_of_a_kind()))
def test_its_kind_is_as_whole_as_those_that_ship(check, written):
    test_loop_kinds.checks_of_a_kind()[check](registry.KINDS["lateness"])


def examples_in(path):
    """Name → test, of the page's third file."""
    spec = importlib.util.spec_from_file_location("test_lateness", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: found for name, found in vars(module).items() if name.startswith("test_")}


NAMES = re.findall(r"^def (test_\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.django_db
@pytest.mark.parametrize("name", NAMES)
def test_its_test_passes(name, written, request):
    test = examples_in(written / TEST)[name]
    test(**{fixture: request.getfixturevalue(fixture) for fixture in inspect.signature(test).parameters})
