"""Kubernetes: workloads by their replicas, KEDA and other autoscalers held meanwhile."""

from functools import partial

from workers.coordination.connections import control_server
from workers.plants.foreign.kind import AdapterKind, PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import OPTIONS, KubernetesPlant, check, inspect
from workers.plants.installation import installation_id


def make(address: PlantAddress) -> KubernetesPlant:
    """What it holds bears the id of this Weir."""
    return KubernetesPlant(address, installation=partial(installation_id, control_server()))


ADAPTER = AdapterKind(
    name="kubernetes",
    title="Kubernetes: Deployments and StatefulSets",
    schemes={"https": 443, "http": 80},
    options=OPTIONS,
    secret="a service account's token",
    example="https://kubernetes.default.svc",
    make=make,
    inspect=inspect,
    check=check,
)
