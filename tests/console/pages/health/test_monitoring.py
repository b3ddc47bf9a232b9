"""The shipped Prometheus rules and Grafana dashboard: every metric they name is given, and the rules fire."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from common.stored_document import replace_fields
from console.pages.health.exposition import render_exposition
from console.pages.health.health import RecordFigures, build_rejection_metric, record_families
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import NOTHING_SEEN
from workers.history import metrics

SHIPPED = Path(__file__).resolve().parents[4] / "docs/start/monitoring"
RULES, DASHBOARD = SHIPPED / "rules.yml", SHIPPED / "dashboard.json"


def fires(at, alert, value=None, **labels):
    """A rule that fires once at this time, with these labels and this value in its text."""
    return {"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": labels, "value": value or ""}]}


def quiet(at, alert):
    return {"eval_time": at, "alertname": alert, "exp_alerts": []}


def build_case(series, *alerts, **more):
    rows = [{"series": name, "values": values} for name, values in series]
    return {"interval": "15s", "input_series": rows, "alert_rule_test": list(alerts), **more}


CASES = {
    "evaluation_interval": "15s",
    "rule_files": [str(RULES)],
    "tests": [
        build_case(
            [
                ('up{job="weir", instance="a"}', "1x4 0x16"),
                ('weir_part_up{part="pipeline"}', "0x20"),
                ('weir_part_up{part="beat"}', "1x20"),
                ('weir_subject_severity{kind="node", name="n1"}', "4x20"),
                ('weir_subject_severity{kind="node", name="n2"}', "3x20"),
                ('weir_subject_severity{kind="loop", name="l"}', "4x20"),
                ("weir_plant_dead_letters", "7x20"),
                ("weir_message_wait_seconds", "0+1x20"),
                ('weir_console_refused_requests_total{line="people"}', "9x20"),
            ],
            fires("5m", "WeirDoesNotAnswer", severity="critical", job="weir", instance="a"),
            fires("5m", "WeirPartDown", severity="warning", part="pipeline"),
            fires("5m", "WeirCritical", severity="critical", kind="node", name="n1"),
            quiet("5m", "WeirDeadLetters"),
            quiet("5m", "WeirLoopsLate"),
            quiet("5m", "WeirMessagesWait"),
            quiet("5m", "WeirRefusesRequests"),
        ),
        build_case(
            [
                # It decides each 5 s, and has not for as long as the test goes on; the other is on time.
                ('weir_loop_age_seconds{law="flow", loop="a"}', "0+15x80"),
                ('weir_loop_interval_seconds{law="flow", loop="a"}', "5x80"),
                ('weir_loop_age_seconds{law="flow", loop="b"}', "4x80"),
                ('weir_loop_interval_seconds{law="flow", loop="b"}', "5x80"),
                ("weir_plant_dead_letters", "7x60 9x20"),
                # Instants are seconds since the beginning of a test.
                ("weir_snapshot_timestamp_seconds", "0+15x20 300x60"),
                ("weir_snapshot_present", "1x80"),
                ("weir_message_wait_seconds", "0x30 315x50"),
                ('weir_console_refused_requests_total{line="events"}', "0+4x80"),
                ('weir_console_refused_requests_total{line="people"}', "4x80"),
            ],
            quiet("5m", "WeirLoopsLate"),
            quiet("5m", "WeirObserverSilent"),
            quiet("10m", "WeirDeadLetters"),
            fires("10m", "WeirLoopsLate", "1", severity="warning"),
            fires("10m", "WeirObserverSilent", severity="critical"),
            fires("12m", "WeirMessagesWait", "315", severity="critical"),
            fires("12m", "WeirRefusesRequests", severity="warning", line="events"),
            fires("17m", "WeirDeadLetters", "2", severity="warning"),
        ),
        # Two web processes, each scraped by itself, say the same of the plant; one saw it a little later.
        build_case(
            [
                (f'{name}instance="{web}"}}', values)
                for web in ("a", "b")
                for name, values in {
                    'weir_queue_in_per_second{queue="alert",': "5x80",
                    'weir_queue_in_per_second{queue="process",': "7x80",
                    'weir_loop_age_seconds{law="flow", loop="a",': "0+15x80" if web == "a" else "1+15x80",
                    'weir_loop_interval_seconds{law="flow", loop="a",': "5x80",
                    'weir_part_up{part="pipeline",': "0x80",
                    "weir_message_wait_seconds{": "400x80",
                    "weir_plant_dead_letters{": "7x60 9x20",
                }.items()
            ],
            fires("10m", "WeirLoopsLate", "1", severity="warning"),
            fires("10m", "WeirPartDown", severity="warning", part="pipeline"),
            fires("10m", "WeirMessagesWait", "400", severity="critical"),
            fires("17m", "WeirDeadLetters", "2", severity="warning"),
            promql_expr_test=[
                {"expr": name, "eval_time": "10m", "exp_samples": [{"labels": name, "value": value}]}
                for name, value in {"weir:events_in:rate": 12, "weir:loops_late:count": 1}.items()
            ],
        ),
    ],
}
OF_THE_PLANT = re.compile(r"\b(?:max|min)(?: by \([\w, ]+\) ?)?\((?:rate\()?$")
OF_EACH_PROCESS = re.compile(r"\bsum by \(line\) \(rate\($")


def given():
    """Names of the metrics that a plant with one of everything has."""
    snapshot = sample_snapshot()
    snapshot["loops"] = {
        "flow/a": {"id": 1, "law": "flow", "mode": "auto", "at": snapshot["at"], "interval_seconds": 1.0}
    }
    snapshot["states"] = {"node/n1": {"kind": "node", "name": "n1", "severity": "critical"}}
    snapshot["parts"] = {"pipeline": {"state": "failed"}}
    beside = [*record_families(RecordFigures(7, 1, 2, 3, 4.5, 6)), build_rejection_metric({"people": 8})]
    text = render_exposition(snapshot_of(snapshot), beside).decode()
    assert 'weir_subject_severity{kind="node",name="n1"} 4.0' in text
    assert 'weir_part_up{part="pipeline"} 0.0' in text
    assert 'weir_loop_age_seconds{law="flow",loop="flow/a"} 0.0' in text
    return set(re.findall(r"^# TYPE (\w+)", text, re.M))


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda path: path.name)
def test_every_metric_that_is_asked_for_is_given(path):
    asked = set(re.findall(r"\bweir_\w+", path.read_text()))
    assert asked and asked <= given()


def test_the_dashboard_shows_a_plant_once_however_many_web_processes_are_scraped():
    text = re.sub(r"\\.", "", DASHBOARD.read_text())
    for found in re.finditer(r"\bweir_\w+", text):
        way = OF_EACH_PROCESS if found[0].startswith("weir_console_refused") else OF_THE_PLANT
        assert way.search(text[: found.start()]), f"{found[0]} is given by each process"


def test_the_rules_are_valid_and_fire_when_they_should(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    rules = yaml.safe_load(RULES.read_text())
    words = {each["alert"]: each for group in rules["groups"] for each in group["rules"] if "alert" in each}
    for case in (case for test in CASES["tests"] for case in test["alert_rule_test"]):
        for alert in case["exp_alerts"]:
            value = alert.pop("value", "")
            alert["exp_annotations"] = {
                name: re.sub(
                    r"\{\{ \$labels\.(\w+) \}\}",
                    lambda found, alert=alert: alert["exp_labels"][found[1]],
                    re.sub(r"\{\{ \$value[^}]*\}\}", value, text),
                )
                for name, text in words[case["alertname"]]["annotations"].items()
            }
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump(CASES))
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(cases)]):
        answer = subprocess.run([promtool, *command], capture_output=True, text=True)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_lag_of_a_cluster_that_is_away_is_no_figure_of_now():
    group = ConsumerGroup(lag_events=4_000, lag_seconds=40.0)
    for state, is_given in (("seen", True), ("stale", False)):
        row = PlantStatus(kind="kafka", state=state, groups={"billing": group})
        snapshot = replace_fields(NOTHING_SEEN, plants={"events": row})
        assert (b"weir_consumer_group_lag_seconds{" in render_exposition(snapshot)) is is_given
        assert ("plants.events.groups.billing.lag_seconds" in dict(metrics.iterate_figures(snapshot))) is is_given
