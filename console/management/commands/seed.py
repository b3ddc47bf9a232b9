"""`manage.py seed`: the initial content of a plant; safe to run again."""

from typing import Any

from django.conf import settings

from common.files import mend
from console.connections.control_server import control
from console.embedded.local import check_whole
from console.embedded.seeding import seed
from console.management.document import JsonCommand


class Command(JsonCommand):
    help = "Create groups, the first administrator, nodes (WEIR_NODES), queues, loops, and the schedule."

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        check_whole(settings.WEIR_DATA)
        # Compose's setup service runs this: files of an older version in the volume are restricted here.
        mend(settings.WEIR_DATA)
        topology = seed(control())
        return {"nodes": sorted(topology.nodes), "queues": sorted(topology.queues), "revision": topology.revision}
