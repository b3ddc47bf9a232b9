"""A fact has one home: what one module defines no other spells again."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from controllers.catalog import LAWS
from queues.nodes import node_state
from tests.house import sources
from workers.control.kinds.registry import KINDS
from workers.documents.snapshot import SILENT_AFTER_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
# A dictionary for compression has whole documents as text.
SAMPLES = "workers/coordination/packed_json.py"


@cache
def nodes() -> list[tuple[str, ast.Constant | ast.Call]]:
    """(file, node) of each constant and each call in the code."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in paths
        if "migrations" not in path.parts
        for node in sources.nodes(path)
        if isinstance(node, ast.Constant | ast.Call)
    ]


def texts() -> Iterator[tuple[str, int, str]]:
    """(file, line, text) of each text in the code."""
    for name, node in nodes():
        if name != SAMPLES and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield name, node.lineno, node.value


def test_states_of_nodes_are_spelled_in_one_module():
    home = "queues/nodes/node_state.py"
    spelled = [(name, line) for name, line, text in texts() if text in node_state.STATES and name != home]
    assert spelled == [], "take the state from queues.nodes.node_state"


# Words that are a law's name, too, and mean something else: a view, an alert's condition and rule, a bench.
HOMONYMS = {
    ("console/live/view.py", "flow"),
    ("console/pages/plant/overview.py", "flow"),
    ("console/management/commands/bench.py", "fairness"),
    ("console/management/commands/bench.py", "rebalancing"),
    ("console/management/commands/bench.py", "shedding"),
    ("workers/alerts/conditions/plant_conditions.py", "shedding"),
    ("workers/snapshot/health.py", "shedding"),
    ("workers/snapshot/evaluate.py", "shedding"),
    ("workers/alerts/lifecycle/inhibition.py", "shedding"),
}


def test_what_is_known_of_a_law_is_said_by_the_law_or_its_kind():
    named = [
        (name, line)
        for name, line, text in texts()
        if name.startswith(("workers/", "console/"))
        and not name.startswith("workers/control/kinds/")
        and (text in LAWS or (text.partition("/")[0] in LAWS and "/" in text))
        and (name, text) not in HOMONYMS
    ]
    assert named == [], "make it an attribute of the law, or of its kind"


def test_a_kind_of_loop_names_no_law():
    kinds = [(name, line, text) for name, line, text in texts() if name.startswith("workers/control/kinds/")]
    scenarios = {kind.tuning.scenario for kind in KINDS.values()}
    assert [each for each in kinds if each[2].partition("/")[0] in set(LAWS) - scenarios] == []


# Who tells truth values from numbers beside the checks: readers of each event, and what only computes.
TELL_TRUTH_VALUES = {
    "common/checks.py",
    "queues/events/block.py",
    "queues/events/columns.py",
    "common/parsing.py",
    "workers/pipeline/events/layout.py",
    "workers/pipeline/patterns/predicate.py",
    "workers/control/parts/kind.py",
    "console/api/routes/lab.py",
}


def is_truth_test(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="bool")]):
            return True
    return False


def test_values_from_outside_are_checked_in_one_module():
    found = {name for name, node in nodes() if is_truth_test(node)}
    assert found - TELL_TRUTH_VALUES == set(), "check the value by common.checks"


def test_pages_take_the_plant_for_silent_after_as_long_as_sockets_and_terminals():
    script = (ROOT / "static" / "js" / "frame" / "live.js").read_text(encoding="utf-8")
    assert f"const SILENT_AFTER_SECONDS = {SILENT_AFTER_SECONDS:g};" in script


def test_types_are_decoded_by_msgspec_in_one_module():
    """Its lock keeps two threads from building the description of a type at once, which crashes the process."""
    used = [
        (name, node.lineno)
        for name, node in nodes()
        if name != "common/stored_document.py"
        and isinstance(node, ast.Call)
        and re.fullmatch(r"msgspec\.(convert|json\.(decode|Decoder))", ast.unparse(node.func))
    ]
    assert used == [], "use common.stored_document.get_decoder"
