"""Autoscalers of a cluster, kept off a workload while a loop steers it, and restored as they were.

KEDA: its ScaledObject gets the annotation `autoscaling.keda.sh/paused`. A HorizontalPodAutoscaler can't be
paused; `selectPolicy: Disabled` in both directions has it change nothing. What was there before stands in an
annotation beside it, with until when the hold is. Neither autoscaler knows of that end: whoever observes the
plant restores what is past it.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from workers.plants.foreign.kubernetes.api_server import ApiServer
from workers.plants.holding import PlantHeld

KEDA, SCALED_OBJECTS = "keda.sh/v1alpha1", "scaledobjects"
AUTOSCALING, HPAS = "autoscaling/v2", "horizontalpodautoscalers"
PAUSED, PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
# What is held, by whom and until when (s since 1970), and what stood there before, as JSON.
HELD = "weir.io/held"
DIRECTIONS = ("scaleUp", "scaleDown")
DISABLED = "Disabled"


@dataclass(frozen=True)
class Autoscaler:
    """One that scales `workload` between `minimum` and `maximum`. is_off: whether it changes nothing now."""

    kind: str
    name: str
    workload: str
    minimum: int
    maximum: int
    is_off: bool
    document: dict[str, Any]

    @property
    def held(self) -> dict[str, Any]:
        """Our own note on it, {} where there is none."""
        text = self.document["metadata"].get("annotations", {}).get(HELD)
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def path(self) -> tuple[str, str]:
        """Where it is patched."""
        if self.kind == "KEDA":
            return KEDA, f"{SCALED_OBJECTS}/{self.name}"
        return AUTOSCALING, f"{HPAS}/{self.name}"

    @property
    def before(self) -> dict[str, Any]:
        """What a hold replaces."""
        if self.kind == "KEDA":
            return {}
        behaviour = self.document["spec"].get("behavior") or {}
        return {each: (behaviour.get(each) or {}).get("selectPolicy") for each in DIRECTIONS}


class Autoscalers:
    """Those of the workloads of one namespace, held by `holder`."""

    def __init__(self, server: ApiServer, workloads: Collection[str], holder: str) -> None:
        self._server, self._workloads, self._holder = server, workloads, holder

    def read(self) -> list[Autoscaler]:
        """What is there now. Raises what the server raises."""
        return [*self._scaled_objects(), *self._hpas()]

    def hold(self, now: float, seconds: float) -> None:
        """Keep them off for so long. Raises PlantHeld while another has one."""
        found = self.read()
        for each in found:
            holder, until = each.held.get("by"), float(each.held.get("until", 0.0))
            if holder not in (None, self._holder) and until > now:
                raise PlantHeld(self._server.name, str(holder), until)
        for each in found:
            ours = bool(each.held)
            if ours and float(each.held.get("until", 0.0)) - now > seconds / 2:
                continue  # long enough: not each tick is worth a change there
            if each.is_off and not ours:
                continue  # somebody else has switched it off: it stays so
            note = {"by": self._holder, "until": round(now + seconds, 1)}
            note["before"] = each.held.get("before", {}) if ours else each.before
            self._server.patch(*each.path, _off(each.kind, json.dumps(note)))

    def release(self, now: float, only_past: bool = False) -> None:
        """Restore ours at once, or only those whose end is past."""
        for each in self.read():
            past = float(each.held.get("until", 0.0)) <= now
            if each.held and (past if only_past else past or each.held.get("by") == self._holder):
                self._server.patch(*each.path, _restored(each.kind, each.held.get("before") or {}))

    def _scaled_objects(self) -> Iterator[Autoscaler]:
        for row in _items(self._server.get(KEDA, SCALED_OBJECTS)):
            spec, annotations = row["spec"], row["metadata"].get("annotations", {})
            workload = spec["scaleTargetRef"]["name"]
            if workload in self._workloads:
                least, most = int(spec.get("minReplicaCount", 0)), int(spec.get("maxReplicaCount", 100))
                is_off = annotations.get(PAUSED) == "true" or PAUSED_REPLICAS in annotations
                yield Autoscaler("KEDA", row["metadata"]["name"], workload, least, most, is_off, row)

    def _hpas(self) -> Iterator[Autoscaler]:
        for row in _items(self._server.get(AUTOSCALING, HPAS)):
            owners = {each.get("kind") for each in row["metadata"].get("ownerReferences", ())}
            workload, spec = row["spec"]["scaleTargetRef"]["name"], row["spec"]
            # KEDA's own is held with its ScaledObject.
            if workload in self._workloads and "ScaledObject" not in owners:
                behaviour = spec.get("behavior") or {}
                policies = [(behaviour.get(each) or {}).get("selectPolicy") for each in DIRECTIONS]
                is_off = all(policy == DISABLED for policy in policies)
                least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
                yield Autoscaler("HPA", row["metadata"]["name"], workload, least, most, is_off, row)


def _items(document: Any) -> list[dict[str, Any]]:
    """Of a list; none where the cluster has no such kind."""
    return list(document["items"]) if document else []


def _off(kind: str, note: str) -> dict[str, Any]:
    if kind == "KEDA":
        return {"metadata": {"annotations": {PAUSED: "true", HELD: note}}}
    behaviour = {each: {"selectPolicy": DISABLED} for each in DIRECTIONS}
    return {"metadata": {"annotations": {HELD: note}}, "spec": {"behavior": behaviour}}


def _restored(kind: str, before: dict[str, Any]) -> dict[str, Any]:
    if kind == "KEDA":
        return {"metadata": {"annotations": {PAUSED: None, HELD: None}}}
    behaviour = {each: {"selectPolicy": before.get(each)} for each in DIRECTIONS}
    return {"metadata": {"annotations": {HELD: None}}, "spec": {"behavior": behaviour}}
