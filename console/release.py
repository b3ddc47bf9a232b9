"""What is shipped beside the packages: where it lies, which version it is of, and where it keeps its data.

In a checkout the files lie beside the packages; a wheel (`bin/wheel`) has them in `console/shipped`, under
the same names: manage.py, templates, static files, documents, the charts' script.
"""

import functools
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

from queues import environment as variables

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = _PACKAGE / "shipped"
IS_CHECKOUT = not _SHIPPED.is_dir()
ROOT = _PACKAGE.parent if IS_CHECKOUT else _SHIPPED


@functools.cache
def version() -> str:
    """That of pyproject.toml, which a release's tag repeats."""
    if not IS_CHECKOUT:
        return installed_version("weir")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def data_folder() -> Path:
    """WEIR_DATA; else .weir in the checkout, or in the home folder of whoever installed a wheel."""
    if variables.DATA.is_set():
        return variables.DATA.path().resolve()
    return ((ROOT if IS_CHECKOUT else Path.home()) / variables.DATA.default).resolve()
