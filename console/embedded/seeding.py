"""Initial content of a plant: groups, first administrator, nodes, queues, and loops.

It is safe to run again.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

import redis
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from common import environment as variables
from common.errors import BadInput
from common.files import create_private_folder, write_private
from console.accounts.identity_settings import ROLES
from console.connections.control_server import control
from queues import points, projection
from queues.models import Container, Node, Queue
from queues.nodes.addresses import parse_nodes
from queues.topology import Topology
from workers.alerts.rules.rules import ensure_rules
from workers.batch import task_definitions
from workers.control import loops
from workers.control.kinds.registry import list_seeded_laws
from workers.control.loops import ensure_loops
from workers.control.parts.kind import PlantInventory
from workers.models import Task
from workers.steering import enforcing

FIRST_ADMINISTRATOR = "admin"
FIRST_LOGIN = "first-login"

RETENTION = "retention"
# Every tick of every loop is kept: some 250 MB a day for the first six managers.
FIRST_RETENTION = {"ledger_days": 7}

# The initial queues: the host's telemetry through the pipeline, and two ways of storing events.
FIRST_QUEUES: tuple[dict[str, object], ...] = (
    {"name": "telemetry", "kind": "pipeline", "handler": ""},
    {"name": "process", "kind": "jobs", "handler": "parquet", "priority": 7},
    {"name": "alert", "kind": "jobs", "handler": "sql", "priority": 3},
)


def seed_plant() -> str | None:
    """Seed against settings.REDIS_URL; return the first login's password while it is still valid."""
    seed(control())
    return read_first_password(settings.WEIR_DATA)


def seed(server: redis.Redis, environment: Mapping[str, str] = variables.PROCESS) -> Topology:
    """Create everything a plant needs before it starts; return the projected topology."""
    with transaction.atomic():
        seed_groups()
        seed_administrator(settings.WEIR_DATA, variables.ADMIN_PASSWORD.get_text(environment))
        seed_nodes(
            parse_nodes(variables.NODES.get_text(environment)),
            parse_nodes(variables.NODE_REPLICAS.get_text(environment)),
        )
        seed_queues()
    topology = projection.project(server, enforcing.get_node_thresholds(timezone.now()))
    ensure_loops(PlantInventory(topology, server), list_seeded_laws())
    loops.ensure_schedule()
    seed_retention()
    task_definitions.ensure_tasks()
    ensure_rules(timezone.now())
    return topology


def seed_retention() -> None:
    """Limit the retention, so that an unattended plant does not fill its disk, until somebody changes it."""
    if not Task.objects.filter(name=RETENTION).exists():
        task_definitions.define(RETENTION, RETENTION, parameters=FIRST_RETENTION, crontab_line="30 3 * * *")


def seed_groups() -> None:
    for role in ROLES:
        Group.objects.get_or_create(name=role)


def seed_administrator(data: Path, password: str | None = None) -> None:
    """Create the first administrator, once.

    Later starts change neither a password nor a role, even if a provider's groups have left no administrator.
    """
    if User.objects.filter(Q(groups__name="administrator") | Q(username=FIRST_ADMINISTRATOR)).exists():
        return
    if password:
        try:
            validate_password(password)
        except ValidationError as error:
            raise BadInput(variables.ADMIN_PASSWORD.name, " ".join(error.messages)) from None
    else:
        password = secrets.token_urlsafe(12)
        create_private_folder(data)
        write_private(data / FIRST_LOGIN, f"{FIRST_ADMINISTRATOR} {password}\n")
    administrator = User.objects.create_user(FIRST_ADMINISTRATOR, password=password)
    administrator.groups.add(Group.objects.get(name="administrator"))


def read_first_password(data: Path) -> str | None:
    """Return the password made at the first start; None (and its file deleted) once it has been changed."""
    path = data / FIRST_LOGIN
    if not path.exists():
        return None
    name, _, password = path.read_text().strip().partition(" ")
    administrator = User.objects.filter(username=name).first()
    if administrator is not None and administrator.check_password(password):
        return password
    path.unlink()
    return None


def seed_nodes(urls: dict[str, str], replica_urls: Mapping[str, str] | None = None) -> None:
    """Create nodes by name; a known node gets its new URLs (local ports change), and keeps everything else.

    Raises `BadInput` if a node would lose its replica while that is its primary.
    """
    for name, url in urls.items():
        replica_url = (replica_urls or {}).get(name, "")
        known = Node.objects.filter(name=name).first()
        if known is not None and not replica_url and known.get_primary_url() != known.url:
            raise BadInput(variables.NODE_REPLICAS.name, f"must name the replica of {name}, which is its primary now.")
        Node.objects.update_or_create(name=name, defaults={"url": url, "replica_url": replica_url})


def seed_queues() -> None:
    """Create the first queues over all nodes; a plant that has queues keeps them unchanged."""
    nodes = list(Node.objects.order_by("name"))
    if not nodes or Queue.objects.exists():
        return
    share = points.share([node.name for node in nodes])
    for wanted in FIRST_QUEUES:
        queue = Queue.objects.create(**wanted, minimum_containers=min(2, len(nodes)))
        Container.objects.bulk_create(Container(queue=queue, node=node, points=share[node.name]) for node in nodes)
