"""The baselines of the parallelism laws do what their sources say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.baselines.parallelism import (
    Hpa,
    MeasuredInterval,
    Record,
    SeenPath,
    ThesisRegression,
    apply_dhalion,
    apply_ds2,
    apply_static_peak,
    apply_wt,
)


def measured(name, tasks, load, **other):
    """An operator of 1 ms whose tasks are offered `load` tasks' work."""
    return MeasuredInterval(name, tasks, load * 1000, 0.001, **{**NOTHING, **other})


NOTHING = {"backlog_events": 0.0, "executed_events": 0.0, "emitted_events": 0.0, "held_up_share": 0.0}


def seen(*operators, at=0.0, most=20):
    return SeenPath(operators, at, 1, most)


@st.composite
def chains(draw):
    rows = draw(st.lists(st.tuples(st.integers(1, 20), st.floats(0, 40), st.floats(0, 1)), min_size=1))
    return seen(
        *(
            measured(f"o{at}", tasks, load, held_up_share=share, backlog_events=1e4 * share)
            for at, (tasks, load, share) in enumerate(rows)
        )
    )


@given(chains(), st.floats(0.002, 1))
def test_every_rule_names_each_operator_and_keeps_the_range(chain, bound_seconds):
    peaks = {each.name: each.rate_per_second for each in chain.operators}
    answers = [
        apply_ds2(chain),
        Hpa().decide(chain),
        apply_dhalion(chain),
        apply_static_peak(chain, peaks),
        apply_wt(chain, bound_seconds),
    ]
    for tasks in answers:
        assert set(tasks) == {each.name for each in chain.operators}
        assert all(1 <= count <= 20 for count in tasks.values())


def test_ds2_goes_to_its_target_in_one_step_and_stays_inside_its_band():
    assert apply_ds2(seen(measured("o", 2, 7.0))) == {"o": 10}
    assert apply_ds2(seen(measured("o", 10, 4.1))) == {"o": 10}
    assert apply_ds2(seen(measured("o", 10, 3.9))) == {"o": 6}


def test_the_autoscaler_tolerates_a_tenth_and_is_slow_on_the_way_down():
    hpa = Hpa()
    assert hpa.decide(seen(measured("o", 10, 7.6))) == {"o": 10}
    assert hpa.decide(seen(measured("o", 10, 3.5), at=60.0)) == {"o": 10}
    assert hpa.decide(seen(measured("o", 10, 3.5), at=361.0)) == {"o": 5}


def test_dhalion_scales_the_operator_that_holds_the_others_up_and_shrinks_the_idlest_when_none_does():
    slow, calm = measured("slow", 4, 6.0, held_up_share=0.5), measured("calm", 10, 2.0)
    assert apply_dhalion(seen(slow, calm)) == {"slow": 8, "calm": 10}
    assert apply_dhalion(seen(replace(slow, held_up_share=0.0), calm)) == {"slow": 4, "calm": 8}


def test_the_thesis_doubles_a_bottleneck_and_leaves_the_rest():
    assert apply_wt(seen(measured("a", 2, 3.0), measured("b", 9, 1.0)), 0.1) == {"a": 6, "b": 9}


@pytest.mark.parametrize(("correction", "tasks"), [(1.0, 6), (0.5, 3)])
def test_the_thesis_multiplies_by_e_and_ends_with_too_few_tasks(correction, tasks):
    # E31: a = 1 s, b = 4.5 tasks, a wait of 1 s; with e = .5 it takes 5.
    one = MeasuredInterval("o", 5, 20.25, 1 / 4.5, **NOTHING)
    assert apply_wt(seen(one), 1.0 + one.service_seconds, correction) == {"o": tasks}


def test_the_thesis_regression_never_scales_the_last_operator_and_scales_others_where_out_lags_behind():
    def rows(emits):
        return [
            Record(300.0 * at, 1 + at % 10, 9000.0, min(9000.0, 1000.0 * (1 + at % 10)) * emits) for at in range(40)
        ]

    trained = ThesisRegression({"first": rows(1.0), "last": rows(0.0)}, 300.0)
    tasks = trained.decide(seen(measured("first", 1, 1.0), measured("last", 1, 9.0), at=6000.0, most=10))
    assert tasks["last"] == 1 and tasks["first"] > 1
