"""The command line of the simulation, and what it prints."""

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.simulation.faults import KINDS
from bench.simulation.run import HOUR_SECONDS, RunResult, plan_episodes
from bench.simulation.runs import Runner

SHOWN_STEPS = 40


def main(folder: Path, arguments: list[str]) -> int:
    """Run, print, and return the exit code: 1 after a violation."""
    options = _build_parser().parse_args(arguments)
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    if unknown := sorted(set(kinds) - KINDS.keys()):
        print(f"--kinds: {unknown[0]} is unknown; the kinds are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    runner = Runner(folder, options.processes, kinds)
    if options.only is not None:
        numbers = [int(number) for number in options.only.split(",") if number]
        results: Iterator[RunResult] = iter([runner.run(options.seed, numbers)])
    else:
        results = runner.run_all(_iterate_seeds(options))
    began, total, done = time.monotonic(), RunResult(options.seed), 0
    violated: RunResult | None = None
    counts: Counter[str] = Counter()
    for result in results:
        done += 1
        total.hours += result.hours
        total.active_seconds += result.active_seconds
        total.steps += result.steps
        total.cpu_seconds += result.cpu_seconds
        counts.update({**result.counts, "faults": len(result.faults)})
        if result.violations:
            violated = result
            break
    close = getattr(results, "close", None)
    if close is not None:
        close()
    total.wall_seconds, total.counts = time.monotonic() - began, dict(counts)
    if violated is not None and options.only is None and not options.whole:
        violated = runner.reduce(violated)
    if options.json:
        print(json.dumps({"runs": done, "total": asdict(total), "violated": violated and asdict(violated)}))
    else:
        print("\n".join(_format(done, total, violated, options)))
    return 1 if violated is not None else 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--hours", type=float, default=None)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", default=None)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser


def _iterate_seeds(options: argparse.Namespace) -> Iterator[int]:
    """Return consecutive seeds until a limit is reached: of runs, hours, or seconds. Without limits, return one."""
    limits = (options.runs, options.hours, options.seconds)
    began, hours = time.monotonic(), 0.0
    for seed in itertools.count(options.seed):
        yield seed
        hours += plan_episodes(seed)[-1][1] / HOUR_SECONDS
        reached = (seed - options.seed + 1, hours, time.monotonic() - began)
        if limits == (None, None, None) or any(
            limit is not None and value >= limit for value, limit in zip(reached, limits, strict=True)
        ):
            return


def _format(done: int, total: RunResult, violated: RunResult | None, options: argparse.Namespace) -> Iterator[str]:
    per_second = total.hours / max(total.wall_seconds, 1e-9)
    per_cpu_second = total.hours / max(total.cpu_seconds, 1e-9)
    yield (
        f"{done} runs from seed {total.seed}: {total.hours:,.0f} virtual hours in {total.wall_seconds:,.0f} s "
        f"({per_second:,.2f} hours/s, {per_cpu_second:,.2f} per CPU second), "
        f"{total.active_seconds / HOUR_SECONDS:,.2f} hours of them active, {total.steps:,} steps"
    )
    yield ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in sorted(total.counts.items()))
    if violated is None:
        yield "No violations"
        return
    numbers = ",".join(str(fault.number) for fault in violated.faults)
    yield f"Seed {violated.seed}: {len(violated.violations)} violations"
    yield from violated.violations[:10]
    yield f"Faults ({len(violated.faults)}):"
    yield from map(str, violated.faults)
    yield "Last steps:"
    yield from violated.trace[-SHOWN_STEPS:]
    kinds = f' --kinds "{options.kinds}"' if options.kinds else ""
    replay = f"--seed {violated.seed} --only {numbers or ','}{kinds}"
    yield f"To replay: manage.py simulate {replay}"
