"""The listener that docs/operate/a-declared-plant.md gives to paste, in a real Spark job."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.spark]
PAGE = Path(__file__).parents[5] / "docs" / "operate" / "a-declared-plant.md"
JOB = """
import shutil, sys, threading
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
path = folder + "/clean.json"
seen, enough = [], threading.Event()

class Kept(ProgressFile):
    def onQueryProgress(self, event):
        super().onQueryProgress(event)
        seen.append([event.progress.inputRowsPerSecond, event.progress.processedRowsPerSecond])
        if len(seen) >= 5 and not enough.is_set():
            shutil.copy(path, folder + "/kept.json")
            enough.set()

spark.streams.addListener(Kept(path))
rows = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
query = rows.writeStream.format("noop").trigger(processingTime="1 second").start()
assert enough.wait(90), query.exception()
query.stop()
for _ in range(100):
    if not os.path.exists(path):
        break
    threading.Event().wait(0.1)
print(json.dumps({"comes": seen[4][0], "can": seen[4][1], "left": os.path.exists(path)}))
spark.stop()
"""


def test_a_job_with_the_listener_is_seen_as_it_is(tmp_path, monkeypatch):
    (listener,) = re.findall(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    script = tmp_path / "job.py"
    script.write_text(listener + JOB)
    ran = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["left"] is False
    assert said["comes"] > 0 and said["can"] > 0  # 200 per second, or fewer if batches start late
    (tmp_path / "kept.json").rename(tmp_path / "clean.json")
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    text = EXAMPLES["spark-streaming"].partition("operators:")[0].replace("/var/lib/spark", str(tmp_path))
    sensors = "\n".join(line for line in text.splitlines() if "http" not in line)  # no master is asked
    plant = DeclaredPlant(parse_declaration(sensors), {"WEIR_SECRET_KUBERNETES": "x"})
    plant.get_topology()
    readings = plant.readings
    plant.close()
    assert readings["rows"].value == pytest.approx(said["comes"])
    assert readings["clean_busy"].value == pytest.approx(min(1.0, said["comes"] / said["can"]))
    assert readings["clean_batch"].value > 0
    assert "No such file" in str(readings["score_rows"].error)
