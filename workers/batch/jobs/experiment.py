"""The lab's batch job: a chunk a law, each simulated in a process of its own and noted under its lease."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from queues import environment as variables
from queues.errors import BadInput, WeirError
from workers.batch.jobs import files
from workers.batch.jobs.job import Made, Piece, Surroundings, Values, Work
from workers.batch.jobs.parameters import JobParameter
from workers.host.environment import needed, python_path
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import series_file

NAME = "experiment"
PARAMETERS = (JobParameter("experiment", "integer", "the number of an experiment of the lab", least=1),)
COMMAND = (sys.executable, "-m", "workers.lab.simulation")
ROOT = Path(__file__).resolve().parents[3]
POLL_SECONDS = 0.25


class SimulationFailed(WeirError):  # noqa: N818
    """The simulation ended with an error, or its process did; another try may go well."""


def pieces(values: Values, where: Surroundings) -> Iterator[Piece]:
    """A chunk a law. Raises BadInput for an experiment that isn't there."""
    for law in _experiment(values).laws:
        yield Piece(f"law={law}", {"law": law})


def opened(where: Surroundings) -> nullcontext[Work]:
    return nullcontext(work)


def work(lease: Any) -> Made:
    """Simulate one law. Raises BadInput, SimulationFailed, Overtaken."""
    experiment, law = _experiment(lease.parameters), lease.content["law"]
    final = series_file(experiment.pk, law)
    temporary = files.hidden(final, lease.token)
    request = {
        "scenario": experiment.scenario,
        "law": law,
        "settings": experiment.settings,
        "seed": experiment.seed,
        "trace": experiment.trace is not None,
        "number": experiment.pk,
        "data": str(lease.surroundings.data),
        "out": temporary,
    }
    began = time.monotonic()
    answer = _answered(request, lease)
    with lease.guarded():
        noted = {"metrics": answer["metrics"], "seconds": time.monotonic() - began}
        ExperimentResult.objects.update_or_create(experiment=experiment, law=law, defaults=noted)
    return Made(answer["rows"], {final: temporary})


def _experiment(values: Mapping[str, Any]) -> Experiment:
    found = Experiment.objects.filter(pk=values["experiment"]).first()
    if found is None:
        raise BadInput("experiment", f"{values['experiment']} is not known; begin it on the Lab page.")
    return found


def _answered(request: dict[str, Any], lease: Any) -> dict[str, Any]:
    """The answer of a process of its own, which ends when the lease is lost."""
    # One core: the lab is a guest beside consumers and Spark.
    environment = {
        **needed(variables.PROCESS),
        variables.PYTHONPATH: python_path(str(ROOT)),
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        return _read(_awaited(process, request, lease))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _awaited(process: subprocess.Popen[str], request: dict[str, Any], lease: Any) -> str:
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    while process.poll() is None:
        lease.check()
        # The answer is short enough for the pipe to hold it: the process ends before it is read.
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    return process.stdout.read()


def _read(line: str) -> dict[str, Any]:
    if not line.strip():
        raise SimulationFailed("The simulation's process ended without an answer.")
    answer: dict[str, Any] = json.loads(line)
    if "refused" in answer:
        raise BadInput(**answer["refused"])
    if "failed" in answer:
        raise SimulationFailed(answer["failed"])
    return answer
