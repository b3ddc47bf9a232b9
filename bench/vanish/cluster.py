"""A Kubernetes API server for tests and benches: `kmock`, which keeps objects and merges patches, including `/scale`.

It is not a cluster: no controller carries out orders, no request is authorized, and an HPA or a ScaledObject scales
nothing. `settle` changes a status as a Deployment's controller does.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from kmock import KubernetesEmulator, Server, resource

DEPLOYMENTS = resource("apps/v1/deployments")
STATEFUL_SETS = resource("apps/v1/statefulsets")
HPAS = resource("autoscaling/v2/horizontalpodautoscalers")
SCALED_OBJECTS = resource("keda.sh/v1alpha1/scaledobjects")
LEASES = resource("coordination.k8s.io/v1/leases")
NAMESPACE = "shop"
MAX_SECONDS = 120.0
KINDS = (DEPLOYMENTS, STATEFUL_SETS, HPAS, SCALED_OBJECTS, LEASES)


class Cluster:
    def __init__(self, handler: KubernetesEmulator, url: str) -> None:
        self.handler, self.url = handler, url
        unknown: Any = {}  # kmock needs no more about a kind
        for kind in KINDS:
            handler.resources[kind] = unknown

    def put(self, kind: Any, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        self.handler.objects[kind, NAMESPACE, name] = {
            "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
            "spec": spec,
        }

    def deployment(self, name: str, replicas: int = 2, kind: Any = DEPLOYMENTS, **metadata: Any) -> None:
        self.put(kind, name, {"replicas": replicas}, **metadata)
        self.settle()

    def scaled_object(self, workload: str, **metadata: Any) -> None:
        spec = {"scaleTargetRef": {"name": workload}, "minReplicaCount": 1, "maxReplicaCount": 9}
        self.put(SCALED_OBJECTS, f"keda-{workload}", spec, **metadata)

    def hpa(self, workload: str, behavior: dict[str, Any] | None = None, **metadata: Any) -> None:
        target = {"kind": "Deployment", "name": workload}
        spec: dict[str, Any] = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 8}
        self.put(HPAS, f"hpa-{workload}", spec if behavior is None else {**spec, "behavior": behavior}, **metadata)

    def get(self, kind: Any, name: str) -> Any:
        return self.handler.objects[kind, NAMESPACE, name]

    def delete(self, kind: Any, name: str) -> None:
        self.handler.objects[kind, NAMESPACE, name].delete()

    def annotations(self, kind: Any, name: str) -> dict[str, str]:
        return dict(self.get(kind, name)["metadata"].get("annotations") or {})

    def settle(self) -> None:
        """Make the ordered replicas exist, ready and of the newest revision."""
        for kind in (DEPLOYMENTS, STATEFUL_SETS):
            for (of, _, _), row in list(self.handler.objects.items()):
                if of == kind and not row.deleted:
                    count = row["spec"]["replicas"]
                    row.patch({"status": {"replicas": count, "readyReplicas": count, "updatedReplicas": count}})

    def patches(self) -> list[tuple[str, Any]]:
        """Return the patches in order: (path, body)."""
        return [(request.url.path, request.data) for request in self.handler["patch"]]


@contextmanager
def cluster() -> Iterator[Cluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(MAX_SECONDS)

    async def start() -> tuple[KubernetesEmulator, Server]:
        handler = KubernetesEmulator()
        await handler.__aenter__()
        server = Server(handler)
        await server.__aenter__()
        return handler, server

    async def stop() -> None:
        await server.__aexit__(None, None, None)
        await handler.__aexit__(None, None, None)

    handler, server = run(start())
    try:
        yield Cluster(handler, str(server.url).rstrip("/"))
    finally:
        run(stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(MAX_SECONDS)
        loop.close()
