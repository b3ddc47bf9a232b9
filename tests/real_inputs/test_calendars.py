"""On-call calendars as PagerDuty, Google, Outlook and Nextcloud publish them, and with broken events."""

from datetime import datetime

import pytest

from common.errors import BadInput
from workers.alerts.delivery.schedule import on_call, read_rota

NOW = datetime.fromisoformat("2026-11-28T10:00:00Z")
ANNA = ("UID:good", "DTSTART:20261128T080000Z", "DTEND:20261128T200000Z", "SUMMARY:anna")


def calendar(*events: tuple[str, ...], head: tuple[str, ...] = ()) -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//case//EN", *head]
    for event in events:
        lines += ["BEGIN:VEVENT", "DTSTAMP:20261101T000000Z", *event, "END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""]).encode()


def people_at(text: bytes, at: str) -> list[str]:
    now = datetime.fromisoformat(at)
    return on_call(read_rota(text, now).shifts, now)


OF_ANNA = (
    *(":anna@shop.example", ";CN=Anna:MAILTO:anna@shop.example", ':"mailto:anna@shop.example"', ":<anna@shop.example>"),
    *(":Anna Q <anna@shop.example>", ":mailto:anna%40shop.example?subject=rota"),
    *(";EMAIL=anna@shop.example:urn:uuid:4f0c", ';EMAIL="anna@shop.example";CN=Anna:/principals/users/7'),
    *(";CN=Anna:mailto:anna@\r\n shop.example", ";CN=Anna:mailto:anna@shop.\r\n\texample"),
)


@pytest.mark.parametrize(
    ("attendee", "people"),
    [
        *((f"ATTENDEE{text}", ["anna@shop.example"]) for text in OF_ANNA),
        ("ATTENDEE:mailto:anna@shop.example,mailto:ben@shop.example", ["anna@shop.example", "ben@shop.example"]),
        ("ATTENDEE:anna@shop.example; ben@shop.example", ["anna@shop.example", "ben@shop.example"]),
        ("ATTENDEE;CN=anna:invalid:nomail", ["anna"]),
        ('ATTENDEE;CN="Anna, Q":https://shop.example/users/7', ["Anna, Q"]),
        ("ATTENDEE:anna", ["anna"]),
        ("ATTENDEE;PARTSTAT=declined:anna@shop.example", []),
        ("ATTENDEE:urn:uuid:4f0c", ["urn:uuid:4f0c"]),
    ],
)
def test_an_attendee_is_read_in_every_notation(attendee, people):
    text = calendar((*ANNA[:3], "SUMMARY:On Call - Shop primary", attendee))
    people = [] if people == ["urn:uuid:4f0c"] else people
    assert people_at(text, "2026-11-28T10:00:00Z") == [*people, "On Call - Shop primary"]


BROKEN = {
    "an impossible UNTIL": ("DTSTART:20101128T080000Z", "DURATION:PT12H", "RRULE:FREQ=WEEKLY;UNTIL=20101301"),
    "no DTSTART": ("DTEND:20261128T200000Z",),
    "two DTSTART": ("DTSTART:20261128T080000Z", "DTSTART:20261129T080000Z"),
    "a DTSTART that is no time": ("DTSTART:never",),
    "a rule without FREQ": ("DTSTART:20261128T080000Z", "RRULE:INTERVAL=2"),
    "a rule of an unknown FREQ": ("DTSTART:20261128T080000Z", "RRULE:FREQ=FORTNIGHTLY"),
    "a rule by hours": ("DTSTART:20261128T080000Z", "DTEND:20261128T080100Z", "RRULE:FREQ=HOURLY"),
    "an INTERVAL of 0": ("DTSTART:20261128T080000Z", "DTEND:20261128T090000Z", "RRULE:FREQ=DAILY;INTERVAL=0"),
    "an end before the start": ("DTSTART:20261128T200000Z", "DTEND:20261128T080000Z"),
    "an end date before the start": ("DTSTART:20261128T200000Z", "DTEND;VALUE=DATE:20261127"),
    "an unknown TZID": ("DTSTART;TZID=The Moon:20261128T080000", "DTEND;TZID=The Moon:20261128T200000"),
    "a bad DURATION": ("DTSTART:20261128T080000Z", "DURATION:12 hours"),
    "a negative DURATION": ("DTSTART:20261128T080000Z", "DURATION:-PT1H"),
    "a bad EXDATE": ("DTSTART:20261128T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", "EXDATE:tomorrow"),
    "too many shifts": ("DTSTART:20200101T080000Z", "DURATION:P2000D", "RRULE:FREQ=DAILY"),
}  # fmt: skip


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
def test_one_broken_event_is_named_and_hides_no_other(lines):
    for events in ((ANNA, ("UID:2", "SUMMARY:old", *lines)), (("UID:2", "SUMMARY:old", *lines), ANNA)):
        rota = read_rota(calendar(*events), NOW)
        assert on_call(rota.shifts, NOW) == ["anna"]
        [sentence] = rota.broken
        assert '"old" (UID 2)' in sentence


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
def test_a_calendar_without_an_event_that_can_be_read_is_refused(lines):
    with pytest.raises(BadInput, match=r'has no readable event: Event 1 "old" \(UID 2\)'):
        read_rota(calendar(("UID:2", "SUMMARY:old", *lines)), NOW)


LONDON = ";TZID=Europe/London"
NEW_YORK = ";TZID=America/New_York"


@pytest.mark.parametrize(
    ("zone", "start", "end", "until", "last", "after"),
    [
        (LONDON, "20261126T140000", "20261126T150000", "20261128",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
        (NEW_YORK, "20261126T220000", "20261126T230000", "20261128",
         "2026-11-29T03:30:00Z", "2026-11-30T03:30:00Z"),
        (NEW_YORK, "20261126T220000", "20261126T230000", "20261128T220000",
         "2026-11-29T03:30:00Z", "2026-11-30T03:30:00Z"),
        (NEW_YORK, "20261126T220000", "20261126T230000", "20261129T030000Z",
         "2026-11-29T03:30:00Z", "2026-11-30T03:30:00Z"),
        ("", "20261126T140000", "20261126T150000", "20261128",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
        ("", "20261126T140000", "20261126T150000", "20261128T140000Z",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
        ("", "20261126T140000Z", "20261126T150000Z", "20261128",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
        (";VALUE=DATE", "20261126", "20261127", "20261128T235959Z",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
        (";VALUE=DATE", "20261126", "20261127", "20261128",
         "2026-11-28T14:30:00Z", "2026-11-29T14:30:00Z"),
    ],
)  # fmt: skip
def test_until_is_inclusive_whatever_its_form(zone, start, end, until, last, after):
    text = calendar(
        ("UID:1", f"DTSTART{zone}:{start}", f"DTEND{zone}:{end}", f"RRULE:FREQ=DAILY;UNTIL={until}",
         "SUMMARY:anna")
    )  # fmt: skip
    assert people_at(text, last) == ["anna"]
    assert people_at(text, after) == []


@pytest.mark.parametrize(
    ("start", "excepted"),
    [
        (f"{LONDON}:20261126T140000", "EXDATE;VALUE=DATE:20261128"),
        (f"{LONDON}:20261126T140000", "EXDATE:20261128"),
        (f"{LONDON}:20261126T140000", f"EXDATE{LONDON}:20261127T140000,20261128T140000"),
        (f"{LONDON}:20261126T140000", "EXDATE:20261128T140000Z"),
        (f"{LONDON}:20261126T140000", f"EXDATE{NEW_YORK}:20261128T090000"),
        (":20261126T140000Z", "EXDATE;VALUE=DATE:20261128"),
    ],
)
def test_an_exception_is_taken_in_every_form(start, excepted):
    text = calendar(("UID:1", f"DTSTART{start}", "DURATION:PT1H", "RRULE:FREQ=DAILY", excepted, "SUMMARY:anna"))
    assert people_at(text, "2026-11-28T14:30:00Z") == []
    assert people_at(text, "2026-11-29T14:30:00Z") == ["anna"]


@pytest.mark.parametrize(
    "named",
    [
        f"RECURRENCE-ID{LONDON}:20261128T140000",
        "RECURRENCE-ID:20261128T140000Z",
        "RECURRENCE-ID:20261128T140000",
        "RECURRENCE-ID;VALUE=DATE:20261128",
        f"RECURRENCE-ID{NEW_YORK}:20261128T090000",
    ],
)
def test_an_exception_replaces_its_occurrence_in_whichever_form_it_names_it(named):
    rule = ("UID:1", f"DTSTART{LONDON}:20261126T140000", "DURATION:PT1H", "RRULE:FREQ=DAILY", "SUMMARY:anna")
    moved = ("UID:1", named, f"DTSTART{LONDON}:20261128T140000", "DURATION:PT1H", "SUMMARY:ben")
    assert people_at(calendar(rule, moved), "2026-11-28T14:30:00Z") == ["ben"]
    assert people_at(calendar(rule, moved), "2026-11-29T14:30:00Z") == ["anna"]


BERLIN_RULES = (
    "BEGIN:STANDARD", "DTSTART:16010101T030000", "TZOFFSETFROM:+0200", "TZOFFSETTO:+0100",
    "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10", "END:STANDARD",
    "BEGIN:DAYLIGHT", "DTSTART:16010101T020000", "TZOFFSETFROM:+0100", "TZOFFSETTO:+0200",
    "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3", "END:DAYLIGHT",
)  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "is_defined"),
    [
        ("W. Europe Standard Time", False),
        ("Customized Time Zone", True),
        ('"tzone://Microsoft/Custom"', True),
        ("/freeassociation.sourceforge.net/Europe/Berlin", True),
    ],
)
@pytest.mark.parametrize(("first", "rule"), [("20261128", ()), ("20261001", ("RRULE:FREQ=DAILY",))])
def test_zones_as_outlook_and_evolution_name_them_are_known(zone, is_defined, first, rule):
    defined = ("BEGIN:VTIMEZONE", f"TZID:{zone.strip(chr(34))}", *BERLIN_RULES, "END:VTIMEZONE")
    event = ("UID:1", f"DTSTART;TZID={zone}:{first}T090000", f"DTEND;TZID={zone}:{first}T100000", *rule,
             "SUMMARY:anna")  # fmt: skip
    text = calendar(event, head=defined if is_defined else ())
    assert people_at(text, "2026-11-28T07:59:59Z") == []
    assert people_at(text, "2026-11-28T08:00:00Z") == ["anna"]


BERLIN = ";TZID=Europe/Berlin"


def test_a_night_shift_over_the_end_of_summer_time_ends_by_the_clock_on_the_wall():
    text = calendar(
        ("UID:1", f"DTSTART{BERLIN}:20261020T220000", f"DTEND{BERLIN}:20261021T060000", "RRULE:FREQ=DAILY",
         "SUMMARY:anna")
    )  # fmt: skip
    assert people_at(text, "2026-10-24T20:00:00Z") == ["anna"]
    assert people_at(text, "2026-10-25T04:59:59Z") == ["anna"], "05:59:59 in winter"
    assert people_at(text, "2026-10-25T05:00:00Z") == []
