"""A trial of a declared pattern: it processes events as the pipeline does. Each event has a match or a reason."""

import json
from pathlib import Path

import pytest

from common.errors import BadInput, Forbidden
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.declaration.pattern_trial import PatternTrial, read_events, try_pattern
from workers.pipeline.matching.search_limit import SearchLimit

TEXT = """
name: cards
queues: [telemetry]
sink: alert
attributes: {amount: number, country: text}
key: source
rules:
  - name: tests
    discard: "country = 'XX'"
  - name: euros
    project: {compute: {euros: amount / 100}}
patterns:
  - name: jump
    pattern: SEQ(A; B)
    define: {A: type = 'payment', B: type = 'payment' and euros > 10 * A.euros}
    measures: {ratio: B.euros / A.euros}
    within_seconds: 3600
    quiet_seconds: 10
  - name: growing
    pattern: SEQ(jump; J)
    define: {J: type = 'jump' and ratio > jump.ratio}
    within_seconds: 7200
"""
NOW_US = 1_700_000_000_000_000


def payment(id: str, time: float, amount: object, source: str | None = "anna", **more: object) -> dict:
    return {"id": id, "time": time, "type": "payment", "source": source, "amount": amount, **more}


def attempt(name: str, *events: dict, text: str = TEXT) -> PatternTrial:
    lines = "\n".join(map(json.dumps, events))
    return try_pattern(parse_application_text(text, Path()), name, read_events(lines, NOW_US))


def test_matches_have_measures_conditions_and_whether_they_are_suppressed():
    trial = attempt("jump", *(payment(f"p{at}", at, 10 * 20**at) for at in range(4)))
    assert [(match.events, match.measures, match.suppressed) for match in trial.matches] == [
        (("p0", "p1"), {"ratio": 20.0}, False),
        (("p2", "p3"), {"ratio": 20.0}, True),
    ]
    assert trial.matches[0].conditions == ("B.euros 2 > 10 × A.euros 0.1",)
    assert [(event.id, event.match, event.symbol) for event in trial.events] == [
        ("p0", 1, "A"), ("p1", 1, "B"), ("p2", 2, "A"), ("p3", 2, "B"),
    ]  # fmt: skip


def test_an_event_that_does_not_reach_the_pattern_has_a_reason():
    trial = attempt(
        "jump",
        payment("p1", 1, 93),
        payment("p2", 2, "x"),
        payment("p3", 3, 5, source=None),
        payment("p4", 4, 5, country="XX"),
        payment("p1", 1, 93),
    )
    said = [(event.id, event.reasons[0]) for event in trial.events if event.key is None]
    assert said == [
        ("p1", "It is a duplicate: the pipeline counts events with the same ID and time once."),
        ("p2", 'It becomes a dead letter: attribute amount must be a number, not "x".'),
        ("p3", "It has no source, which is the key of the pattern."),
        ("p4", 'Rule "tests" drops it.'),
    ]


def test_a_later_pattern_reads_the_complex_events_of_earlier_ones():
    trial = attempt("growing", *(payment(f"p{at}", 100 * at, amount) for at, amount in enumerate((1, 20, 1, 50))))
    assert [match.events for match in trial.matches] == [("jump:0", "jump:1")]
    assert trial.matches[0].conditions == ("J.ratio 50 > jump.ratio 20",)


def test_rules_that_only_spark_evaluates_are_left_out_and_named():
    trial = attempt("jump", payment("p1", 1, 100), text=TEXT.replace("amount / 100", "round(amount / 100)"))
    assert trial.notes[0].startswith('The rules weren\'t applied, because rule "euros" uses round')
    assert trial.notes[1] == "These columns have no values: euros."


def test_a_repeated_id_gets_a_number():
    trial = attempt("jump", payment("p", 1, 1), payment("p", 2, 20))
    assert trial.matches[0].events == ("p", "p (2)")


def test_an_event_without_an_id_is_named_after_its_place():
    trial = attempt("jump", {**payment("", 1, 1), "id": None})
    assert trial.events[0].id == "event-1"


def test_no_events_have_no_match():
    assert attempt("jump").matches == attempt("growing").events == ()


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ('{"type": "a"}\n{"type": 5.5}', "line 2", "type"),
        ('{"type": "a"}\nnothing', "line 2", "is not JSON"),
        ('[{"type": "a"}, {"time": "soon"}]', r"events\[1\].time", "must be a time"),
        ("[1]", r"events\[0\]", "must be an object"),
        ("[{", "events", "is not valid JSON"),
    ],
)
def test_events_that_can_not_be_read_are_refused_by_line_and_field(text, field, says):
    with pytest.raises(BadInput, match=f"{field}.*{says}"):
        read_events(text, NOW_US)


def test_events_may_be_lines_a_list_or_a_table():
    wanted = [("e1", "a"), ("e2", "b")]
    for text in (
        '{"id": "e1", "time": 0, "type": "a"}\n{"id": "e2", "time": 0, "type": "b"}\n',
        '[{"id": "e1", "time": 0, "type": "a"}, {"id": "e2", "time": 0, "type": "b"}]',
        "id,time,type\ne1,0,a\ne2,0,b\n",
    ):
        events = read_events(text, NOW_US)
        assert list(zip(events.column("id").to_pylist(), events.column("type").to_pylist(), strict=True)) == wanted


def test_the_error_for_an_unknown_pattern_lists_the_known_patterns():
    with pytest.raises(BadInput, match="'other' is not a pattern of cards; choose one of jump, growing"):
        attempt("other")


def test_a_trial_ends_at_the_limit_of_its_caller():
    class NoSteps(SearchLimit):
        def check_step(self):
            raise Forbidden("events", "too many steps")

    events = read_events(json.dumps(payment("p1", 1, 1)), NOW_US)
    with pytest.raises(Forbidden):
        try_pattern(parse_application_text(TEXT, Path()), "jump", events, NoSteps())
