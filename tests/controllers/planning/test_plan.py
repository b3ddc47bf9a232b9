"""Plans: holds, overrides, and caps are kept, and the explanation says what limits cost."""

import numpy as np
import pytest

from controllers.planning.inputs import PlannerParameters
from controllers.planning.model import MAX_UNITS, ModeledPool, ModeledType
from controllers.planning.plan import compute_plan
from controllers.planning.program import NoPlanError
from controllers.planning.rounding import round_counts
from tests.controllers.planning.plants import CLICK, ORDER, nodes, orders, plant, workers

PARAMETERS = PlannerParameters(horizon_seconds=600.0, steps=6)


def test_a_plant_with_enough_of_everything_has_no_limit_that_costs_money():
    plan = compute_plan(plant(), PARAMETERS)
    assert plan.units == {"workers": 5, "nodes": 2, "hosts": 2}
    assert plan.list_sentences() == [] and plan.broken_promises == {}


def test_a_setpoint_lies_within_its_bounds():
    plan = compute_plan(plant(queues={"orders": orders(900.0, deviation_per_second=(40.0,))}), PARAMETERS)
    for name, (fewest, most) in plan.unit_bounds.items():
        assert fewest <= most and plan.units[name] >= fewest


def test_one_more_slot_of_a_full_pool_has_a_price():
    full = plant(
        queues={"orders": orders(500.0, deviation_per_second=(60.0,))},
        pools={"hosts": ModeledPool(units=1, slots=5, maximum=1)},
    )
    (limit,) = [limit for limit in compute_plan(full, PARAMETERS).limits if limit.kind == "slots"]
    assert limit.saving_per_hour > 0
    assert limit.sentence.startswith("One more slot of hosts would save ")


def test_a_bound_has_a_price_in_money_and_in_lost_events():
    types = {"order": ModeledType(share=0.5, lost_price=0.01), "click": ModeledType(share=0.5, lost_price=2e-5)}
    peak = orders(700.0, types=types, backlog_events=12_000.0, bound_seconds=10.0)
    plan = compute_plan(plant(queues={"orders": peak}, stages={"workers": workers(units=7, maximum=7)}), PARAMETERS)
    (limit,) = [limit for limit in plan.limits if limit.kind == "bound"]
    assert limit.saving_per_hour > 0
    assert limit.sentence.startswith("The 10 s bound of orders costs ")
    assert limit.sentence.endswith(" lost events/h, compared with 20 s.")


def test_a_hold_has_a_price_per_hour():
    plan = compute_plan(plant(stages={"workers": workers(fixed=9)}), PARAMETERS)
    (limit,) = [limit for limit in plan.limits if limit.kind == "hold"]
    # Four workers more than necessary at 0.4 an hour, and less for their changes.
    assert limit.saving_per_hour == pytest.approx(1.6, abs=0.1)
    assert limit.sentence.startswith("The hold of workers at 9 costs ")


def test_a_promise_that_can_t_be_kept_has_ways_out_in_the_order_of_their_cost():
    types = {"order": ModeledType(share=1.0, lost_price=0.001, max_shed_share=0.0)}
    few = workers(units=10, maximum=10)
    small = plant(queues={"orders": orders(1_100.0, types=types)}, stages={"workers": few}, nodes={})
    plan = compute_plan(small, PARAMETERS)
    assert set(plan.broken_promises) == {"orders"}
    assert {way.kind for way in plan.ways_out} == {"bound", "units", "shed"}
    costs = [way.extra_per_hour for way in plan.ways_out]
    assert costs == sorted(costs)
    assert plan.list_sentences()[0].startswith("The promise of orders can't be kept: ")


def test_a_higher_load_within_the_band_needs_more_units():
    plan = compute_plan(plant(queues={"orders": orders(500.0, deviation_per_second=(100.0,))}), PARAMETERS)
    assert plan.units_at_upper_band["workers"] > plan.units["workers"]
    assert any("at the upper end of its forecast" in sentence for sentence in plan.list_sentences())


def test_the_same_model_always_gives_the_same_plan():
    model = plant(
        queues={"orders": orders(700.0, types={"order": ORDER, "click": CLICK}, deviation_per_second=(50.0,))}
    )
    assert compute_plan(model, PARAMETERS) == compute_plan(model, PARAMETERS)


def draw_plant(chance):
    """Return a random plant with holds, caps, and too little of everything at times."""
    rate = float(chance.uniform(0, 2_000))
    queue = orders(
        rate,
        deviation_per_second=(float(chance.uniform(0, 0.3)) * rate,),
        types={"order": ORDER, "click": ModeledType(share=0.2, lost_price=1e-6, max_shed_share=float(chance.random()))},
        backlog_events=float(chance.choice([0, 100, 50_000])),
        room_events=float(chance.choice([1_000, 1e6])),
        max_held_events=float(chance.choice([0, 10_000])),
    )

    def draw_range(most):
        low, high = sorted(chance.integers(0, most, 2).tolist())
        hold = int(chance.integers(0, most)) if chance.random() < 0.4 else None
        return {"minimum": low, "maximum": high, "fixed": hold, "units": int(chance.integers(0, most))}

    return plant(
        queues={"orders": queue},
        stages={"workers": workers(**draw_range(30), start_seconds=float(chance.choice([0, 20])))},
        nodes={"nodes": nodes(**draw_range(6))},
        pools={},
    )


def check_limits(model, plan):
    for name, group in model.groups.items():
        low, high = group.range
        assert low <= plan.units[name] <= high, (name, group, plan.units)
    for queue, shares in plan.shed_shares.items():
        for kind, share in shares.items():
            assert 0 <= share <= model.queues[queue].types[kind].max_shed_share + 1e-9
    for queue, rate in plan.admit_per_second.items():
        assert rate >= 0 and model.queues[queue].max_held_events > 0


def test_holds_caps_and_shed_limits_are_kept_in_random_plants():
    chance, quick = np.random.default_rng(0), PlannerParameters(horizon_seconds=300.0, steps=3)
    for _ in range(60):
        model = draw_plant(chance)
        check_limits(model, compute_plan(model, quick, explain=False))


@pytest.mark.thorough
def test_holds_caps_and_shed_limits_are_kept_in_10_000_random_plants():
    chance, quick = np.random.default_rng(1), PlannerParameters(horizon_seconds=300.0, steps=3)
    for _ in range(10_000):
        model = draw_plant(chance)
        check_limits(model, compute_plan(model, quick, explain=False))


def test_whole_numbers_keep_every_hold_and_cap_whatever_the_program_returns():
    chance = np.random.default_rng(2)
    for _ in range(10_000):
        model = draw_plant(chance)
        counts = round_counts(model, {name: float(chance.uniform(-1, 50)) for name in model.groups})
        for name, group in model.groups.items():
            assert group.range[0] <= counts[name] <= group.range[1]


def test_whole_numbers_fit_into_the_slots_of_a_full_pool():
    # Each stage needs a fraction more than its units, and together they use all slots.
    stages = {f"stage {number}": workers(units=3, per_second=150.0, pool="hosts") for number in range(3)}
    full = plant(stages=stages, pools={"hosts": ModeledPool(units=1, slots=10, maximum=1)}, nodes={})
    plan = compute_plan(full, PARAMETERS)
    assert sum(plan.units[name] for name in stages) == 10
    late = plant(stages=stages, pools={"hosts": ModeledPool(units=1, slots=10, start_seconds=60.0)}, nodes={})
    plan = compute_plan(late, PARAMETERS)
    assert sum(plan.units[name] for name in stages) == 10 and plan.units["hosts"] <= 2


def test_a_hold_that_no_pool_can_run_gives_no_plan():
    contradiction = plant(stages={"workers": workers(fixed=MAX_UNITS, pool="hosts")})
    with pytest.raises(NoPlanError):
        compute_plan(contradiction, PARAMETERS)
