"""Kubernetes: workloads by their replicas; KEDA and other autoscalers are held meanwhile."""

import secrets
from functools import partial

import redis

from queues import keys
from workers.coordination.connections import control_server
from workers.plants.foreign.kind import AdapterKind, PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import OPTIONS, KubernetesPlant, check, inspect

LET_GO_BY_HAND = (
    "Release autoscalers that are still held: kubectl annotate scaledobject NAME autoscaling.keda.sh/paused- "
    "weir.io/held- (for a HorizontalPodAutoscaler, remove selectPolicy: Disabled from its behavior)."
)


def get_installation_id(control: redis.Redis) -> str:
    """Return eight hexadecimal digits, the same for all processes of this Weir; "" if none may be stored.

    They distinguish this Weir from another one that may use the same names.
    """
    stored = control.get(keys.INSTALLATION)
    if stored is None:
        control.set(keys.INSTALLATION, secrets.token_hex(4), nx=True)
        stored = control.get(keys.INSTALLATION)
    return stored.decode() if isinstance(stored, bytes) else str(stored or "")


def make(address: PlantAddress) -> KubernetesPlant:
    """Build the plant. What it holds is marked with the id of this Weir installation."""
    return KubernetesPlant(address, installation=partial(get_installation_id, control_server()))


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
)
