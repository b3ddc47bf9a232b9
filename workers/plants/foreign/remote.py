"""Another Weir's plant, through the control API that it serves (`console.api.routes.plant_control`).

A topology is one answer, so that it is of one instant. An answer that is late, incomplete, or not as the API specifies
is no topology: the loop holds, and reports the reason. A setting without an answer may have happened; it is sent again,
which changes nothing.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from common.checks import is_number
from common.errors import BadInput
from controllers.parallelism.measured_topology import MeasuredTopology, clear_unusable_measures
from workers.coordination.connections import control_server
from workers.documents.plants import PlantSection
from workers.plants.foreign.client import PlantClient, find_first_error
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantAddress
from workers.plants.foreign.leases import TasksBefore, store_tasks_before
from workers.plants.holding import SECONDS, PlantHeld
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable


class RemotePlant(Adapter):
    """A client of one plant.

    `client` leads to its control API, such as `https://weir.example/control/main/v1`.
    """

    tasks_before: TasksBefore

    def __init__(self, client: PlantClient, before: TasksBefore | None = None) -> None:
        """Set up the plant. before: the tasks of operators before Weir."""
        self._client, self.tasks_before = client, before or TasksBefore(time.time)
        self._faults: Sequence[str] = ()  # unusable measures of the last topology

    def get_topology(self) -> MeasuredTopology:
        """Return the plant's current topology. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        document, self._faults = clear_unusable_measures(self._ask("GET", "gettopology"))
        try:
            return MeasuredTopology.from_document(document)
        except BadInput as error:
            raise InvalidPlantResponse(f"{self._client.name} returned an invalid response ({error}).") from error

    def list_sections(self) -> Sequence[PlantSection]:
        """Return measures that were left out of the last topology, if there are any."""
        if not self._faults:
            return ()
        return [
            PlantSection(
                title="Invalid measurements",
                about="treated as unknown until the plant reports a valid number",
                columns=["Measurement"],
                rows=[[fault] for fault in self._faults],
            )
        ]

    def hold(self, seconds: float) -> None:
        """Hold its own parallelism loops for this time. Raise `PlantHeld` while another controller has it."""
        self._ask("POST", "hold", seconds=str(seconds))

    def release(self) -> None:
        """Release its own loops, unless another controller holds it."""
        self._ask("POST", "release")

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set tasks, and hold the plant for at least SECONDS. Raise as `ElasticPlant` says."""
        if tasks:
            self._remember_tasks(tasks)
            wanted = ";".join(f"{name}:{count}" for name, count in tasks.items())
            done = self._ask("POST", "setmultipleoperatorparallelism", map=wanted, seconds=str(SECONDS))
            if done is not True:
                raise InvalidPlantResponse(f"{self._client.name} did not confirm that the tasks were set.")

    def _remember_tasks(self, tasks: Mapping[str, int]) -> None:
        """Record the current tasks before the first change."""
        if tasks.keys() - self.tasks_before.load_all().keys():
            operators = self.get_topology().operators
            self.tasks_before.remember(
                {name: operators[name].parallelism for name in tasks if name in operators}, tasks
            )
        else:
            self.tasks_before.remember({}, tasks)

    def close(self) -> None:
        self._client.close()

    def _ask(self, method: str, operation: str, **query: str) -> Any:
        """Return the document of a successful answer."""
        status, document = self._client.ask(method, operation, **query)
        if status == 200:
            return document
        name, (field, message) = self._client.name, find_first_error(document)
        if status == 409 and isinstance(document, dict) and isinstance(document.get("holder"), str):
            until = document.get("until")
            raise PlantHeld(name, document["holder"], float(until) if is_number(until) else 0.0)
        if status == 422:
            raise BadInput(field, message)
        if status == 503:
            raise PlantUnavailable(f"{name}: {message}")
        raise InvalidPlantResponse(f"{name} rejected the request ({status}): {message}")


def make(address: PlantAddress) -> RemotePlant:
    return RemotePlant(address.create_client(), store_tasks_before(address.name, control_server(), time.time))


ADAPTER = AdapterKind(
    name="weir",
    title="Weir (control API)",
    example="https://weir.example/control/main/v1",
    make=make,
    let_go_by_hand="A hold of the remote plant expires after at most 1 hour.",
)
