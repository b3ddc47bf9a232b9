"""Rules and sequences beside what others do on the same events in the same run; `bin/peers` installs them.

    rules     Weir's first tier by default settings; Spark alone (the same SQL), DuckDB, Polars, Sail, Pathway
    sequence  Weir's second tier with exact state, and both tiers; Bytewax in memory without recovery, the
              best of one worker and two processes; Flink's MATCH_RECOGNIZE, two subtasks. 200 and 10,000 keys
    between   Weir's matcher in one process, and Flink as before: SEQ(A; B) with a condition between the events

Each gives an answer (`work`), and no time counts whose answer is not right: Weir's matcher finds what Bytewax finds,
and in its mode skip-past-last what Flink finds. Others read a file or what is in memory; Weir reads queues on three
servers, and keeps its state so that a kill loses and doubles nothing. Others run without a network where the system can
give them none.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.peers.work import (
    between_events,
    run_between,
    run_matcher,
    sequence_events,
    shorten_window,
    write_hosts,
    write_sequence,
)
from bench.pipeline import pipeline
from bench.pipeline.events import telemetry
from bench.pipeline.pipeline import SEQUENCE, drain, spark_rate
from common.errors import BadInput
from workers.pipeline.declaration.declaration import Application, parse_application_text, read_application
from workers.pipeline.rules.rule_sql import apply_rules
from workers.pipeline.rules.rules import Enrich
from workers.pipeline.runtime.application import SHIPPED
from workers.pipeline.runtime.running import INTRA, TIERS
from workers.pipeline.runtime.session import start_session

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS, INSTALLED = Path(__file__).parent / "programs", ROOT / ".peers"
EVENTS = "events.parquet"
RULES = ("duckdb", "polars", "sail", "pathway")
KEYS = (200, 10_000)
RULE_EVENTS_PER_SECOND, MAX_RULE_EVENTS = 400_000, 4_000_000  # for each second of `--seconds`, and at all
SEQUENCE_EVENTS = 1_000_000  # several batches
PASSES = 3  # of the matcher alone; the fastest one counts
MAX_SECONDS = 900.0
NO_NETWORK = ("unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")


@dataclass(frozen=True)
class Ran:
    """What a program put out."""

    seconds: float
    answer: dict[str, Any]


def run(seconds: float) -> dict[str, Any]:
    """All of it: some minutes, whatever `seconds` is."""
    for name in ("python", "flink"):
        if not (INSTALLED / name / "bin" / "python").exists():
            raise BadInput("NAME", "peers needs what `bin/peers` installs into .peers (2.5 GB).")
    with tempfile.TemporaryDirectory(prefix="weir-peers-") as folder:
        own, others = _rules(Path(folder), seconds)
        for keys in KEYS:
            ours, theirs = _sequence(Path(folder), keys)
            own, others = own | ours, others | theirs
        for keys in KEYS:
            ours, theirs = _between(Path(folder), keys)
            own, others = own | ours, others | theirs
    return {"figures": own, "peers": others, "ratio": dict(_ratios(own, others))}


def _ratios(own: dict[str, float], others: dict[str, float]) -> Iterator[tuple[str, float]]:
    for peer in ("spark_alone", *RULES):
        yield f"rules_to_{peer}", own["rules_events_per_second"] / others[f"rules_{peer}_events_per_second"]
    for keys in KEYS:
        of = f"{keys}_keys_events_per_second"
        yield f"sequence_to_bytewax_{keys}_keys", own[f"sequence_{of}"] / others[f"sequence_bytewax_{of}"]
        yield f"between_to_flink_{keys}_keys", own[f"between_{of}"] / others[f"between_flink_{of}"]
        yield f"both_tiers_to_flink_{keys}_keys", own[f"both_tiers_{of}"] / others[f"sequence_flink_{of}"]


def _rules(folder: Path, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    rows = int(min(MAX_RULE_EVENTS, RULE_EVENTS_PER_SECOND * seconds))
    shipped = replace(read_application(SHIPPED), name="shipped")
    events = telemetry(2 * rows)
    (hosts,) = (rule.table.current for rule in shipped.rules if isinstance(rule, Enrich))
    write_hosts(folder, hosts)
    with _spark(folder / "spark") as spark:
        worked = drain("rules", spark, folder / "rules", shipped, events, (INTRA,), _default(shipped))
        alone = spark_rate(spark, events.slice(rows), shipped, folder / EVENTS)
        right = _count_answers(spark, folder / EVENTS, shipped)
    others = {"rules_spark_alone_events_per_second": alone}
    own = _print_figures({"rules_events_per_second": worked["rules_events_per_second"]})
    for name in RULES:
        ran = program("python", f"rules_{name}.py", str(folder))
        _demand(name, _alike(ran.answer, right))
        others[f"rules_{name}_events_per_second"] = rows / ran.seconds
    return own, _print_figures(others)


def _sequence(folder: Path, keys: int) -> tuple[dict[str, float], dict[str, float]]:
    rows = SEQUENCE_EVENTS
    files, of = folder / f"sequence{keys}", f"{keys}_keys_events_per_second"
    files.mkdir()
    events = sequence_events(2 * rows, keys)
    half = events.slice(rows)
    write_sequence(files, half)
    own = _print_figures(_own_sequence(files, keys, events))
    within = str(shorten_window(keys))
    bytewax = [program("python", "sequence_bytewax.py", str(files), within, str(n)) for n in (1, 2)]
    right, _ = run_matcher(half, "once")
    for ran in bytewax:
        _demand("bytewax", ran.answer == right)
    flink = program("flink", "sequence_flink.py", str(files), within)
    _demand("flink", flink.answer == run_matcher(half, "skip-past-last")[1])
    others = {
        f"sequence_bytewax_{of}": rows / min(ran.seconds for ran in bytewax),
        f"sequence_flink_{of}": rows / flink.seconds,
    }
    return own, _print_figures(others)


def _between(folder: Path, keys: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rates of Weir's matcher and of Flink on a pattern with a condition between its events."""
    files, of = folder / f"between{keys}", f"{keys}_keys_events_per_second"
    files.mkdir()
    events = between_events(SEQUENCE_EVENTS, keys)
    write_sequence(files, events, with_values=True)
    right, seconds = run_between(events)
    seconds = min(seconds, *(run_between(events)[1] for _ in range(PASSES - 1)))
    flink = program("flink", "sequence_flink.py", str(files), str(shorten_window(keys)), "between")
    _demand("Flink", flink.answer == right)
    own = _print_figures({f"between_{of}": events.num_rows / seconds})
    return own, _print_figures({f"between_flink_{of}": events.num_rows / flink.seconds})


def _own_sequence(folder: Path, keys: int, events: pa.Table) -> dict[str, float]:
    text = SEQUENCE.replace("within_seconds: 10", f"within_seconds: {shorten_window(keys) / 1000}")
    application = parse_application_text(text, folder)
    of = f"{keys}_keys_events_per_second"
    with _spark(folder / "spark") as spark:
        alone = pipeline.match("sequence", spark, folder / "matched", application, events)
        both = drain("both", spark, folder / "both", application, events, TIERS, _default(application))
    return {f"sequence_{of}": alone["sequence_events_per_second"], f"both_tiers_{of}": both["both_events_per_second"]}


def _default(application: Application) -> int:
    """Events of a batch, as an application has them that says nothing of it."""
    return application.controls.admit_events_per_batch


def _count_answers(spark: SparkSession, file: Path, application: Application) -> dict[str, list[float]]:
    """The answer of the rules, as the first tier carries them out."""
    ruled = apply_rules(spark.read.parquet(str(file)), application.rules, {}, observe=False).events
    rows = ruled.groupBy("host_type").agg({"*": "count", "value": "sum"}).collect()
    return {str(row["host_type"]): [row["count(1)"], row["sum(value)"]] for row in rows}


def _alike(answer: dict[str, list[float]], right: dict[str, list[float]]) -> bool:
    """The same, but for the order in which values were added up."""
    return answer.keys() == right.keys() and all(
        answer[kind][0] == count and math.isclose(answer[kind][1], total, rel_tol=1e-9)
        for kind, (count, total) in right.items()
    )


def _demand(peer: str, is_right: bool) -> None:
    if not is_right:
        raise AssertionError(f"{peer} finds something else than Weir: its time counts for nothing")


@contextmanager
def _spark(folder: Path) -> Iterator[SparkSession]:
    spark = start_session("peers", "local[2]", folder, heap="2g")
    try:
        yield spark
    finally:
        spark.stop()


def program(python: str, name: str, *arguments: str) -> Ran:
    """What it put out. Raises RuntimeError with the end of what it said where it failed."""
    command = [str(INSTALLED / python / "bin" / "python"), str(PROGRAMS / name), *arguments]
    isolated = [*NO_NETWORK, *command] if _can_isolate() else command
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "JAVA_HOME", "HOME", "LANG")}
    ran = subprocess.run(isolated, capture_output=True, text=True, timeout=MAX_SECONDS, env=kept)
    if ran.returncode:
        raise RuntimeError(f"{name} failed: {ran.stderr[-2_000:]}")
    return Ran(**json.loads(ran.stdout.splitlines()[-1]))


@cache
def _can_isolate() -> bool:
    if shutil.which(NO_NETWORK[0]) is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0


def _print_figures(figures: dict[str, float]) -> dict[str, float]:
    """The same, said while the rest is still to come."""
    for name, value in figures.items():
        print(f"{name} {value:,.0f} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    return figures
