"""Where batch jobs of this console work."""

from django.conf import settings
from django.utils import timezone

from console.connections.control_server import control
from workers.batch.jobs.job import Surroundings


def surroundings() -> Surroundings:
    """The data folder, the control server, and now."""
    return Surroundings(settings.WEIR_DATA, control(), timezone.now())
