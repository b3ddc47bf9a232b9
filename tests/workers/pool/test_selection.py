"""The worker hosts that workers are sent to: with the required capabilities, and near the container if one has room."""

from collections import Counter

import pytest

from common.errors import BadInput
from workers.documents.hosts import ReportedHost, explain_missing_capabilities, list_missing_capabilities
from workers.pool.hosts import list_broker_keys
from workers.pool.selection import HostSelection, build_celery_queue

NOW = 1_000.0


def host(*capabilities: str, **values: object) -> ReportedHost:
    return ReportedHost(**{"role": "jobs", "slots": 2, "at": NOW, "capabilities": list(capabilities), **values})


def choose(hosts: dict[str, ReportedHost], *requirements: str, near: str = "", count: int = 1) -> Counter:
    selection = HostSelection(hosts, NOW)
    return Counter(selection.choose("jobs", requirements, near) for _ in range(count))


def test_workers_without_requirements_are_for_any_host_of_the_role():
    assert choose({"jobs@a": host("gpu"), "jobs@b": host()}, near="n1") == {"jobs": 1}
    assert choose({}) == {"jobs": 1}


def test_workers_are_sent_only_to_hosts_with_the_required_capabilities_in_proportion_to_their_slots():
    hosts = {"jobs@a": host("gpu", "zone-a"), "jobs@b": host(), "jobs@c": host("gpu", slots=4)}
    assert choose(hosts, "gpu", count=6) == {"jobs@a": 2, "jobs@c": 4}
    assert choose(hosts, "gpu", "zone-a", count=3) == {"jobs@a": 3}


def test_any_host_takes_the_work_if_all_hosts_meet_the_requirements():
    assert choose({"jobs@a": host("gpu"), "jobs@b": host("gpu")}, "gpu") == {"jobs": 1}


def test_a_host_near_the_container_is_preferred_while_it_has_a_free_slot():
    hosts = {"jobs@a": host("n1", reserved=1), "jobs@b": host("n2", slots=8)}
    assert choose(hosts, near="n1", count=3) == {"jobs@a": 1, "jobs": 2}
    assert choose(hosts, near="n3") == {"jobs": 1}


def test_a_near_host_without_the_required_capability_is_not_preferred():
    hosts = {"jobs@a": host("n1"), "jobs@b": host("gpu"), "jobs@c": host("gpu", "n1", slots=1)}
    assert choose(hosts, "gpu", near="n1", count=2) == {"jobs@c": 1, "jobs@b": 1}


@pytest.mark.parametrize("unavailable", [{"drained": True}, {"at": NOW - 31}, {"role": "spark"}])
def test_a_host_that_takes_no_work_of_the_role_does_not_meet_requirements(unavailable):
    with pytest.raises(BadInput) as refused:
        choose({"jobs@a": host("gpu", **unavailable), "jobs@b": host()}, "gpu")
    assert str(refused.value) == (
        "requirements: no worker host of role jobs has gpu."
        ' Start a worker host of role jobs with WEIR_CAPABILITIES="gpu", or remove the requirement.'
    )


def test_capabilities_that_no_single_host_has_are_missing_together():
    hosts = [host("gpu"), host("zone-a")]
    assert list_missing_capabilities(hosts, "jobs", ("gpu", "zone-b")) == ["zone-b"]
    missing = list_missing_capabilities(hosts, "jobs", ("gpu", "zone-a"))
    assert missing == ["gpu", "zone-a"]
    assert explain_missing_capabilities(missing, "jobs") == "no single worker host of role jobs has gpu and zone-a"
    assert list_missing_capabilities([], "jobs", ()) == []


def test_the_celery_queue_of_a_host_differs_from_that_of_its_role():
    assert build_celery_queue("jobs") == "jobs"
    queue = build_celery_queue("jobs@a").name
    keys = list_broker_keys("jobs@a")
    assert len(keys) == 10 and keys[0].endswith(queue) and keys[9] == f"{keys[0]}:9"
