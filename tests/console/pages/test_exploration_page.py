"""The page of a concurrency loop: what was explored, the knee, and what other sizes would bring."""

import pytest

from console.pages.loops import exploration
from tests.console.page_form import source_of
from tests.workers.pool.pool_plant import HOST, RATE, Plant, station
from workers.models import Loop

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(control):
    return Plant(control)


def explored(plant, ticks=14, capacity=6):
    """Its page after as many ticks in auto."""
    plant.work(station(capacity))
    plant.tick()
    plant.mode("auto")
    for _ in range(ticks):
        plant.work(station(capacity))
        plant.tick()
    return Loop.objects.get(law="concurrency")


def shown_to(browser, loop, **asked):
    return browser.get(f"/loops/{loop.pk}/", asked)


def test_the_page_shows_the_curve_its_knee_and_what_another_number_would_bring(plant, browsers):
    loop = explored(plant)
    answer = shown_to(browsers["viewer"], loop, threads="20")
    found, text = answer.context["exploration"], source_of(answer)
    assert f"Concurrency of {HOST}" in text and "Throughput by number of processes" in text
    numbers = found.numbers
    assert numbers.rest == numbers.threads == 6 and "Steady with 6 processes: 100 %" in found.sentence
    assert found.bottleneck.servers == 6
    assert found.bottleneck.capacity_per_second == pytest.approx(6 * RATE, rel=0.02)
    assert {2, 4, 6, 8} & {point.threads for point in found.drawing.points}
    (now,), (asked,) = ([row for row in found.predictions if getattr(row, kind)] for kind in ("now", "asked"))
    assert (now.threads, asked.threads, asked.change_percent) == (6, 20, 0)
    assert asked.utilisation == pytest.approx(1.0, abs=0.01) and asked.wait_seconds > 0
    (fewer,) = [row for row in found.predictions if row.threads == 3]
    assert fewer.change_percent == pytest.approx(-50, abs=3)
    (cycle,) = found.cycles[:1]
    assert "controls the pool from now on" in cycle.why and cycle.threads == 6 and cycle.steps >= 3
    plant.tick()
    workers = browsers["viewer"].get("/workers/").content.decode()
    assert f'href="/loops/{loop.pk}/"' in workers and "steady" in workers
    # Other parameters, and what is none.
    address = f"/loops/{loop.pk}/predicted"
    would = {"would-minimum": "9", "would-start": "9"}
    assert browsers["viewer"].get(address, would).context["exploration"].numbers.would == 9
    refused = (({"would-q": "0.1"}, "condition (1)"), ({"threads": "2.5"}, "the number must be a whole"))
    for typed, words in refused:
        part = browsers["viewer"].get(address, typed).content.decode()
        assert "No estimate" in part and words in part
        assert shown_to(browsers["viewer"], loop, **typed).status_code == 200


@pytest.mark.slow
def test_explorations_are_listed_with_their_reason_and_their_rest(plant, browsers):
    loop = explored(plant, ticks=110)
    in_force = shown_to(browsers["viewer"], loop).context["loop"].effective
    cycles = exploration.build_exploration(loop, {**in_force}).cycles
    assert len(cycles) >= 2
    assert "next exploration is due" in cycles[0].why and "controls the pool from now on" in cycles[-1].why
    assert all(cycle.steps >= 1 and cycle.least <= cycle.most for cycle in cycles)
    assert cycles[-1].threads == 6


def test_a_loop_that_has_seen_nothing_or_too_little_says_so(plant, browsers):
    loop = Loop.objects.get(law="concurrency")
    text = shown_to(browsers["viewer"], loop).content.decode()
    assert "No measurements yet" in text and "No explorations yet" in text
    for _ in range(2):
        plant.work(station(6))
        plant.tick()
    plant.rows[HOST]["done"]["full_seconds"] += 1_000.0  # an exploration is due, and only advised
    plant.work(station(6))
    plant.tick()
    text = shown_to(browsers["viewer"], loop).content.decode()
    assert "Measured with 2 processes only" in text and "No explorations yet" in text
    assert "next exploration is due" in text and 'name="threads"' not in text


def test_where_more_processes_do_harm_the_page_says_from_which_number_on(plant, browsers):
    def harmed(threads):
        return 100 * threads / (1 + 0.02 * (threads - 1) + 0.02 * threads * (threads - 1))

    plant.work(harmed)
    plant.tick()
    plant.mode("auto")
    Loop.objects.update(parameters={**Loop.objects.get().parameters, "aim": "peak"})
    for _ in range(16):
        plant.work(harmed)
        plant.tick()
    found = shown_to(browsers["viewer"], Loop.objects.get()).context["exploration"]
    assert found.bottleneck.peak_threads == pytest.approx(7, abs=1)
