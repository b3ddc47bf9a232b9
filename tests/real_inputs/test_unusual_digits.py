"""Text that Python takes for a number, in addresses, options, names of files and timetables."""

import argparse

import pytest
from django_celery_beat.models import CrontabSchedule

from common.errors import BadInput
from console.embedded.launch import parse_port_number
from console.upkeep.backup.files import _find_newest_number
from workers.batch import files, task_definitions
from workers.pipeline.rules.rule_language import parse_expression
from workers.plants.foreign.celery_app.broker import parse_database_number
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import read_replica_bounds

FULL_WIDTH, ARABIC, SUPERSCRIPT = "\uff11\uff12", "\u0663", "\u00b2"
UNUSUAL = [FULL_WIDTH, ARABIC, SUPERSCRIPT, "1_0"]
LONG = "9" * 5_000


@pytest.mark.parametrize("text", [*UNUSUAL, "-1", LONG])
def test_a_database_of_a_broker_is_a_plain_number(text):
    with pytest.raises(BadInput, match="url: must have the number of a database"):
        parse_database_number(text)
    assert parse_database_number("/15") == 15 and parse_database_number("") == 0


@pytest.mark.parametrize("text", [*UNUSUAL, LONG])
def test_bounds_of_workloads_and_ports_are_plain_numbers(text):
    with pytest.raises(BadInput, match="minimum: must be a whole number"):
        read_replica_bounds(PlantAddress(name="far", url="https://far.example", options={"minimum": text}))
    with pytest.raises(argparse.ArgumentTypeError, match="must be 0 to"):
        parse_port_number(text)


@pytest.mark.parametrize("text", [FULL_WIDTH, ARABIC, SUPERSCRIPT])
def test_a_timetable_of_unusual_digits_is_shown_as_it_is_written(text):
    assert task_definitions.describe_calendar(CrontabSchedule(minute=text, hour="3")).startswith(f"crontab {text} 3")
    assert task_definitions.describe_calendar(CrontabSchedule(minute="5", hour=text)).startswith(f"crontab 5 {text}")


@pytest.mark.parametrize("name", [*UNUSUAL, LONG[:200]])
def test_a_file_of_another_name_is_no_batch_and_no_leftover(name, tmp_path):
    (tmp_path / "offsets").mkdir()
    for each in (name, "3", "4.crc"):
        (tmp_path / "offsets" / each).touch()
    assert _find_newest_number(tmp_path / "offsets") == 3
    (tmp_path / "metrics").mkdir()
    left = [tmp_path / "metrics" / f".a.chunk-{each}{files.SUFFIX}" for each in (name, "2")]
    for each in left:
        each.touch()
    assert files.sweep(tmp_path, "chunk-", 5) == 1
    assert [each.exists() for each in left] == [True, False]


@pytest.mark.parametrize("text", UNUSUAL)
def test_a_rule_takes_plain_numbers(text):
    assert parse_expression("value > 12", "rule")
    with pytest.raises(BadInput):
        parse_expression(f"value > {text}", "rule")
