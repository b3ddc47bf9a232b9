"""Spark's classes are kept for quick starts, and a start does without them where they are not."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from workers.host.spark import archive_options, get_class_archive_path


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Where packages are installed, without an archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my packages"))
    return tmp_path / "my packages"


def a_java(home: Path, version: str) -> str:
    home.mkdir(exist_ok=True)
    (home / "release").write_text(version)
    return str(home)


def test_java_reads_the_archive_where_there_is_one_for_it(installed, tmp_path):
    java = a_java(tmp_path / "java", "17.0.1")
    assert archive_options(java) == ()
    file = get_class_archive_path(java)
    assert file.is_relative_to(installed)
    file.parent.mkdir(parents=True)
    file.touch()
    # Spark parts its options at blanks, as a shell does.
    assert f"-XX:SharedArchiveFile={file}" in shlex.split(" ".join(archive_options(java)))
    # Another Java under the same path could not read it.
    assert archive_options(a_java(tmp_path / "java", "17.0.2")) == ()


# In a process of its own: one has one Java, as long as it lives.
KEEP = """
import sys
sys.prefix = sys.argv[1]
from workers.pipeline.runtime.class_archive import make_archive
print(make_archive())
"""
USE = """
import sys
from pathlib import Path
sys.prefix = sys.argv[1]
from workers.pipeline.runtime.session import start_session
spark = start_session("kept", "local[1]", Path(sys.argv[1], "session"))
print(spark.range(3).count(), Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text())
spark.stop()
"""


def said(program: str, prefix: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program, prefix], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_reads_the_classes_that_were_kept_where_they_were_written_for(tmp_path):
    file = Path(said(KEEP, tmp_path).split()[-1])
    assert file.stat().st_size > 50 * 2**20
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    used = said(USE, tmp_path)
    assert used.startswith("3 ")
    begins = [int(line.partition("-")[0], 16) for line in used.splitlines() if str(file) in line]
    # Far below what the kernel chooses: its pages are those of the file, and no copies that Java changed.
    assert begins and max(begins) < 2**40
