"""Tests hold on a busy host: what may come late is waited for, and no limit ends before it can come."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import sources
from tests.waiting import MAX_SECONDS

ROOT = Path(__file__).resolve().parents[2]
MIN_SECONDS = 1.0  # of a lease, a time limit or a timeout
# These measure a plant that has the machine to itself.
MEASURED = (
    "tests/plant/",
    "tests/hosts/",
    "tests/production/",
    "tests/workers/control/kinds/test_parallelism_on_pipeline.py",
    "tests/workers/plants/test_flink_cluster.py",
    "tests/workers/plants/test_prometheus.py",
)
LIMITS = {
    "ex",
    "patience_seconds",
    "px",
    "reading_seconds",
    "socket_connect_timeout",
    "socket_timeout",
    "timeout",
    "timeout_seconds",
    "total_seconds",
    "handler_timeout_seconds",
}
LEASES = {"Lease", "LeaseGroup", "hold"}
# File → what its short limits end, or how often they ask: it never comes in time, however quick the host is.
ALLOWED = {
    "tests/console/embedded/test_supervision.py": "a frozen supervisor",
    "tests/queues/nodes/test_agent.py": "a frozen server",
    "tests/security/places/test_slow_readers.py": "a reader that reads nothing",
    "tests/workers/consumer/test_consumers.py": "the interval between two renewals",
    "tests/workers/consumer/test_handlers.py": "a database that the test itself keeps locked",
    "tests/workers/observability/test_unsent.py": "a collector that takes connections and never answers",
    "tests/workers/plants/foreign/celery_app/test_bounded_transports.py": "a broker's answer without end",
    "tests/workers/plants/foreign/declared/test_declared_plants.py": "a command and a query without end",
    "tests/workers/plants/foreign/declared/test_redis_sensors.py": "an answer that comes drop by drop",
    "tests/workers/snapshot/test_observer.py": "a message that is asked for again",
}


def number(node: ast.AST) -> float | None:
    """Return the literal number that the node is; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        try:
            return float(node.value)
        except ValueError:
            return None
    return None


def limits(call: ast.Call) -> Iterator[ast.AST]:
    """Yield the limits in seconds that a call sets."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    yield from (each.value for each in call.keywords if each.arg in LIMITS)
    if name in LEASES:
        yield from call.args
    if name in ("setattr", "setenv") and len(call.args) > 1:
        named = [each.value for each in call.args if isinstance(each, ast.Constant)]
        if any("SECONDS" in str(each) for each in named):
            yield call.args[-1]


def files_of_tests() -> Iterator[Path]:
    """Yield every file of the tests that runs beside others."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.relative_to(ROOT).as_posix().startswith(MEASURED):
            yield path


def calls(path: Path) -> Iterator[ast.Call]:
    yield from (node for node in sources.nodes(path) if isinstance(node, ast.Call))


def short_limits(path: Path) -> list[str]:
    """Return the calls of a file that set a limit below MIN_SECONDS."""
    return [
        f"{path.name}:{call.lineno}: {ast.unparse(call)[:80]}"
        for call in calls(path)
        for limit in limits(call)
        if 0 < (number(limit) or 0.0) < MIN_SECONDS
    ]


def test_no_lease_and_no_time_limit_of_a_test_is_shorter_than_a_pause_of_a_busy_host():
    short = {path.relative_to(ROOT).as_posix(): short_limits(path) for path in files_of_tests()}
    found = {name: lines for name, lines in short.items() if lines and name not in ALLOWED}
    assert found == {}, "Move a clock that the test gives, expire the key, or use tests/virtual_time.py."
    assert sorted(name for name in ALLOWED if not short.get(name)) == [], "These need no exception."


def test_no_test_gives_up_waiting_early():
    early = [
        f"{path.name}:{call.lineno}: {ast.unparse(call)[:80]}"
        for path in files_of_tests()
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "until" and len(call.args) > 1
        if 0 < (number(call.args[1]) or 0.0) < MAX_SECONDS
    ]
    assert early == [], "Leave the limit out: only a failure waits for MAX_SECONDS."


def elapsed_limits(path: Path) -> list[str]:
    """Return the comparisons of a file that hold the time elapsed on the wall's clock below a limit."""
    return [
        f"{path.name}:{node.lineno}: {ast.unparse(node)[:80]}"
        for node in sources.nodes(path)
        if isinstance(node, ast.Compare)
        for operand, operator in zip((node.left, *node.comparators), node.ops, strict=False)
        if isinstance(operator, ast.Lt | ast.LtE) and isinstance(operand, ast.BinOp)
        if ast.unparse(operand.left) in ("time.monotonic()", "time.perf_counter()", "time.time()")
    ]


def test_no_test_demands_that_the_host_is_quick():
    slow = "tests/workers/alerts/test_apprise.py"  # which of two limits ended it is what it proves
    found = {path.relative_to(ROOT).as_posix(): elapsed_limits(path) for path in files_of_tests()}
    assert {name: lines for name, lines in found.items() if lines and name != slow} == {}, (
        "Count what was done instead, or give the code a clock."
    )


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("assert time.monotonic() - began < 1.5", True),
        ("assert 10 <= time.monotonic() - began < 15", True),
        ("assert time.monotonic() - began >= 10", False),
        ("assert waited < 10", False),
    ],
)
def test_a_limit_of_the_time_elapsed_is_found(text, is_found, tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert bool(elapsed_limits(file)) is is_found


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("Lease(control, 'a', 0.15)", True),
        ("control.set('a', 'b', ex=30)", False),
        ("Client(url, timeout_seconds=0.5)", True),
        ("monkeypatch.setattr(worker, 'KEEP_ALIVE_SECONDS', 0.02)", True),
        ("monkeypatch.setenv('WEIR_PLANT_TIMEOUT_SECONDS', '0.5')", True),
        ("monkeypatch.setattr(rest, 'IDLE_SECONDS', 0.0)", False),
        ("WorkSample(1.0, 10.0, 10, 1, 0.1)", False),
    ],
)
def test_a_short_limit_is_found_and_a_measure_is_none(text, is_short, tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert bool(short_limits(file)) is is_short
