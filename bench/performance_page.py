"""The page of docs that says how fast Weir is: made of one run of every bench, `bin/performance FILE`.

FILE is what `manage.py bench --all --json` has put out, or several of them: of a bench that stands in two, the last
counts. A figure that none of them has gets no row. Only the labels of the rows are written by hand.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BAR, FULL = "█", 8  # a full bar: the target is just reached
MAX_BARS = 10
HEAD = """# Performance

`manage.py bench NAME --json` measured every value on {machine}.
`bin/performance` generates this page. Values of other systems come from the same run unless they are marked
as *published*. The bar compares a value with its target. Eight blocks mean that the value meets the target,
and more blocks mean a better value, even if lower values are better. Rows without a bar have no target.
"""


@dataclass(frozen=True)
class Row:
    """A line: a figure, its target, and a peer of the same bench.

    less: whether a smaller figure is better. times: the target as a multiple of the peer's figure.
    """

    what: str
    bench: str
    figure: str
    unit: str
    target: float | None = None
    less: bool = False
    peer: tuple[str, str] | None = None  # its name, and its key
    times: float | None = None


SPARK = ("Spark alone", "spark_parquet_same_sql_events_per_second")
OWN_RULES = "rules_events_per_second"
RULE_PEERS = tuple(
    (name, f"rules_{name.lower().replace(' ', '_')}_events_per_second", 0.9 if name == "Spark alone" else None)
    for name in ("Spark alone", "DuckDB", "Polars", "Sail", "Pathway")
)
SECTIONS: Mapping[str, tuple[Row, ...]] = {
    "The pipeline": (
        Row("rules alone", "pipeline", "stateless_events_per_second", "events/s", 1.2e6, peer=SPARK, times=0.9),
        Row("rules and patterns", "pipeline", "both_tiers_events_per_second", "events/s", 450e3),
        Row("patterns, 200 keys", "pipeline", "matcher_200_keys_events_per_second", "events/s"),
        Row("patterns, 10,000 keys", "pipeline", "matcher_10000_keys_events_per_second", "events/s"),
        Row("event to complex event, lateness 0.2 s, p50", "pipeline", "event_to_alert_p50_seconds", "s"),
        Row("event to complex event, lateness 0.2 s, p95", "pipeline", "event_to_alert_p95_seconds", "s", 0.5, True),
        Row("event to complex event, lateness 0.05 s, p50", "pipeline", "soon_event_to_alert_p50_seconds", "s"),
        Row(
            "event to complex event, lateness 0.05 s, p95",
            "pipeline",
            "soon_event_to_alert_p95_seconds",
            "s",
            0.12,
            True,
        ),
        Row("the same with ordered producers, p95", "pipeline", "ordered_event_to_alert_p95_seconds", "s", 0.12, True),
        Row("the same during a burst, p95", "pipeline", "burst_event_to_alert_p95_seconds", "s", 0.5, True),
        Row("throughput of two executors, relative to one", "executors", "two_to_one", "", 1.7),
        Row("pause after a lost executor", "executors", "lost_executor_seconds", "s", 5.0, True),
        Row("pause after a network failure", "executors", "lost_network_seconds", "s", 5.0, True),
        Row(
            "matcher, one thread, 200 keys",
            "matcher",
            "events_per_second_200_keys",
            "events/s",
            peer=("plain Python", "plain_python_events_per_second"),
        ),
        Row(
            "matcher, one thread, 10,000 keys",
            "matcher",
            "events_per_second_10000_keys",
            "events/s",
            peer=("Bytewax, published", "bytewax_in_memory_most_events_per_second"),
        ),
    ),
    "Comparison with other systems": (
        *(
            Row("rules alone", "peers", OWN_RULES, "events/s", 1.2e6, peer=(name, key), times=times)
            for name, key, times in RULE_PEERS
        ),
        *(
            Row(
                f"patterns, {keys:,} keys",
                "peers",
                f"sequence_{keys}_keys_events_per_second",
                "events/s",
                peer=("Bytewax", f"sequence_bytewax_{keys}_keys_events_per_second"),
                times=times,
            )
            for keys, times in ((200, 0.7), (10_000, 3.0))
        ),
        *(
            Row(
                f"rules and patterns, {keys:,} keys",
                "peers",
                f"both_tiers_{keys}_keys_events_per_second",
                "events/s",
                peer=("Flink", f"sequence_flink_{keys}_keys_events_per_second"),
                times=11.0,
            )
            for keys in (200, 10_000)
        ),
        *(
            Row(
                f"compared pairs, {keys:,} keys",
                "peers",
                f"between_{keys}_keys_events_per_second",
                "events/s",
                500e3 if keys == 10_000 else None,
                peer=("Flink", f"between_flink_{keys}_keys_events_per_second"),
                times=20.0,
            )
            for keys in (200, 10_000)
        ),
    ),
    "Many open matches": (
        Row("time per event, 1,000,000 to 1,000 open matches", "windows", "growth_queue", "", 2.0, True),
        Row("the same with a condition between events", "windows", "growth_between", "", 2.0, True),
        Row("memory per open match with a condition", "windows", "bytes_between_1000000", "B", 120.0, True),
    ),
    "Queues and workers": (
        Row("publish columns", "segment", "publish_columnar_events_per_second", "events/s"),
        Row("publish JSON lines", "segment", "publish_json_lines_events_per_second", "events/s", 1.2e6),
        Row(
            "publish to one node",
            "segment",
            "publish_one_node_bytes_per_second",
            "B/s",
            peer=("XADD alone", "xadd_ready_made_bytes_per_second"),
        ),
        Row(
            "two workers",
            "segment",
            "worker_events_per_second",
            "events/s",
            2e6,
            peer=("XREADGROUP alone", "xreadgroup_raw_events_per_second"),
        ),
        Row("HTTP, JSON lines, per core", "ingest", "json_per_processor_second", "events/s", 300e3),
        Row("HTTP, Arrow, per core", "ingest", "arrow_per_processor_second", "events/s", 300e3),
        Row("splitter, per block", "splitter", "us_per_block", "µs", 2.0, True),
        Row("burst: share of the pool used", "burst", "pool_share", "", 0.9),
        Row("burst: lag of other queues", "burst", "others_lag_seconds", "s", 5.0, True),
        Row("fair queue: p95 latency with a flood to that without", "fairness", "flood_p95_ratio", "", 1.2, True),
        Row("fair queue: the same until handling starts", "fairness", "virtual_flood_waiting_p95_ratio", "", 1.2, True),
        Row("fair queue: gain of a flood by splitting", "fairness", "virtual_split_gain", "", 2.0, True),
        Row("fair queue: throughput relative to other queues", "fairness", "throughput_ratio", "", 0.95),
        Row("goodput after a destination was down, share of arrivals", "brownout", "goodput_share", "", 0.9),
    ),
    "Attached systems": (
        *(
            Row(
                f"10 million tasks: find an {kind}, {title}, p95",
                "task_history",
                f"{vendor}_p95_{kind}_in_database",
                "s",
                seconds,
                True,
            )
            for vendor, title, seconds in (("postgresql", "PostgreSQL", 1.0), ("sqlite", "SQLite", 2.0))
            for kind in ("id", "argument", "error")
        ),
        Row("disk space of a stored task", "task_history", "sqlite_bytes_in_database", "B", 300.0, True),
        *(
            Row(f"retries of 100,000 tasks, {title}: {words}", "retry", f"{kind}_{figure}", "", 0.0, True)
            for kind, title in (("valkey", "Valkey"), ("rabbitmq", "RabbitMQ"))
            for figure, words in (("sent_twice", "sent twice"), ("forgotten", "not sent"))
        ),
        Row("highest pace, with a destination that slows down at 200/s", "retry", "highest_rate", "/s", 200.0, True),
        Row("time until everything is undone after Weir was killed", "vanish", "restored_seconds", "s", 60.0, True),
    ),
    "Control": (
        Row("tick of 100 loops", "tick", "loops_100_acting_seconds", "s", 0.05, True),
        Row("tick of 5,000 loops", "tick", "loops_5000_acting_seconds", "s", 1.2, True),
        Row("tick of 5,000 loops, PostgreSQL", "tick", "loops_5000_postgresql_acting_seconds", "s", 0.8, True),
        Row("rebalancing, 1,000 nodes", "rebalancing", "large_below-busy_seconds", "s", 1.0, True),
        Row("tasks for 300 operators", "parallelism", "one_path_seconds", "s", 0.05, True),
        Row("shedding, 10,000 types, 100 patterns", "shedding", "10000x100x100", "s", 0.05, True),
        Row("regulator of 64 replicas", "lqr", "n64_seconds", "s", 0.02, True),
        Row("publish a large plant's snapshot", "snapshot", "publish_seconds", "s"),
    ),
    "The console": (
        Row("update of 1,000 sockets, p95", "fanout", "p95_seconds", "s", 0.25, True),
        Row("change to browser, p95", "page", "change_to_browser_p95_seconds", "s", 1.5, True),
        Row("pages of an overloaded host, p95", "overload", "person_p95_seconds", "s", 1.0, True),
        Row("ledger of a million entries, slowest filter", "ledger", "slowest_filter_seconds", "s", 0.3, True),
        Row("read a past instant, p95", "timeline", "read_p95_seconds", "s", 0.2, True),
    ),
    "A plant": (
        Row("page after ./run", "first_minutes", "calm_page_seconds", "s", 4.0, True),
        Row("pipeline live after ./run", "first_minutes", "calm_live_seconds", "s", 12.0, True),
        Row("idle: ledger of 8 loops, per day", "idle", "ledger_bytes_a_day", "B", 15e6, True),
        Row("idle: CPU", "idle", "cores", "cores", 0.09, True),
        Row("idle: memory", "idle", "bytes", "B", 1.3e9, True),
        Row("idle: processes", "idle", "processes", "", 17, True),
        Row("soak at 20,000 events/s: time to handle, p50", "soak", "p50_seconds", "s"),
        Row("soak at 20,000 events/s: time to handle, p99", "soak", "p99_seconds", "s", 2.5, True),
        Row("soak at 20,000 events/s: pages, p95", "soak", "page_p95_seconds", "s", 1.0, True),
        Row(
            "soak at 20,000 events/s: fastest memory growth, per hour",
            "soak",
            "worst_slope_percent_an_hour",
            "%",
            1.0,
            True,
        ),
        Row("soak at 20,000 events/s: disk space per event", "soak", "handled_bytes_an_event", "B", 150, True),
    ),
}


def page(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return the page. Raises ValueError if the documents contain no bench of any row."""
    benches: dict[str, Mapping[str, Any]] = {}
    for document in documents:
        for bench in document.get("benches", [document]):
            benches[bench["name"]] = bench
    known = [bench["machine"] for bench in benches.values()]
    if not known:
        raise ValueError("there is no bench in it")
    lines = [HEAD.format(machine=_host(known))]
    for title, rows in SECTIONS.items():
        if found := [_line(row, benches[row.bench]) for row in rows if _has(row, benches)]:
            lines += [
                f"## {title}\n",
                "| Metric | Measured | Target | Other system | Against target |",
                "|---|---|---|---|---|",
            ]
            lines += [*found, ""]
    return "\n".join(lines).rstrip() + "\n"


def _has(row: Row, benches: Mapping[str, Mapping[str, Any]]) -> bool:
    return row.figure in benches.get(row.bench, {}).get("figures", {})


def _host(known: list[Mapping[str, Any]]) -> str:
    loads = [host["load1"] for host in known]
    memory = known[0]["memory_bytes"] / 2**30
    first, load = known[0], f"load {_range(loads)}{_speed(known)}"
    return f"{first['cores']} cores\n({memory:.0f} GiB, {first['system']}, Python {first['python']}, {load})"


def _speed(known: list[Mapping[str, Any]]) -> str:
    """How quick the host was meanwhile: the same host may be three times as slow on another day."""
    took = [host["loop_seconds"] for host in known if "loop_seconds" in host]
    return f";\nten million additions in Python took {_range(took)} s" if took else ""


def _range(values: list[float]) -> str:
    least, most = f"{min(values):.1f}", f"{max(values):.1f}"
    return least if least == most else f"{least} to {most}"


def _line(row: Row, bench: Mapping[str, Any]) -> str:
    value = float(bench["figures"][row.figure])
    beside, peer = "", None
    if row.peer is not None and row.peer[1] in bench["peers"]:
        peer = float(bench["peers"][row.peer[1]])
        beside = f"{row.peer[0]}: {human(peer, row.unit)}"
    targets, reached = [], []
    if row.target is not None:
        targets.append(f"{'≤' if row.less else '≥'} {human(row.target, row.unit)}")
        reached.append((row.target + 1e-12) / (value + 1e-12) if row.less else value / row.target)
    if row.times is not None and peer is not None:
        targets.append(f"≥ {row.times:g} × {row.peer[0] if row.peer else ''}")
        reached.append(value / max(peer, 1e-12) / row.times)
    bar = BAR * max(1, round(FULL * min(*reached, MAX_BARS / FULL))) if reached else ""
    return f"| {row.what} | {human(value, row.unit)} | {', '.join(targets)} | {beside} | {bar} |"


def human(value: float, unit: str) -> str:
    """Three digits, with the unit's own prefix."""
    space = "" if unit.startswith("B") else " "  # 3 MB, 3 M events
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if unit not in ("s", "µs") else ():
        if value >= size:
            return f"{value / size:.3g} {prefix}{space}{unit}".rstrip()
    if unit == "s" and 0 < value < 0.1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} {unit}".rstrip()


if __name__ == "__main__":
    print(page(json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]), end="")
