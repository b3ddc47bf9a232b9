"""Where a cluster's executors find a driver."""

import socket

import pytest

from workers.host.spark import build_driver_settings


def host_of(master: str) -> str:
    return build_driver_settings(master)["spark.driver.host"]


def test_a_driver_without_a_cluster_is_found_by_nobody_else():
    found = build_driver_settings("local[2]")
    assert set(found.values()) == {"127.0.0.1"}


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://127.0.0.1:7077,10.255.255.1:7077"])
def test_a_driver_is_found_by_its_address_on_the_way_to_the_master_and_by_no_name(master):
    """A name may stand for a container that was there before."""
    assert host_of(master) == "127.0.0.1"


def test_what_the_operator_says_counts(monkeypatch):
    monkeypatch.setenv("SPARK_DRIVER_HOST", "driver.example.org")
    assert host_of("spark://127.0.0.1:7077") == "driver.example.org"


@pytest.mark.parametrize("master", ["spark://no-such-host.invalid:7077", "spark://127.0.0.1:99999", "yarn"])
def test_where_no_way_to_the_master_is_known_the_host_has_its_name(master):
    assert host_of(master) == socket.gethostname()
