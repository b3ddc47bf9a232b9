"""The sources as the house's tests read them: each is parsed once for all of them."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """The module of that file. Nobody changes it: it is every caller's."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of that file, as `ast.walk` gives them."""
    found = tuple(ast.walk(tree(path)))
    gc.freeze()  # they stay for the whole run: the collector needn't go through them again and again
    return found
