"""Tuning of loops on their record, a chunk per loop (`workers.control.tuning`).

Better values are proposed.
"""

from collections.abc import Iterator
from contextlib import nullcontext

from common.errors import BadInput
from common.parameter import Parameter
from workers.batch.job import ChunkResult, ChunkSpec, HeldChunk, Job, JobContext, Values, Work
from workers.control import tuning
from workers.models import Loop

NAME = "tuning"
PARAMETERS = (
    Parameter(
        "days", "", "number of days for the search, and of following days for the validation", 3, 3, 45, kind="integer"
    ),
    Parameter("loops", "", "names of loops; default: all loops that can be tuned", kind="name_list"),
)


def iterate_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return a chunk per loop. Raises BadInput for a loop that does not exist or cannot be tuned."""
    loops = {loop.name: loop for loop in tuning.list_tunable_loops()}
    for name in values["loops"] or loops:
        if name not in loops:
            raise BadInput("loops", f"must be loops that can be tuned on recorded data, not {name[:80]}.")
        yield ChunkSpec(f"loop={name}", {"loop": loops[name].pk, "days": values["days"]})


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


def work(lease: HeldChunk) -> ChunkResult:
    """Learn from one loop's record and note why nothing is proposed, if so. Raises ChunkLeaseLost."""
    loop = Loop.objects.get(pk=lease.content["loop"])
    now = lease.surroundings.now
    learned = tuning.learn(loop, now, lease.content["days"], lease.check)
    with lease.guard_transaction():
        made = tuning.propose(learned, now)
    return ChunkResult(1) if made else ChunkResult(0, skipped=({"file": loop.name, "why": learned.why},))


JOBS = (
    Job(
        NAME,
        "Tunes loops on recorded data, and proposes values that perform better on the following days.",
        PARAMETERS,
        open_job,
        pieces=iterate_chunks,
        requirements=("memory",),
        crontab="30 2 * * 1",
    ),
)
