"""The resources of batch jobs of this console."""

from django.conf import settings
from django.utils import timezone

from console.connections.control_server import control
from workers.batch.jobs.job import JobContext


def build_job_context() -> JobContext:
    """Return the data folder, the control server, and the time."""
    return JobContext(settings.WEIR_DATA, control(), timezone.now())
