"""The process of one simulation: `python -m workers.twin.simulation`.

The worker that runs the chunk (`workers.batch.jobs.experiment`) starts it. It never starts on its own. Standard input:
one JSON line {"scenario", "law", "settings", "seed", "seeds", "number", "data", "out", "limits"}. Standard output: one
JSON line {"metrics", "bands", "rows"}, {"refused": {"field", "message"}}, {"over": "memory"}, or {"failed": "..."}. A
simulation can't be interrupted, so it has a process that can be ended. It also ends when its worker does, and when it
exceeds `limits` ({"memory_bytes", "cpu_seconds"}).
"""

import json
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

from django.conf import settings

from common.errors import BadInput
from common.files import resolve_inside_folder
from controllers.simulation.catalog import SCENARIOS
from controllers.simulation.seeds import run_seeds
from workers.host.bounded_process import ProcessLimits
from workers.lab.series import ROOT, read_trace, write_series
from workers.twin.catalog import NAME, add_shipped_run

# The models of the loops and those that they refer to. The process has no database and no settings of the console.
MODELS = ("django.contrib.auth", "django.contrib.contenttypes", "django_celery_beat", "queues", "workers")


def simulate(request: dict[str, Any]) -> dict[str, Any]:
    """Run the simulation and write its series; return the metrics, unknown if they aren't finite."""
    data = Path(request["data"])
    trace = read_trace(data, request["number"]) if request["trace"] else None
    scenario = SCENARIOS[request["scenario"]]
    if request["law"] == NAME:
        settings.configure(INSTALLED_APPS=MODELS, DATABASES={}, USE_TZ=True)
        scenario = add_shipped_run(scenario)
    seeds = range(request["seed"], request["seed"] + request["seeds"])
    outcome = run_seeds(scenario, request["law"], request["settings"], seeds, trace)
    write_series(
        resolve_inside_folder(data / ROOT, request["out"].removeprefix(f"{ROOT}/"), "out"),
        outcome.series_seconds,
        outcome.series,
    )
    rows = max((values.shape[-1] for values in outcome.series.values()), default=0)
    return {
        "metrics": {
            name: (None if isinstance(value, float) and not math.isfinite(value) else value)
            for name, value in outcome.metrics.items()
        },
        "bands": outcome.bands,
        "rows": rows,
    }


def answer_of(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return simulate(request)
    except BadInput as error:
        return {"refused": {"field": error.field, "message": error.message}}
    except MemoryError:  # Another try would need as much.
        return {"over": "memory"}
    except Exception as error:  # Any error: the worker decides on another try.
        return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}


def main() -> None:
    # Output of the libraries must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    ProcessLimits(**request["limits"]).apply()

    def end_with_the_worker() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end_with_the_worker, daemon=True).start()
    json.dump(answer_of(request), answers, default=float)
    answers.write("\n")
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
