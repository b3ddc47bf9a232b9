"""Discovery of modules by folder, without a list to maintain."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def import_subpackages(package: ModuleType) -> Iterator[ModuleType]:
    for module in _iterate_modules(package):
        if module.ispkg:
            yield importlib.import_module(module.name)


def import_modules(package: ModuleType) -> Iterator[ModuleType]:
    for module in _iterate_modules(package):
        if not module.ispkg:
            yield importlib.import_module(module.name)


def _iterate_modules(package: ModuleType) -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
