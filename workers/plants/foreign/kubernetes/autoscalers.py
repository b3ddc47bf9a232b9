"""Autoscalers of a cluster, held while a loop controls a workload, and restored afterwards.

KEDA: its ScaledObject gets the annotation `autoscaling.keda.sh/paused`, which counts with every value except those that
Go reads as false. A HorizontalPodAutoscaler can't be paused; with `selectPolicy: Disabled` in both directions it
changes nothing between its minimum and its maximum. Outside of them it still sets one or the other, so tasks are set
only between them (`bounds`). The former values are stored in an annotation beside it, with a lease.

Neither autoscaler knows that lease. While Weir runs, its observer renews the lease until the end of the hold, and
restores expired holds, also of workloads that no longer belong to the plant. If Weir vanishes, the guard
(`workers.plants.guard`) restores what is not renewed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.checks import is_number
from common.errors import BadInput, WeirError
from workers.plants.foreign.kubernetes.api_server import ApiServer
from workers.plants.foreign.leases import lease_seconds, renew_seconds
from workers.plants.guard.weir_guard import DIRECTIONS, HELD, PAUSED, build_release
from workers.plants.holding import PlantHeld
from workers.plants.plant import InvalidPlantResponse

KEDA, SCALED_OBJECTS = "keda.sh/v1alpha1", "scaledobjects"
AUTOSCALING, HPAS = "autoscaling/v2", "horizontalpodautoscalers"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
# HELD: the hold as JSON. by: who holds. until: when the lease ends, unless renewed. seconds: its duration. ends: until
# when it is renewed. since: when it began. before: the former values. Times: seconds since 1970.
DISABLED = "Disabled"
NOT_PAUSED = ("0", "f", "F", "false", "FALSE", "False")
TARGET = "Deployment"  # default of a ScaledObject without a kind
Workload = tuple[str, str]  # its kind, in lower case, and its name


@dataclass(frozen=True)
class Autoscaler:
    """An autoscaler of `workload` between `minimum` and `maximum`.

    is_off: whether it changes nothing now (between them).
    """

    kind: str
    name: str
    target: Workload
    minimum: int
    maximum: int
    is_off: bool
    document: dict[str, Any]

    @property
    def held(self) -> dict[str, Any]:
        """Return Weir's own record on it, {} if there is none."""
        text = _get_annotations(self.document).get(HELD)
        try:
            held_before = json.loads(text) if text else {}
        except (ValueError, TypeError, RecursionError):
            return {}
        if not held_before or not isinstance(held_before, dict):
            return {}
        # Anyone may edit it: an invalid expiry counts as past, and invalid former values as none.
        until, before = held_before.get("until"), held_before.get("before")
        end = float(until) if is_number(until) else 0.0
        renewed_until = held_before.get("ends")
        return {
            **held_before,
            "until": end,
            "ends": float(renewed_until) if is_number(renewed_until) else end,
            "before": before if isinstance(before, dict) else {},
        }

    @property
    def workload(self) -> str:
        return self.target[1]

    @property
    def title(self) -> str:
        """Return its kind in words."""
        return "ScaledObject" if self.kind == "KEDA" else "HorizontalPodAutoscaler"

    @property
    def path(self) -> tuple[str, str]:
        """Return the path for patches."""
        if self.kind == "KEDA":
            return KEDA, f"{SCALED_OBJECTS}/{self.name}"
        return AUTOSCALING, f"{HPAS}/{self.name}"

    @property
    def before(self) -> dict[str, Any]:
        """Return the values that a hold replaces."""
        if self.kind == "KEDA":
            return {"paused": _get_annotations(self.document).get(PAUSED)}
        behaviour = self.document["spec"].get("behavior") or {}
        return {direction: (behaviour.get(direction) or {}).get("selectPolicy") for direction in DIRECTIONS}

    def build_updates(self, paused: object, policies: Mapping[str, Any], note: str | None) -> dict[str, Any]:
        """Return the patch that sets its pause (KEDA) or policies (HPA), and Weir's record; None removes a value."""
        if self.kind == "KEDA":
            return {"metadata": {"annotations": {PAUSED: paused, HELD: note}}}
        behaviour = {direction: {"selectPolicy": policies.get(direction)} for direction in DIRECTIONS}
        return {"metadata": {"annotations": {HELD: note}}, "spec": {"behavior": behaviour}}


class Autoscalers:
    """The autoscalers of the workloads of one namespace, held on behalf of `holder`."""

    def __init__(self, server: ApiServer, workloads: Collection[Workload], holder: Callable[[], str] = str) -> None:
        self._server, self._workloads, self._holder = server, workloads, holder

    def read(self) -> list[Autoscaler]:
        """Return the current autoscalers. Raise what the server raises."""
        return [autoscaler for autoscaler in self._list_all() if autoscaler.target in self._workloads]

    def list_held(self) -> list[Autoscaler]:
        """Return the autoscalers that this Weir holds, also of workloads that left the plant."""
        return [autoscaler for autoscaler in self._list_all() if autoscaler.held.get("by") == self._holder()]

    def compute_bounds(self) -> dict[str, tuple[int, int]]:
        """Return workload → the minimum and maximum replicas of its HorizontalPodAutoscalers, held or not.

        A paused ScaledObject has none. Raise what the server raises.
        """
        bounds_by_name: dict[str, tuple[int, int]] = {}
        for autoscaler in self.read():
            if autoscaler.kind == "HPA":
                least, most = bounds_by_name.get(autoscaler.workload, (autoscaler.minimum, autoscaler.maximum))
                bounds_by_name[autoscaler.workload] = (max(least, autoscaler.minimum), min(most, autoscaler.maximum))
        return bounds_by_name

    def _list_all(self) -> list[Autoscaler]:
        """Return all autoscalers of the namespace."""
        try:
            return [*self._list_scaled_objects(), *self._iterate_hpas()]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"{self._server.name} returned an invalid autoscaler ({error!r})."
            raise InvalidPlantResponse(said) from error

    def hold(self, now: float, seconds: float) -> None:
        """Hold the autoscalers for this time. Raise `PlantHeld` while another holder has one."""
        autoscalers, ourselves = self.read(), self._holder()
        for autoscaler in autoscalers:
            holder, until = autoscaler.held.get("by"), autoscaler.held.get("until", 0.0)
            if holder not in (None, ourselves) and until > now:
                raise PlantHeld(self._server.name, str(holder), until)
        for autoscaler in autoscalers:
            ours = bool(autoscaler.held)
            if ours and autoscaler.held["ends"] - now > seconds / 2 and not self._needs_renewal(autoscaler, now):
                continue  # still long enough: a change at every tick is not worth it
            if autoscaler.is_off and not ours:
                continue  # somebody else has switched it off: it stays so
            self._write_hold(autoscaler, now, now + seconds)

    def renew(self, now: float) -> None:
        """Renew the leases of Weir's own holds that have not ended. Raise what the server raises."""
        for autoscaler in self._list_all():
            ours = autoscaler.held.get("by") == self._holder()
            if ours and autoscaler.held["ends"] > now and self._needs_renewal(autoscaler, now):
                self._write_hold(autoscaler, now, autoscaler.held["ends"])

    def _needs_renewal(self, autoscaler: Autoscaler, now: float) -> bool:
        """Return whether the lease is to be renewed now: it is shorter than the hold, and a renewal is due."""
        until, ends = autoscaler.held["until"], autoscaler.held["ends"]
        return bool(until < ends and until - now < lease_seconds() - 0.9 * renew_seconds())

    def _write_hold(self, autoscaler: Autoscaler, now: float, ends: float) -> None:
        """Hold an autoscaler until `ends`, with a lease from now on."""
        held = autoscaler.held
        note = {
            "by": self._holder(),
            "until": round(min(ends, now + lease_seconds()), 1),
            "seconds": lease_seconds(),
            "ends": round(ends, 1),
            "since": held.get("since", round(now, 1)),
            "before": held["before"] if held else autoscaler.before,
        }
        policies = dict.fromkeys(DIRECTIONS, DISABLED)
        self._server.patch(*autoscaler.path, autoscaler.build_updates("true", policies, json.dumps(note)))

    def release(self, now: float, only_past: bool = False) -> None:
        """Restore Weir's own holds now, or only expired ones, also of workloads that left the plant.

        A refusal does not stop the others; the first one is raised afterwards.
        """
        refused = list[WeirError]()
        for autoscaler in self._list_all():
            is_ours = autoscaler.held.get("by") == self._holder()
            # A late renewal doesn't end Weir's own hold; another Weir that no longer renews its hold is gone.
            past = autoscaler.held.get("ends" if is_ours else "until", 0.0) <= now
            if autoscaler.held and (past or (not only_past and is_ours)):
                try:
                    self._server.patch(*autoscaler.path, build_release(autoscaler.kind, autoscaler.held))
                except (InvalidPlantResponse, BadInput) as error:
                    refused.append(error)
        if refused:
            raise refused[0]

    def _list_scaled_objects(self) -> Iterator[Autoscaler]:
        for row in list_items(self._server.get(KEDA, SCALED_OBJECTS)):
            spec, annotations = row["spec"], _get_annotations(row)
            least, most = int(spec.get("minReplicaCount", 0)), int(spec.get("maxReplicaCount", 100))
            is_paused = annotations.get(PAUSED, "false") not in NOT_PAUSED
            is_off = is_paused or PAUSED_REPLICAS in annotations
            yield Autoscaler("KEDA", row["metadata"]["name"], _get_scale_target(spec), least, most, is_off, row)

    def _iterate_hpas(self) -> Iterator[Autoscaler]:
        for row in list_items(self._server.get(AUTOSCALING, HPAS)):
            owners = {owner.get("kind") for owner in row["metadata"].get("ownerReferences", ())}
            if "ScaledObject" in owners:  # KEDA's own autoscaler is held through its ScaledObject
                continue
            spec = row["spec"]
            behaviour = spec.get("behavior") or {}
            policies = [(behaviour.get(direction) or {}).get("selectPolicy") for direction in DIRECTIONS]
            is_off = all(policy == DISABLED for policy in policies)
            least, most = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
            yield Autoscaler("HPA", row["metadata"]["name"], _get_scale_target(spec), least, most, is_off, row)


def _get_annotations(document: dict[str, Any]) -> dict[str, Any]:
    return document["metadata"].get("annotations") or {}


def _get_scale_target(spec: dict[str, Any]) -> Workload:
    """Return what it scales. A StatefulSet may have the same name as a Deployment."""
    target = spec["scaleTargetRef"]
    return str(target.get("kind") or TARGET).lower(), str(target["name"])


def list_items(document: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the items of a list; none if the cluster has no such kind."""
    return [] if document is None else list(document["items"])
