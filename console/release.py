"""Files shipped beside the packages: their place, their version, and the data folder.

In a checkout the files are beside the packages; a wheel (`bin/wheel`) has them in `console/shipped`, under the same
names: manage.py, templates, static files, documents, and the charts' script.
"""

import functools
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

from common import environment as variables

_PACKAGE = Path(__file__).resolve().parent
_SHIPPED = _PACKAGE / "shipped"
IS_CHECKOUT = not _SHIPPED.is_dir()
ROOT = _PACKAGE.parent if IS_CHECKOUT else _SHIPPED
COMMANDS = ".venv/bin/python manage.py" if IS_CHECKOUT else "weir"


@functools.cache
def read_version() -> str:
    """Return the version in pyproject.toml, which a release's tag repeats."""
    if not IS_CHECKOUT:
        return installed_version("weir")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def get_data_folder() -> Path:
    """Return WEIR_DATA, or else the default data folder."""
    return variables.DATA.get_path().resolve() if variables.DATA.is_set() else get_default_data_folder()


def get_default_data_folder() -> Path:
    """Return .weir in the checkout, or in the home folder of the user who installed a wheel."""
    return ((ROOT if IS_CHECKOUT else Path.home()) / variables.DATA.default).resolve()
