"""Names say what a thing is: functions begin with a verb, classes are nouns, and limits begin with MIN or MAX.

Add a verb to `verbs.txt`. Properties are nouns; so are functions that a framework names or finds by name: views,
template filters and tags, endpoints, and methods of protocols.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import sources

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split())
# Conversions and event handlers, as in the standard library.
CONVERSIONS = ("to", "from", "as", "on")
NAMED_BY_FRAMEWORKS = re.compile(
    r"^(main|ready|urls|sendall|sendmail|recv\w*|data_received|connection_made|\w+[a-z][A-Z]\w*)$"
)
# Short helpers without a verb that were here before the rule. Lower this number; never raise it.
MAX_WITHOUT_VERB = 240
PARTICIPLE = re.compile(
    r"(ed|ing|known|given|found|kept|told|made|taken|seen|done|sent|shown|written|left|built|chosen)$"
)
VERB_IN_ED = re.compile(r"(seed|feed|need|speed|exceed|embed|proceed|succeed|shed|bring|ping)$")
PREPOSITION = re.compile(
    r"(of|on|in|at|by|for|with|within|without|into|over|under|above|below|between|after|before|since|until|per|than|"
    r"via|about|across|along|behind|beyond|near|off|out|through|toward|what|which|who|whose|how|why|whether)"
)
# A class of one word that is no noun.
NOT_NOUNS = re.compile(
    r"(Absent|Acted|Alive|At|Claimed|Counted|Declared|Departing|Emptying|Ended|Expected|Failing|Fired|For|Forged|Given|"
    r"Guarded|Heard|Held|Hidden|If|Known|Learned|Listed|Longer|Managed|Measured|Mended|More|Observed|Passed|Previous|"
    r"Published|Recent|Removed|Ruled|Said|Scanned|Seen|Several|Stored|Taken|Transferred|Tried|Unheard|Until|Waiting|"
    r"Watched|Worked)"
)


def iterate_definitions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                for node in sources.nodes(path):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        yield path.relative_to(ROOT), node


def list_functions() -> list[tuple[str, str]]:
    """Return (place, name) of each function that a person names: no property, view, filter, or endpoint."""
    return [
        (f"{path}:{node.lineno}", node.name)
        for path, node in iterate_definitions()
        if not isinstance(node, ast.ClassDef)
        and not node.name.startswith("__")
        and not NAMED_BY_FRAMEWORKS.match(node.name)
        and not any(is_found_by_name(decorator) for decorator in node.decorator_list)
        and not (path.parts[:2] == ("console", "pages") and node.args.args and node.args.args[0].arg == "request")
    ]


def is_found_by_name(decorator: ast.expr) -> bool:
    return bool(
        re.search(r"property|setter|register|router|\.(get|post|put|delete)\b|tool|_page\b", ast.unparse(decorator))
    )


def first_word(name: str) -> str:
    return name.strip("_").partition("_")[0]


@pytest.fixture(scope="module")
def functions() -> list[tuple[str, str]]:
    return list_functions()


def test_functions_begin_with_a_verb(functions):
    others = [(place, name) for place, name in functions if first_word(name) not in {*VERBS, *CONVERSIONS}]
    assert len(others) <= MAX_WITHOUT_VERB, others


def test_few_functions_begin_with_a_participle_or_a_preposition(functions):
    others = [
        (place, name)
        for place, name in functions
        if PREPOSITION.fullmatch(word := first_word(name))
        or (len(word) > 4 and PARTICIPLE.search(word) and not VERB_IN_ED.fullmatch(word))
    ]
    assert len(others) < 0.03 * len(functions), others


def test_classes_are_nouns():
    others = [
        (str(path), node.name)
        for path, node in iterate_definitions()
        if isinstance(node, ast.ClassDef) and NOT_NOUNS.fullmatch(node.name.strip("_"))
    ]
    assert not others


def test_limits_begin_with_min_or_max():
    others = [
        (str(path), name)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in re.findall(
            r"^\s*((?:\w+_)?(?:LEAST|MOST|LONGEST|SHORTEST)(?:_\w+)?) ?[:=,]", path.read_text(encoding="utf-8"), re.M
        )
    ]
    assert not others
