"""The lab's batch job: one chunk per law, each simulated in a separate process under its lease."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import environment as variables
from common.errors import BadInput, WeirError
from common.parameter import Parameter
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.figures.figure import PaperFigure
from controllers.simulation.scenario import Scenario
from workers.batch import files
from workers.batch.job import ChunkResult, ChunkSpec, HeldChunk, Job, JobContext, Values, Work
from workers.host.bounded_process import BYTES_PER_MEBIBYTE, ProcessLimits, was_over_cpu
from workers.host.environment import build_python_path, select_needed
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import get_series_file

NAME = "experiment"
PARAMETERS = (
    Parameter(
        "experiment",
        "",
        "number of an experiment of the lab",
        minimum=1,
        maximum=math.inf,
        kind="integer",
        required=True,
    ),
)
COMMAND = (sys.executable, "-m", "workers.twin.simulation")
ROOT = Path(__file__).resolve().parents[3]
POLL_SECONDS = 0.25
LIMITS = ProcessLimits(memory_bytes=2**30, cpu_seconds=900)  # of one law
MAX_CHUNK_SECONDS = 1_800.0
MAX_EXPERIMENT_SECONDS = 1_800  # estimated CPU time of all laws together
PROCESS_BYTES = 150 * 2**20  # of an empty simulation


class SimulationFailed(WeirError):  # noqa: N818
    """Raised when the simulation or its process failed; another try may succeed."""


def check_figure_cost(figure: PaperFigure, seeds: int) -> None:
    """Raise BadInput if the runs of a figure with so many seeds exceed the limits of an experiment."""
    scenario = figure.declared_scenario
    if scenario.size is None:
        return
    every = [
        seeds * scenario.size.estimate(scenario.read_settings(run.settings)).cpu_seconds for run in figure.runs.values()
    ]
    if max(every) > LIMITS.cpu_seconds or sum(every) > MAX_EXPERIMENT_SECONDS:
        raise BadInput("seeds", f"needs about {sum(every):,.0f} s of CPU time; reduce the number of seeds")


def check_cost(scenario: Scenario, settings: Values, laws: int) -> None:
    """Raise BadInput, naming a setting, for an experiment whose estimated cost exceeds the limits."""
    if scenario.size is None:
        return
    cost = scenario.size.estimate(settings)
    megabytes, max_megabytes = (
        round(size_bytes / BYTES_PER_MEBIBYTE)
        for size_bytes in (cost.memory_bytes + PROCESS_BYTES, LIMITS.memory_bytes)
    )
    needed = ""
    if megabytes > max_megabytes:
        needed = f"{megabytes:,} MiB of memory for each law; the limit is {max_megabytes:,} MiB"
    elif cost.cpu_seconds > LIMITS.cpu_seconds:
        needed = f"{cost.cpu_seconds:,.0f} s of CPU time for each law; the limit is {LIMITS.cpu_seconds:,} s"
    elif (total := cost.cpu_seconds * laws) > MAX_EXPERIMENT_SECONDS:
        needed = f"{total:,.0f} s of CPU time for {laws} laws; the limit is {MAX_EXPERIMENT_SECONDS:,} s"
    if needed:
        name = _most_unusual(scenario, scenario.size.names, settings)
        raise BadInput(
            name, f"{settings[name]:,} makes the experiment too large. It needs about {needed}. {scenario.size.advice}"
        )


def _most_unusual(scenario: Scenario, names: Sequence[str], settings: Values) -> str:
    """Return the setting among these that is the furthest from its default."""
    defaults = {setting.name: setting.default for setting in scenario.settings}
    return max(names, key=lambda name: abs(math.log(settings[name] / defaults[name])))


def iterate_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return one chunk per law, or per run of a figure. Raises BadInput for a missing experiment."""
    for law in _experiment(values).laws:
        yield ChunkSpec(f"law={law}", {"law": law})


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


def work(lease: HeldChunk) -> ChunkResult:
    """Simulate one law. Raises BadInput, also for a law over LIMITS; SimulationFailed, ChunkLeaseLost."""
    experiment, law = _experiment(lease.parameters), lease.content["law"]
    run = experiment.runs.get(law, {"law": law, "settings": experiment.settings})
    final = get_series_file(experiment.pk, law)
    temporary = files.build_hidden_path(final, lease.token)
    request = {
        "scenario": experiment.scenario,
        "law": run["law"],
        "settings": run["settings"],
        "seed": experiment.seed,
        "seeds": experiment.seeds,
        "trace": experiment.trace is not None,
        "number": experiment.pk,
        "data": str(lease.surroundings.data),
        "out": temporary,
        "limits": asdict(LIMITS),
    }
    began = time.monotonic()
    answer = _run_in_process(request, lease)
    with lease.guard_transaction():
        noted = {"metrics": answer["metrics"], "bands": answer["bands"], "seconds": time.monotonic() - began}
        ExperimentResult.objects.update_or_create(experiment=experiment, law=law, defaults=noted)
    return ChunkResult(answer["rows"], {final: temporary})


def _experiment(values: Mapping[str, Any]) -> Experiment:
    experiment = Experiment.objects.filter(pk=values["experiment"]).first()
    if experiment is None:
        raise BadInput("experiment", f"{values['experiment']} does not exist. Start it on the Lab page.")
    return experiment


def _run_in_process(request: dict[str, Any], lease: HeldChunk) -> dict[str, Any]:
    """Return the answer of a separate process, which ends when the lease is lost."""
    # One core: the lab shares the host with consumers and Spark.
    environment = {
        **select_needed(variables.PROCESS),
        variables.PYTHONPATH: build_python_path(str(ROOT)),
        **dict.fromkeys(variables.MATH_THREADS, "1"),
    }
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        answer = _await_process(process, request, lease)
        if was_over_cpu(process.returncode):
            raise _build_limit_error(LIMITS.describe_cpu_limit(), request)
        return _read(answer, request)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _await_process(process: subprocess.Popen[str], request: dict[str, Any], lease: HeldChunk) -> str:
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    while process.poll() is None:
        lease.check()
        # The answer fits in the pipe's buffer: the process ends before it is read.
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    return process.stdout.read()


def _build_limit_error(used: str, request: Mapping[str, Any]) -> BadInput:
    """Return the error of a law that exceeded a limit; it would do so again, so it is not retried."""
    scenario = SCENARIOS.get(request["scenario"])
    advice = scenario.size.advice if scenario and scenario.size else "Run a smaller experiment."
    return BadInput("", f"The experiment used {used}. {advice}")


def _read(line: str, request: Mapping[str, Any]) -> dict[str, Any]:
    if not line.strip():
        raise SimulationFailed("The simulation process ended without a result.")
    answer: dict[str, Any] = json.loads(line)
    if "over" in answer:
        raise _build_limit_error(LIMITS.describe_memory_limit(), request)
    if "refused" in answer:
        raise BadInput(**answer["refused"])
    if "failed" in answer:
        raise SimulationFailed(answer["failed"])
    return answer


JOBS = (
    Job(
        NAME,
        "Simulates a scenario of the lab, one law per chunk; started on the Lab page.",
        PARAMETERS,
        open_job,
        pieces=iterate_chunks,
        # The role for batch work: experiments must not take slots from consumers.
        requirements=("memory",),
        single_instance=False,
        max_chunk_seconds=MAX_CHUNK_SECONDS,
    ),
)
