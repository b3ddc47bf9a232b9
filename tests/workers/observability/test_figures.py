"""A collector gets the figures that /metrics shows."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.stored_document import replace_fields
from console.pages.health.exposition import SnapshotCollector, render_exposition
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.observability.collector import build_resource
from workers.observability.figures import EVERY_SECONDS, FiguresSender, build_metrics_data


def families(snapshot):
    return SnapshotCollector(snapshot).collect()


def points_of(data):
    """{(name, labels): value} of what is sent."""
    (of_resource,) = data.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    return {
        (metric.name, *sorted(point.attributes.items())): point.value
        for metric in of_scope.metrics
        for point in metric.data.data_points
    }


def test_each_figure_has_the_name_the_labels_and_the_value_of_metrics():
    snapshot = snapshot_of(sample_snapshot())
    text = render_exposition(snapshot).decode()
    shown = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name != "weir_snapshot_present"
    }
    assert points_of(build_metrics_data(families(snapshot), snapshot.at, build_resource())) == pytest.approx(shown)


def test_a_counter_is_sent_as_one():
    data = build_metrics_data(families(snapshot_of(sample_snapshot())), 1.0, build_resource())
    metrics = {each.name: each.data for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["weir_container_inserted_events_total"].is_monotonic
    assert not hasattr(metrics["weir_node_points"], "is_monotonic")


def test_of_each_seconds_snapshot_those_that_are_due_are_sent_also_when_the_clock_was_set_back():
    sent = []
    sender = FiguresSender(families, lambda data: not sent.append(data))
    snapshot = snapshot_of(sample_snapshot())
    for at in (1e9, 1e9 + 1, 1e9 + EVERY_SECONDS, 5e8, 5e8 + 1):
        sender.add(replace_fields(snapshot, at=at))
    sender.unsent.end(10.0)
    at = [points_of(data)[("weir_snapshot_timestamp_seconds",)] for data in sent]
    # The newest is what waits: what a slow collector has not taken by then gives way.
    assert at[-1] == 5e8 and set(at) <= {1e9, 1e9 + EVERY_SECONDS, 5e8}
    assert len(at) + sender.unsent.dropped == 3
