"""Names of extracts: a person's extract is never replaced by another person's."""

from django.db.models import Q

from common.errors import BadInput
from workers.batch.jobs.job import JobContext
from workers.history.event_archive import extract_file
from workers.models import Run

JOB = "replay_extract"


def check_free(where: JobContext, queue: str, name: str, format: str) -> None:
    """Raise BadInput where another person's extract of the queue has that name or is being made with it."""
    path = extract_file(queue, name, format)
    of_name = Run.objects.filter(
        task__job=JOB, parameters__queue=queue, parameters__format=format, chunks__identifier=f"extract={name}"
    )
    lasting = of_name.filter(Q(ended_at=None) | Q(state=Run.State.DONE))
    made = lasting.select_related("owner").order_by("-pk").first()
    if made is None or made.owner_id == where.owner:
        return
    if made.ended_at is not None and not (where.data / path).exists():
        return
    owner = made.owner.get_username() if made.owner else "the schedule"
    raise BadInput(
        "name", f"{path} is an extract of {owner} (run {made.pk}) and would be replaced. Choose another name."
    )
