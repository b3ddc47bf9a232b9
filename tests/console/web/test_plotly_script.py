"""The charts' library comes from npm's basic bundle, else from the Python package: under one name."""

from pathlib import Path

import plotly
import pytest
from django.contrib.staticfiles.finders import find, get_finders

from console.web.plotly_script import BASIC, StaticPlotly

STATIC = "plotly/plotly.min.js"


@pytest.fixture
def base(settings, tmp_path) -> Path:
    settings.BASE_DIR = tmp_path
    return tmp_path


def installed(base: Path) -> Path:
    script = base / BASIC
    script.parent.mkdir(parents=True)
    script.write_text("// basic")
    return script


def collected() -> list[str]:
    found = []
    for finder in get_finders():
        for name, storage in finder.list([]) if isinstance(finder, StaticPlotly) else []:
            with storage.open(name) as script:
                found.append(f"{storage.prefix}/{name}: {script.read(8).decode()}")
    return found


def test_pages_load_the_basic_bundle_where_npm_has_installed_it(base):
    script = installed(base)
    assert find(STATIC) == str(script)
    assert find(STATIC, find_all=True) == [str(script)]
    assert collected() == [f"{STATIC}: // basic"]


def test_without_npm_pages_load_the_whole_library_of_the_package(base):
    assert Path(find(STATIC)).is_relative_to(Path(plotly.__file__).parent)
    assert collected() == [f"{STATIC}: /**\n* pl"]


def test_no_other_file_of_the_package_is_served(base):
    assert find("plotly/datasets/gapminder.csv.gz") is None
    assert find("plotly/plotly-basic.min.js") is None
