"""Runs of the simulation in forked processes, so that no run depends on an earlier one, and reduced schedules.

A run follows from its seed and the numbers of its faults alone.
"""

import gc
import json
import logging
import os
import re
import selectors
import shutil
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.simulation import database
from bench.simulation.content import create_content
from bench.simulation.faults import KINDS, Fault
from bench.simulation.run import Run, RunResult

REDUCTION_SECONDS = 60.0


def prepare(folder: Path) -> Path:
    """Return the database that each run copies."""
    template = database.prepare_template(folder)
    create_content()
    database.seal(template)
    return template


@dataclass(frozen=True)
class _Child:
    process: int
    seed: int
    pipe: Any


class Runner:
    """Runs simulations. processes: how many at once; kinds: of faults."""

    def __init__(self, folder: Path, processes: int = 1, kinds: Collection[str] = tuple(KINDS)) -> None:
        self._folder, self._processes, self._kinds = folder, processes, kinds
        self._template = prepare(folder)
        # Otherwise every run would go through all that was imported, again and again.
        gc.collect()
        gc.freeze()
        self.prepare_child: Callable[[], None] = lambda: logging.disable(logging.CRITICAL)

    def run(self, seed: int, only: Collection[int] | None = None) -> RunResult:
        """Run one seed. only: the numbers of the faults to apply; None: all."""
        child = self._start(seed, only)
        return self._collect(child)

    def run_all(self, seeds: Iterable[int]) -> Iterator[RunResult]:
        """Return the results in the order in which they end. To stop early, close the iterator."""
        waiting, running = iter(seeds), dict[int, _Child]()
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    while len(running) < self._processes and (seed := next(waiting, None)) is not None:
                        child = self._start(seed, None)
                        running[child.process] = child
                        selector.register(child.pipe, selectors.EVENT_READ, child)
                    if not running:
                        return
                    for key, _ in selector.select():
                        child = key.data
                        selector.unregister(child.pipe)
                        del running[child.process]
                        yield self._collect(child)
            finally:
                for child in running.values():
                    self._collect(child)

    def reduce(self, result: RunResult, seconds: float = REDUCTION_SECONDS) -> RunResult:
        """Return a run with as few of the faults as possible that still has the violation, found within a time.

        Parts of the schedule are left out, first halves and finally single faults (delta debugging).
        """
        sought, best = _simplify(result.violations[0]), result
        ends_at, parts = time.monotonic() + seconds, 2
        while best.faults and time.monotonic() < ends_at:
            numbers = [fault.number for fault in best.faults]
            size = -(-len(numbers) // parts)
            for start in range(0, len(numbers), size):
                rest = numbers[:start] + numbers[start + size :]
                tried = self.run(result.seed, rest)
                if any(_simplify(violation) == sought for violation in tried.violations):
                    best, parts = tried, max(2, parts - 1)
                    break
                if time.monotonic() >= ends_at:
                    return best
            else:
                if size == 1:
                    return best
                parts = min(2 * parts, len(numbers))
        return best

    def _start(self, seed: int, only: Collection[int] | None) -> _Child:
        reading, writing = os.pipe()
        if (process := os.fork()) == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(asdict(self._run_here(seed, only)), pipe)
            os._exit(0)
        os.close(writing)
        return _Child(process, seed, os.fdopen(reading))

    def _run_here(self, seed: int, only: Collection[int] | None) -> RunResult:
        folder = self._folder / f"run-{os.getpid()}"
        folder.mkdir()
        try:
            self.prepare_child()
            return Run(seed, self._template, folder, only, self._kinds).execute()
        except BaseException:
            return RunResult(seed, violations=["The simulation failed: " + traceback.format_exc()])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _collect(self, child: _Child) -> RunResult:
        with child.pipe as pipe:
            text = pipe.read()
        os.waitpid(child.process, 0)
        if not text:
            return RunResult(child.seed, violations=["The process of the simulation ended unexpectedly."])
        values = json.loads(text)
        known = {field.name for field in fields(RunResult)}
        values["faults"] = [Fault(**fault) for fault in values["faults"]]
        return RunResult(**{name: value for name, value in values.items() if name in known})


def _simplify(violation: str) -> str:
    """Return a violation without its figures, which differ between two schedules."""
    return re.sub(r"[0-9a-f]*\d[0-9a-f.:-]*", "#", violation)
