"""Tests of two paths through the code: a reader follows a tick and an override through at most ten files.

Counted are the files whose functions are entered, from the API's route on, after the request has been authenticated.
Not counted are:

- `common`, which has general code, and models and documents, which are data
- `coordination` and `observability`: leases, locks, and spans
- `windows`: the planned windows, which the authorization and the tick ask for what is active
- look-ups by name: the catalog of laws, the registry of kinds, and the plant's settings
- `controllers`: the law and its guard, pure functions that the tick calls once
- `console/audit` beside `audit_log`, which is called once: how entries are chained and stored
- `console/input`: general readers of text; `console/api/answer`: the way out
- `tests` and the plant in memory, at which the path ends
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
from django.utils import timezone

from console.accounts.access import build_user_actor
from console.api.routes import control as route
from workers.control import engine
from workers.models import Loop
from workers.plants.memory import MemoryPlant

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]
MAX_FILES = 10
NOT_COUNTED = (
    "common/",
    "controllers/",
    "queues/keys.py",
    "queues/models.py",
    "workers/models.py",
    "console/api/answer/",
    "console/audit/chain.py",
    "console/audit/refusals.py",
    "console/input/",
    "console/models.py",
    "workers/documents/",
    "workers/coordination/",
    "workers/observability/",
    "workers/control/kinds/registry.py",
    "workers/steering/plant_settings.py",
    "workers/windows/",
    "workers/plants/memory.py",
)
# From the request down to the decision. The audit log and the roles are services of the actions.
LAYERS = (
    "console/api/",
    "console/actions/",
    "console/accounts/",
    "console/audit/",
    "workers/control/",
    "workers/steering/",
)


@contextmanager
def calls() -> Iterator[list[tuple[str, str]]]:
    """The calls within this block, as (file of the caller, file of the function)."""
    made: list[tuple[str, str]] = []

    def name_of(frame: FrameType | None) -> str:
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(ROOT) and ".venv" not in path.parts and "tests" not in path.parts:
                return path.relative_to(ROOT).as_posix()
            frame = frame.f_back
        return ""

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)) and "/.venv/" not in path and "/tests/" not in path:
            made.append((name_of(frame.f_back), name_of(frame)))

    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(None)


def counted(made: list[tuple[str, str]]) -> set[str]:
    return {name for _, name in made if not name.startswith(NOT_COUNTED)}


def climbs(made: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Calls from a layer to one above it."""

    def rank(name: str) -> int | None:
        return next((place for place, layer in enumerate(LAYERS) if name.startswith(layer)), None)

    ranked = [(rank(caller), rank(name), (caller, name)) for caller, name in made]
    return {call for before, after, call in ranked if before is not None and after is not None and after < before}


@pytest.fixture
def loop(db) -> Loop:
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


@pytest.fixture
def plant() -> MemoryPlant:
    return MemoryPlant(lambda: timezone.now().timestamp(), [("alert", "n1")])


def test_a_tick_passes_through_at_most_ten_files(loop, plant, control):
    plant.put("alert", "n1", 1_200)
    with calls() as made:
        (entry,) = engine.tick_due(plant, timezone.now(), control)
    assert entry.applied
    assert len(counted(made)) <= MAX_FILES, "\n".join(sorted(counted(made)))


def test_an_override_passes_through_at_most_ten_files_and_enters_no_layer_twice(
    loop, plant, control, monkeypatch, django_user_model
):
    engine.tick_due(plant, timezone.now() - timedelta(minutes=1), control)
    actor = build_user_actor(django_user_model.objects.create(username="desk-2", is_superuser=True))
    monkeypatch.setattr(route, "actor_for", lambda request, action: actor)
    body = route.NewOverride(name="worker_rate/upper_limit", value=700, reason="A test.", minutes=5.0)
    plant.put("alert", "n1", 1_200)
    with calls() as made:
        route.create_override(SimpleNamespace(), body)
        (entry,) = engine.tick_due(plant, timezone.now(), control)
    assert entry.applied and entry.parameters["upper_limit"] == 700
    assert len(counted(made)) <= MAX_FILES, "\n".join(sorted(counted(made)))
    assert climbs(made) == set()
