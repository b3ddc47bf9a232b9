"""Patterns of one key by Flink's MATCH_RECOGNIZE, on a cluster in this process: `FOLDER WITHIN_MS [QUERY]`.

    sequence  SEQ(A; B; C)
    between   SEQ(A; B) with a condition between the events: the value of B is more than ten times that of A

AFTER MATCH SKIP PAST LAST ROW, as it has no way to give an event to one match at most that also lets matches
overlap. Of several B it takes any, though M is reluctant: its answer names the first and last event alone. In
`between`, N therefore excludes each B that fits.
A file a partition, each in order; two subtasks. The first pass, over the first rows, compiles.
"""

import shutil
import sys
import time
from itertools import islice
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment
from timed import put_out, sequence_answer

FOLDER, WITHIN_MS = Path(sys.argv[1]), float(sys.argv[2])
WARM_ROWS = 20_000
QUERY = sys.argv[3] if len(sys.argv) > 3 else "sequence"
COLUMNS = "at_ms BIGINT, id BIGINT, `type` STRING, source STRING"
VALUE = {"sequence": "", "between": ", `value` DOUBLE"}
MATCH = {
    "sequence": """
INSERT INTO found SELECT a, b, c FROM events MATCH_RECOGNIZE (
  PARTITION BY source ORDER BY `at`
  MEASURES A.id AS a, B.id AS b, C.id AS c
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A N*? B M*? C) WITHIN INTERVAL '{seconds}' SECOND({digits}, 3)
  DEFINE A AS A.`type` = 'A', B AS B.`type` = 'B', C AS C.`type` = 'C'
)
""",
    "between": """
INSERT INTO found SELECT a, b, c FROM events MATCH_RECOGNIZE (
  PARTITION BY source ORDER BY `at`
  MEASURES A.id AS a, A.id AS b, B.id AS c
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A N* B) WITHIN INTERVAL '{seconds}' SECOND({digits}, 3)
  DEFINE A AS A.`type` = 'A', N AS N.`type` <> 'B' OR N.`value` <= 10 * A.`value`,
    B AS B.`type` = 'B' AND B.`value` > 10 * A.`value`
)
""",
}


def run(files: Path, into: Path) -> float:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "2")
    tables.execute_sql(
        f"CREATE TABLE events ({COLUMNS}{VALUE[QUERY]}, `at` AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR `at` AS `at`)"
        f" WITH ('connector' = 'filesystem', 'path' = 'file://{files}', 'format' = 'csv')"
    )
    tables.execute_sql(
        "CREATE TABLE found (a BIGINT, b BIGINT, c BIGINT)"
        f" WITH ('connector' = 'filesystem', 'path' = 'file://{into}', 'format' = 'csv')"
    )
    seconds = f"{WITHIN_MS / 1000:.3f}"
    began = time.perf_counter()
    tables.execute_sql(MATCH[QUERY].format(seconds=seconds, digits=len(seconds) - 4)).wait()
    return time.perf_counter() - began


def first_rows(folder: Path) -> Path:
    folder.mkdir()
    for file in (FOLDER / "csv").iterdir():
        with file.open() as lines:
            (folder / file.name).write_text("".join(islice(lines, WARM_ROWS)))
    return folder


def main() -> None:
    own = FOLDER / "flink"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    run(first_rows(own / "warm"), own / "warm_found")
    seconds = run(FOLDER / "csv", own / "found")
    files = (own / "found").rglob("*")
    lines = [line for file in files if file.is_file() for line in file.read_text().split()]
    put_out(seconds, sequence_answer(line.split(",")[::2] for line in lines))


main()
