"""Kubernetes: workloads by their replicas; KEDA and other autoscalers are held meanwhile."""

import time
from functools import partial

from workers.coordination.connections import control_server
from workers.plants.foreign.kind import AdapterKind, PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import OPTIONS, KubernetesPlant, check, inspect
from workers.plants.foreign.leases import get_installation_id, store_tasks_before
from workers.plants.guard.manifests import build_kubernetes_manifests

LET_GO_BY_HAND = (
    "Release autoscalers that are still held: kubectl annotate scaledobject NAME autoscaling.keda.sh/paused- "
    "weir.io/held- (for a HorizontalPodAutoscaler, remove selectPolicy: Disabled from its behavior)."
)


def make(address: PlantAddress) -> KubernetesPlant:
    """Build the plant. What it holds is marked with the id of this Weir installation."""
    control = control_server()
    before = store_tasks_before(address.name, control, time.time)
    return KubernetesPlant(address, installation=partial(get_installation_id, control), before=before)


ADAPTER = AdapterKind(
    name="kubernetes",
    title="Kubernetes: Deployments and StatefulSets",
    schemes={"https": 443, "http": 80},
    options=OPTIONS,
    example="https://kubernetes.default.svc",
    make=make,
    let_go_by_hand=LET_GO_BY_HAND,
    inspect=inspect,
    check=check,
    build_guard=lambda address: build_kubernetes_manifests(address.get_option("namespace", "default")),
)
