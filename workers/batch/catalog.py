"""The available batch jobs by name; `python:dotted.path` names a custom `Job`.

Each module of `workers.batch.jobs` declares its jobs in JOBS: a new job needs nothing else.
"""

import importlib
import pkgutil

from common.errors import BadInput
from workers.batch import jobs
from workers.batch.job import Job

OWN = "python:"


def get_job(name: str) -> Job:
    """Return the job. Raises BadInput naming it."""
    if name in JOBS:
        return JOBS[name]
    if not name.startswith(OWN):
        raise BadInput("job", f"must be one of {', '.join(JOBS)}, or python:dotted.path, not {name}.")
    path = name.removeprefix(OWN)
    module, _, attribute = path.rpartition(".")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs the module's own code, which may raise anything
        raise BadInput("job", f"python:{path} cannot be imported: {error}.") from None
    if not isinstance(loaded, Job):
        raise BadInput("job", f"must be a workers.batch.job.Job, but python:{path} is a {type(loaded).__name__}.")
    return loaded


def find_jobs() -> dict[str, Job]:
    names = [module.name for module in pkgutil.iter_modules(jobs.__path__, f"{jobs.__name__}.") if not module.ispkg]
    return {job.name: job for name in names for job in importlib.import_module(name).JOBS}


JOBS = find_jobs()
