"""Kubernetes: workloads by their replicas, KEDA and other autoscalers held meanwhile."""

from workers.plants.foreign.kind import AdapterKind
from workers.plants.foreign.kubernetes.kubernetes_plant import OPTIONS, KubernetesPlant, check, inspect

ADAPTER = AdapterKind(
    name="kubernetes",
    title="Kubernetes: Deployments and StatefulSets",
    schemes={"https": 443, "http": 80},
    options=OPTIONS,
    secret="a service account's token",
    example="https://kubernetes.default.svc",
    make=KubernetesPlant,
    inspect=inspect,
    check=check,
)
