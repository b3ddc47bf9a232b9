"""The observer remembers when each problem began and ended, and what it explained."""

from common.stored_document import convert_to_plain, replace_fields
from tests.workers.snapshot.test_causes import make_handler_slow
from tests.workers.snapshot.trouble import VirtualPlant
from workers.snapshot.problem_memory import KEPT_SECONDS, ProblemMemory


def calm(plant: VirtualPlant, seconds: int) -> None:
    plant.document = VirtualPlant().document
    plant.run(seconds)


def break_plant(plant: VirtualPlant, seconds: int) -> float:
    began = plant.now + 1.0
    for second in range(seconds):
        make_handler_slow(plant, 40 + second)
        plant.run(1)
    return began


def test_a_problem_lasts_from_the_first_sign_until_its_subject_is_calm():
    plant = VirtualPlant()
    plant.run(60)
    began = break_plant(plant, 20)
    (problem,) = plant.snapshot.problems
    assert (problem.subject, problem.ended_at) == ("queue/slow", None)
    assert began <= problem.began_at <= began + 3.0, "its victims were late first"
    assert {"queue/alert", "queue/process"} <= {*problem.affected}
    ended = plant.now + 1.0
    calm(plant, 4)
    break_plant(plant, 1)
    assert plant.snapshot.problems[0].ended_at is None, "a moment is no end"
    calm(plant, 60)
    (problem,) = plant.snapshot.problems  # that process was late for a second is not remembered
    assert problem.ended_at is not None and problem.ended_at > ended
    calm(plant, int(KEPT_SECONDS) + 10)
    assert plant.snapshot.problems == []


def test_another_observer_continues_with_the_problems_of_the_last_snapshot():
    plant = VirtualPlant()
    plant.run(60)
    break_plant(plant, 20)
    continued = ProblemMemory(plant.snapshot).add(plant.snapshot)
    assert convert_to_plain(continued.problems) == convert_to_plain(plant.snapshot.problems)


def test_a_problem_of_a_plant_that_was_off_for_hours_is_not_open_any_more():
    plant = VirtualPlant()
    plant.run(60)
    break_plant(plant, 20)
    memory = ProblemMemory(plant.snapshot)
    tomorrow = replace_fields(plant.snapshot, at=(plant.snapshot.at or 0.0) + 50_000.0, states={})
    assert memory.add(tomorrow).problems == []
