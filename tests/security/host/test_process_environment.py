"""Keys and passwords are given only to the processes that use them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from workers.host.environment import select_needed
from workers.pipeline.runtime.cluster import build_environment

KEYS = ("WEIR_SECRET_KEY", "DATABASE_URL", "WEIR_WEBHOOK_SECRET", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def keys(monkeypatch):
    for name in KEYS:
        monkeypatch.setenv(name, "hunter2")


def test_only_what_a_process_needs_is_passed_on(keys):
    assert "hunter2" not in select_needed(os.environ).values()
    assert select_needed({"PATH": "a", "SPARK_MASTER": "b", "LC_ALL": "c", "REDIS_URL": "d", "X": "e"}) == {
        "PATH": "a",
        "SPARK_MASTER": "b",
        "LC_ALL": "c",
    }


def test_a_cluster_of_ours_knows_no_key(keys, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_SPARK_SECRET", "s" * 32)
    assert "hunter2" not in build_environment(tmp_path).values()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sparks_java_and_its_python_workers_know_no_key_and_reach_no_file_by_text(keys, tmp_path):
    from pyspark.errors import AnalysisException, PySparkException

    from workers.pipeline.runtime.session import start_session

    spark = start_session("environment", "local[1]", tmp_path)
    try:
        assert os.environ["WEIR_SECRET_KEY"] == "hunter2"  # this process keeps its own
        java = dict(spark._jvm.System.getenv())
        (python,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
        for name in KEYS:
            assert name not in java
            assert name not in python
        for text in (
            "select reflect('java.lang.System', 'getenv', 'PATH')",
            "select java_method('java.lang.System', 'getenv', 'PATH')",
            "select try_reflect('java.lang.System', 'getenv', 'PATH')",
            "select * from text.`/etc/passwd`",
            "select * from binaryFile.`/etc/passwd`",
        ):
            with pytest.raises((AnalysisException, PySparkException)):
                spark.sql(text).collect()
    finally:
        spark.stop()


def test_the_pipeline_goes_on_without_the_keys_it_was_started_with(keys, tmp_path):
    """Also in /proc, where all that it starts could read them. It waits for a declaration meanwhile."""
    os.mkfifo(tmp_path / "declaration.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.pipeline.runtime.application", "--application", tmp_path / "declaration.yaml"],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    try:
        listed = Path(f"/proc/{process.pid}/environ")
        until(lambda: b"REDIS_URL" in listed.read_bytes() and b"hunter2" not in listed.read_bytes(), 120)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
