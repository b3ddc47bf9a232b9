"""What is found because it is there: the modules of a folder, with no list to keep in step."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def rooms_of(package: ModuleType) -> Iterator[ModuleType]:
    """The packages right in a package, by name, imported."""
    for found in _in(package):
        if found.ispkg:
            yield importlib.import_module(found.name)


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """The modules right in a package, by name, imported."""
    for found in _in(package):
        if not found.ispkg:
            yield importlib.import_module(found.name)


def _in(package: ModuleType) -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
