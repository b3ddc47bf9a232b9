"""Another Weir's plant, through the control API that it serves (`console.api.routes.plant_control`).

A topology is one answer, so that it is of one instant. What comes late, broken off or not as the API says is
no topology: whoever asked holds, and says the reason. A setting that is not answered may have happened; it
is sent again, which changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.parallelism.measured_topology import MeasuredTopology
from controllers.parallelism.usable_measures import usable_measures
from queues.checks import is_number
from queues.errors import BadInput
from workers.documents.plants import PlantSection
from workers.plants.foreign.client import PlantClient, first_error
from workers.plants.foreign.kind import Adapter, AdapterKind, unusable_section
from workers.plants.holding import SECONDS, PlantHeld
from workers.plants.plant import PlantConfused, PlantSilent


class RemotePlant(Adapter):
    """A client of one plant; `client` leads to its control API, as `https://weir.example/control/main/v1`."""

    def __init__(self, client: PlantClient) -> None:
        self._client = client
        self._faults: Sequence[str] = ()  # measures that the last topology had and nothing can use

    def topology(self) -> MeasuredTopology:
        """What the plant says of itself now. Raises PlantSilent and PlantConfused."""
        document, self._faults = usable_measures(self._ask("GET", "gettopology"))
        try:
            return MeasuredTopology.from_document(document)
        except BadInput as error:
            raise PlantConfused(f"{self._client.name} answers what can't be understood ({error}).") from error

    def sections(self) -> Sequence[PlantSection]:
        """Measures that were left out of the last topology, where there are any."""
        return unusable_section(self._faults)

    def hold(self, seconds: float) -> None:
        """Its own loops of parallelism stand still so long. Raises PlantHeld while another has it."""
        self._ask("POST", "hold", seconds=seconds)

    def release(self) -> None:
        """Its own loops go on at once; not when another holds it."""
        self._ask("POST", "release")

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """And hold the plant for SECONDS at least; raises as `Elastic` says."""
        if tasks:
            wanted = ";".join(f"{name}:{count}" for name, count in tasks.items())
            done = self._ask("POST", "setmultipleoperatorparallelism", map=wanted, seconds=SECONDS)
            if done is not True:
                raise PlantConfused(f"{self._client.name} answers what does not say that the tasks were set.")

    def close(self) -> None:
        self._client.close()

    def _ask(self, method: str, operation: str, **query: Any) -> Any:
        """The document of an answer that says yes."""
        status, document = self._client.ask(method, operation, **query)
        if status == 200:
            return document
        name, (field, message) = self._client.name, first_error(document)
        if status == 409 and isinstance(document, dict) and isinstance(document.get("holder"), str):
            until = document.get("until")
            raise PlantHeld(name, document["holder"], float(until) if is_number(until) else 0.0)
        if status == 422:
            raise BadInput(field, message)
        if status == 503:
            raise PlantSilent(f"{name}: {message}")
        raise PlantConfused(f"{name} refuses us ({status}): {message}")


ADAPTER = AdapterKind(
    name="weir",
    title="Weir, by its control API",
    example="https://weir.example/control/main/v1",
    make=lambda address: RemotePlant(address.client()),
    let_go_by_hand="A hold there ends by itself, within an hour at most.",
)
