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
CASES = {
    "evaluation_interval": "15s",
    "rule_files": [str(RULES)],
    "tests": [
        {
            "interval": "15s",
            "input_series": [
                {"series": 'up{job="weir", instance="a"}', "values": "1x4 0x16"},
                {"series": 'weir_part_up{part="pipeline"}', "values": "0x20"},
                {"series": 'weir_part_up{part="beat"}', "values": "1x20"},
                {"series": 'weir_subject_severity{kind="node", name="n1"}', "values": "4x20"},
                {"series": 'weir_subject_severity{kind="node", name="n2"}', "values": "3x20"},
                {"series": 'weir_subject_severity{kind="loop", name="l"}', "values": "4x20"},
                {"series": "weir_plant_dead_letters", "values": "7x20"},
                {"series": "weir_message_wait_seconds", "values": "0+1x20"},
                {"series": 'weir_console_refused_requests_total{line="people"}', "values": "9x20"},
            ],
            "alert_rule_test": [
                {
                    "eval_time": "5m",
                    "alertname": "WeirDoesNotAnswer",
                    "exp_alerts": [{"exp_labels": {"severity": "critical", "job": "weir", "instance": "a"}}],
                },
                {
                    "eval_time": "5m",
                    "alertname": "WeirPartDown",
                    "exp_alerts": [{"exp_labels": {"severity": "warning", "part": "pipeline"}}],
                },
                {
                    "eval_time": "5m",
                    "alertname": "WeirCritical",
                    "exp_alerts": [{"exp_labels": {"severity": "critical", "kind": "node", "name": "n1"}}],
                },
                {"eval_time": "5m", "alertname": "WeirDeadLetters", "exp_alerts": []},
                {"eval_time": "5m", "alertname": "WeirLoopsLate", "exp_alerts": []},
                {"eval_time": "5m", "alertname": "WeirMessagesWait", "exp_alerts": []},
                {"eval_time": "5m", "alertname": "WeirRefusesRequests", "exp_alerts": []},
            ],
        },
        {
            "interval": "15s",
            "input_series": [
                # It decides each 5 s, and has not for as long as the test goes on; the other is on time.
                {"series": 'weir_loop_age_seconds{law="flow", loop="a"}', "values": "0+15x80"},
                {"series": 'weir_loop_interval_seconds{law="flow", loop="a"}', "values": "5x80"},
                {"series": 'weir_loop_age_seconds{law="flow", loop="b"}', "values": "4x80"},
                {"series": 'weir_loop_interval_seconds{law="flow", loop="b"}', "values": "5x80"},
                {"series": "weir_plant_dead_letters", "values": "7x60 9x20"},
                # Instants are seconds since the beginning of a test.
                {"series": "weir_snapshot_timestamp_seconds", "values": "0+15x20 300x60"},
                {"series": "weir_snapshot_present", "values": "1x80"},
                {"series": "weir_message_wait_seconds", "values": "0x30 315x50"},
                {"series": 'weir_console_refused_requests_total{line="events"}', "values": "0+4x80"},
                {"series": 'weir_console_refused_requests_total{line="people"}', "values": "4x80"},
            ],
            "alert_rule_test": [
                {"eval_time": "5m", "alertname": "WeirLoopsLate", "exp_alerts": []},
                {"eval_time": "5m", "alertname": "WeirObserverSilent", "exp_alerts": []},
                {"eval_time": "10m", "alertname": "WeirDeadLetters", "exp_alerts": []},
                {
                    "eval_time": "10m",
                    "alertname": "WeirLoopsLate",
                    "exp_alerts": [{"exp_labels": {"severity": "warning"}, "value": "1"}],
                },
                {
                    "eval_time": "10m",
                    "alertname": "WeirObserverSilent",
                    "exp_alerts": [{"exp_labels": {"severity": "critical"}}],
                },
                {
                    "eval_time": "12m",
                    "alertname": "WeirMessagesWait",
                    "exp_alerts": [{"exp_labels": {"severity": "critical"}, "value": "315"}],
                },
                {
                    "eval_time": "12m",
                    "alertname": "WeirRefusesRequests",
                    "exp_alerts": [{"exp_labels": {"severity": "warning", "line": "events"}}],
                },
                {
                    "eval_time": "17m",
                    "alertname": "WeirDeadLetters",
                    "exp_alerts": [{"exp_labels": {"severity": "warning"}, "value": "2"}],
                },
            ],
        },
        {
            "interval": "15s",
            # Two web processes, each scraped by itself, say the same of the plant; one saw it a little later.
            "input_series": [
                {"series": f'{name}instance="{web}"}}', "values": values}
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
            "promql_expr_test": [
                {"expr": name, "eval_time": "10m", "exp_samples": [{"labels": name, "value": value}]}
                for name, value in {"weir:events_in:rate": 12, "weir:loops_late:count": 1}.items()
            ],
            "alert_rule_test": [
                {
                    "eval_time": "10m",
                    "alertname": "WeirLoopsLate",
                    "exp_alerts": [{"exp_labels": {"severity": "warning"}, "value": "1"}],
                },
                {
                    "eval_time": "10m",
                    "alertname": "WeirPartDown",
                    "exp_alerts": [{"exp_labels": {"severity": "warning", "part": "pipeline"}}],
                },
                {
                    "eval_time": "10m",
                    "alertname": "WeirMessagesWait",
                    "exp_alerts": [{"exp_labels": {"severity": "critical"}, "value": "400"}],
                },
                {
                    "eval_time": "17m",
                    "alertname": "WeirDeadLetters",
                    "exp_alerts": [{"exp_labels": {"severity": "warning"}, "value": "2"}],
                },
            ],
        },
    ],
}
OF_THE_PLANT = re.compile(r"\b(?:max|min)(?: by \([\w, ]+\) ?)?\((?:rate\()?$")
OF_EACH_PROCESS = re.compile(r"\bsum by \(line\) \(rate\($")


def given() -> set[str]:
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
        assert ("plants.events.groups.billing.lag_seconds" in metrics.build_stream_entry(snapshot)) is is_given
