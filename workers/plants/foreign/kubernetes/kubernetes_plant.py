"""Deployments and StatefulSets of a namespace as a plant: replicas are tasks, set by their `/scale`.

`workloads` lists them in the order in which events pass them: `parse > score, mail` are two paths, the first with two
steps. `spec.replicas` is the ordered number, `status.replicas` the current one; additional pods of a rollout
(`maxSurge`) are not tasks. While a loop controls the plant, KEDA and the HorizontalPodAutoscaler of a workload are held
(`autoscalers`), and restored afterwards. The latter still enforces its minimum and maximum, so they are bounds of the
operator.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any

from common import checks
from common.errors import BadInput, WeirError
from common.parsing import parse_digits
from controllers.framework.reason import format_count
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from workers.documents.plants import FoundPart, FoundPlant, GuardStatus, PlantSection, PlantStatus, SetValue
from workers.plants.foreign.group_measures import HELP, OPTION, parse_groups
from workers.plants.foreign.kind import Adapter, PlantAddress, RestoredValue, declare_option
from workers.plants.foreign.kubernetes.api_server import AccessDenied, ApiServer
from workers.plants.foreign.kubernetes.autoscalers import Autoscalers, list_items
from workers.plants.foreign.leases import WITHOUT_GUARD, TasksBefore, format_holder, lease_seconds
from workers.plants.guard.weir_guard import BEAT_NAME, POLL_SECONDS, SILENT_SECONDS
from workers.plants.holding import SECONDS
from workers.plants.plant import InvalidPlantResponse

APPS = "apps/v1"
KINDS: Mapping[str, str] = {"deployment": "deployments", "statefulset": "statefulsets"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
SOURCE, NOT_SET = "outside", "events from outside the cluster"
REVISION = "deployment.kubernetes.io/revision"
WINDOW_SECONDS = 30.0
MIN_REPLICAS, MAX_REPLICAS, MAX_WORKLOADS = 1, 20, 20
MAX_REPLICA_DIGITS = 5
BOUNDS_SECONDS = 10.0
KEEPS_REPLICAS = (
    "Harmless: no autoscaler manages the workload, and it keeps its replicas until somebody changes them. Detaching the"
    " plant restores the former number."
)
OPTIONS = (
    declare_option("namespace", "namespace of the workloads", "Namespace", default="default"),
    declare_option(
        "workloads",
        "Deployments, or statefulset/NAME, in processing order: parse > score, mail",
        "Workloads",
        required=True,
    ),
    declare_option(OPTION, HELP, "Lag sources"),
    declare_option("minimum", "minimum replicas of a workload", "Minimum", default=str(MIN_REPLICAS)),
    declare_option("maximum", "maximum replicas of a workload", "Maximum", default=str(MAX_REPLICAS)),
)
NEEDS = (
    "To read: get on deployments and statefulsets of the namespace (group apps).",
    "To control: patch on deployments/scale and statefulsets/scale; list and patch on horizontalpodautoscalers "
    "(autoscaling) and, with KEDA, on scaledobjects (keda.sh).",
    "To show whether the guard runs: get on leases (coordination.k8s.io).",
)


class KubernetesPlant(Adapter):
    """The workloads of one namespace."""

    tasks_before: TasksBefore

    def __init__(
        self,
        address: PlantAddress,
        clock: Callable[[], float] = time.time,
        installation: Callable[[], str] = str,
        before: TasksBefore | None = None,
    ) -> None:
        """Set up the plant.

        installation: returns the id of this Weir, used when something is held. before: the replicas before Weir, of
        workloads without an autoscaler of their own.
        """
        self.tasks_before, self._guard = before or TasksBefore(clock), GuardStatus()
        self._name, self._clock = address.name, clock
        self._paths = parse_paths(address.get_option("workloads"))
        self._least, self._most = read_replica_bounds(address)
        self._server = ApiServer(address, address.get_option("namespace", "default"))
        self._kinds = {name: kind for path in self._paths for kind, name in path}
        workloads = {workload for path in self._paths for workload in path}
        self._autoscalers = Autoscalers(self._server, workloads, self._format_holder)
        self._installation = installation
        self._details = PlantStatus()
        self._bounds: dict[str, tuple[int, int]] = {}  # workload → bounds of its HPA
        self._bounds_at: float | None = None  # when the bounds were read
        self._unread: dict[str, InvalidPlantResponse] = {}  # workload → why it is missing from the last reading

    def _format_holder(self) -> str:
        return format_holder(self._installation(), self._name)

    def get_topology(self) -> MeasuredTopology:
        """Return the topology. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        workloads = self._read()
        now = self._clock()
        if self._bounds_at is None or abs(now - self._bounds_at) >= BOUNDS_SECONDS:
            self._bounds_at = now
            with suppress(InvalidPlantResponse):  # if autoscalers may not be listed, nothing is set (`hold`)
                self._bounds = self._autoscalers.compute_bounds()
        self._details = PlantStatus(
            revisions={name: revision for name, workload in workloads.items() if (revision := _get_revision(workload))},
            set_to={name: _count_desired_replicas(document) for name, document in workloads.items()},
            lives={
                name: at for name, workload in workloads.items() if (at := _read_creation_time(workload)) is not None
            },
        )
        operators = {SOURCE: MeasuredOperator(SOURCE, "source", 1, 1, 1, NOT_SET)}
        for name, document in workloads.items():
            operators[name] = self._build_operator(name, document)
        links = []
        for path in self._paths:
            names = [name for _, name in path if name in workloads]
            links += [Link(*pair) for pair in pairwise([SOURCE, *names])]
        return MeasuredTopology(self._name, self._clock(), WINDOW_SECONDS, operators, tuple(links))

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set all or none: if one is refused, those before it are reverted. Raise as `ElasticPlant` says."""
        workloads = self._read()
        for name in tasks:
            if name in self._unread:
                raise self._unread[name]
        self._bounds = self._autoscalers.compute_bounds() if tasks else self._bounds
        for name, count in tasks.items():  # a HorizontalPodAutoscaler would revert another number at once
            least, most = self._bounds.get(name, (count, count))
            if type(count) is int and not least <= count <= most:
                said = f"must be {least} to {most} replicas, not {count}: a HorizontalPodAutoscaler keeps it"
                raise BadInput(f"tasks.{name}", f"{said} in that range, even while it is held.")
        operators = {name: self._build_operator(name, document) for name, document in workloads.items()}
        operators[SOURCE] = MeasuredOperator(SOURCE, "source", 1, 1, 1, NOT_SET)
        MeasuredTopology(self._name, 0.0, WINDOW_SECONDS, operators).check_tasks(tasks)
        ordered = {name: _count_desired_replicas(workloads[name]) for name in tasks}
        changes = {name: count for name, count in tasks.items() if ordered[name] != count}
        if tasks:
            self._autoscalers.hold(self._clock(), SECONDS)
            scaled = {autoscaler.workload for autoscaler in self._autoscalers.read() if autoscaler.held}
            free = {name: count for name, count in changes.items() if name not in scaled}
            self.tasks_before.remember({name: ordered[name] for name in free}, free)
        done: list[str] = []
        try:
            for name, count in changes.items():
                self._scale(name, count)
                done.append(name)
        except WeirError:
            for name in done:
                with suppress(WeirError):
                    self._scale(name, ordered[name])
            raise

    def hold(self, seconds: float) -> None:
        """Hold KEDA and the HorizontalPodAutoscalers of the workloads for this time."""
        self._autoscalers.hold(self._clock(), seconds)

    def release(self) -> None:
        """Restore the autoscalers to their former setup."""
        self._autoscalers.release(self._clock())

    def renew_leases(self) -> Sequence[RestoredValue]:
        """Renew the leases of held autoscalers; loops hold again what the guard has released."""
        self.tasks_before.forget_restarted(self._details.lives)
        self._autoscalers.renew(self._clock())
        return ()

    def list_set_values(self) -> Sequence[SetValue]:
        """Return held autoscalers and changed replicas."""
        self._guard = self._read_guard()
        held = self._autoscalers.list_held()
        within = {"restored_by": "guard", "within_seconds": lease_seconds() + POLL_SECONDS}
        ending = within if self._guard.alive else {"stays": self._guard.error or WITHOUT_GUARD}
        values = [
            SetValue(
                item=f"{autoscaler.title} {autoscaler.name}",
                value="held",
                afterwards="active" if self._guard.alive else "held",
                by=str(autoscaler.held.get("by")),
                since=autoscaler.held.get("since"),
                is_hold=True,
                **ending,
            )
            for autoscaler in held
        ]
        return [*values, *self.tasks_before.list_set_values(KEEPS_REPLICAS)]

    def _read_guard(self) -> GuardStatus:
        """Return whether the guard has renewed its Lease object recently."""
        try:
            lease = self._server.get("coordination.k8s.io/v1", f"leases/{BEAT_NAME}")
            renewed = None if lease is None else lease["spec"].get("renewTime")
            at = None if renewed is None else checks.parse_timestamp(renewed).timestamp()
        except InvalidPlantResponse as error:  # for example, the account may not read leases
            return GuardStatus(error=str(error))
        except (KeyError, TypeError, ValueError, AttributeError, BadInput) as error:
            return GuardStatus(error=f"{self._name} returned an invalid Lease ({error!r}).")
        return GuardStatus(alive=at is not None and abs(self._clock() - at) <= SILENT_SECONDS)

    def get_guard(self) -> GuardStatus | None:
        return self._guard

    def list_sections(self) -> Sequence[PlantSection]:
        """Return replicas with their rollouts, and the autoscalers; an expired hold is released.

        A hold that the cluster refuses to release stays in the table, and is tried again.
        """
        with suppress(BadInput, InvalidPlantResponse):
            self._autoscalers.release(self._clock(), only_past=True)
        rows = [_build_rollout_row(name, document) for name, document in self._read().items()]
        rows += [[name, *[None] * 5, str(error)] for name, error in self._unread.items()]
        scaled: list[list[str | float | None]] = [
            [
                autoscaler.workload,
                autoscaler.kind,
                autoscaler.name,
                autoscaler.minimum,
                autoscaler.maximum,
                f"held by {autoscaler.held.get('by')}"
                if autoscaler.held
                else ("disabled elsewhere" if autoscaler.is_off else "active"),
            ]
            for autoscaler in self._autoscalers.read()
        ]
        return (
            PlantSection(
                title="Replicas",
                about="desired and ready replicas, and the revision of the rollout",
                columns=["Workload", "Desired", "Current", "Ready", "Updated", "Revision", "State"],
                rows=rows,
            ),
            PlantSection(
                title="Autoscalers",
                about="held while a loop controls the plant, restored afterwards; an HPA keeps its minimum and maximum",
                columns=["Workload", "Kind", "Name", "Minimum", "Maximum", "State"],
                rows=scaled,
                empty="No KEDA ScaledObject or HorizontalPodAutoscaler scales these workloads.",
            ),
        )

    def get_details(self) -> PlantStatus:
        """Return the details.

        revisions: of a Deployment, and the name of a StatefulSet's newest template. set_to: `spec.replicas`, which a
        rollout doesn't change. lives: the creation times, because a workload that was deleted and created again is
        another one.
        """
        return self._details

    def close(self) -> None:
        self._server.close()

    def _build_operator(self, name: str, document: Mapping[str, Any]) -> MeasuredOperator:
        """Return an operator between the registration's bounds and those of a HorizontalPodAutoscaler.

        If no number is within both, it can't be set.
        """
        tasks = _count_existing_replicas(document)
        fixed: str | None = None
        bound_least, bound_most = self._bounds.get(name, (self._least, self._most))
        least, most = max(self._least, bound_least), min(self._most, bound_most)
        if least > most:
            fixed = (
                f"a HorizontalPodAutoscaler keeps it at {bound_least} to {bound_most} replicas, and the registration "
                f"allows {self._least} to {self._most}"
            )
            least, most = self._least, self._most
        return MeasuredOperator(name, "operator", tasks, least, most, fixed)

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return the existing workloads, by name.

        A workload that may not be read is left out, and `_unread` has the reason. Any other failure is raised, because
        it may be over at the next reading, and half of a plant would look like all of it. Raise `PlantUnavailable` and
        `InvalidPlantResponse`.
        """
        workloads = {}
        self._unread = {}
        for name, kind in self._kinds.items():
            try:
                document = self._server.get(APPS, f"{KINDS[kind]}/{name}")
                if document is not None:
                    (
                        _count_existing_replicas(document),
                        _build_rollout_row(name, document),
                        _read_creation_time(document),
                    )
                    workloads[name] = document
            except AccessDenied as error:
                self._unread[name] = error
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                said = f"{self._name} returned an invalid {kind} ({error!r})."
                raise InvalidPlantResponse(said) from error
        if self._unread and not workloads:
            raise next(iter(self._unread.values()))
        return workloads

    def _scale(self, name: str, count: int) -> None:
        path = f"{KINDS[self._kinds[name]]}/{name}/scale"
        self._server.patch(APPS, path, {"spec": {"replicas": count}})


def parse_paths(text: str) -> list[list[tuple[str, str]]]:
    """Return the paths of (kind, name) in `parse > score, statefulset/mail`. Raise `BadInput`."""
    paths: list[list[tuple[str, str]]] = []
    for path in filter(str.strip, text.split(",")):
        paths.append([])
        for part in path.split(">"):
            kind, _, name = part.strip().rpartition("/")
            if (kind or "deployment") not in KINDS or not NAME.match(name):
                raise BadInput(
                    "workloads", f"must list Deployment names or statefulset/NAME, not {part.strip()[:40]!r}."
                )
            paths[-1].append((kind or "deployment", name))
    names = [name for path in paths for _, name in path]
    if not 0 < len(names) <= MAX_WORKLOADS:
        raise BadInput("workloads", f"must list 1 to {MAX_WORKLOADS} workloads.")
    if len(set(names)) < len(names) or SOURCE in names:
        raise BadInput("workloads", f"must list each workload once, and no workload named {SOURCE}.")
    return paths


def read_replica_bounds(address: PlantAddress) -> tuple[int, int]:
    """Return the minimum and maximum replicas. Raise `BadInput`."""
    bounds = []
    for name, default in (("minimum", MIN_REPLICAS), ("maximum", MAX_REPLICAS)):
        text = address.get_option(name, str(default))
        number = parse_digits(text, MAX_REPLICA_DIGITS)
        if number is None:
            raise BadInput(name, f"must be a whole number, not {text[:20]!r}.")
        bounds.append(number)
    if bounds[0] > bounds[1]:
        raise BadInput("minimum", "must be at most the maximum.")
    return bounds[0], bounds[1]


def check(address: PlantAddress) -> None:
    """Raise `BadInput` for invalid options."""
    names = {name for path in parse_paths(address.get_option("workloads")) for _, name in path}
    read_replica_bounds(address)
    if unknown := set(parse_groups(address.get_option(OPTION))) - names:
        raise BadInput(OPTION, f"names {min(unknown)}, which is not among the workloads.")
    if not NAME.match(address.get_option("namespace", "default")):
        raise BadInput("namespace", "must be the name of a namespace.")


def inspect(address: PlantAddress) -> FoundPlant:
    """Return what the namespace has; named workloads can be controlled. Raise what `get_topology` raises."""
    namespace = address.get_option("namespace", "default")
    with closing(ApiServer(address, namespace)) as server:
        try:
            parts = [
                FoundPart(name=f"{kind}/{row['metadata']['name']}", kind=kind, tasks=_count_desired_replicas(row))
                for kind, plural in KINDS.items()
                for row in list_items(server.get(APPS, plural))
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPlantResponse(
                f"{address.name} returned a response that is not from an API server ({error!r})."
            ) from error
        autoscalers = Autoscalers(server, {(part.kind, part.name.rpartition("/")[2]) for part in parts}).read()
    said = [f"{format_count(len(parts), 'workload')} in namespace {namespace}."]
    for scaler in autoscalers:
        keeps = f", and it keeps {scaler.minimum} to {scaler.maximum} replicas" if scaler.kind == "HPA" else ""
        held = f"Weir holds it while a loop controls the plant{keeps}"
        said.append(f"{scaler.kind} {scaler.name} scales {scaler.workload}; {held}.")
    names = [part.name for part in parts]
    return FoundPlant(
        what="A Kubernetes namespace.", said=said, parts=parts, needs=list(NEEDS), choices={"workloads": names}
    )


def _count_desired_replicas(document: Mapping[str, Any]) -> int:
    """Return the ordered replicas, 1 by default."""
    return int(document["spec"].get("replicas", 1))


def _count_existing_replicas(document: Mapping[str, Any]) -> int:
    """Return the existing pods without the additional ones of a rollout.

    Return the ordered number if the cluster reports nothing yet.
    """
    status, ordered = document.get("status") or {}, _count_desired_replicas(document)
    there = _count(status, "replicas")
    there = ordered if there is None else there
    rolls_out = int(status.get("updatedReplicas", 0)) < there
    return min(there, ordered) if rolls_out else there


def _count(status: Mapping[str, Any], name: str) -> int | None:
    """Return a count. A Deployment's controller omits counts of 0; None: no controller has reported yet."""
    number = status.get(name, 0 if "observedGeneration" in status else None)
    return None if number is None else int(number)


def _get_revision(document: Mapping[str, Any]) -> str:
    annotations, status = document["metadata"].get("annotations") or {}, document.get("status") or {}
    return str(annotations.get(REVISION) or status.get("updateRevision") or "")


def _read_creation_time(document: Mapping[str, Any]) -> float | None:
    """Return the creation time in seconds since 1970, or None if unknown."""
    at = document["metadata"].get("creationTimestamp")
    return None if at is None else checks.parse_timestamp(at).timestamp()


def _build_rollout_row(name: str, document: Mapping[str, Any]) -> list[str | float | None]:
    status, ordered = document.get("status") or {}, _count_desired_replicas(document)
    there, updated, ready = (
        _count(status, field_name) for field_name in ("replicas", "updatedReplicas", "readyReplicas")
    )
    state = "rolled out" if (updated or 0) >= ordered <= (ready or 0) else "in progress"
    return [name, ordered, there, ready, updated, _get_revision(document) or None, state]
