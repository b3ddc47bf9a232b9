"""The rules in Sail, a server of Spark's protocol, by Spark's client: one statement, its rows as Arrow."""

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from timed import folder, networks, put_out, quickest, rules_answer

PARTS = ", ".join(f"try_cast(parts[{place}] AS BIGINT) AS {name}" for place, name in enumerate("abcd"))
READ = f"""
SELECT *, CASE WHEN size(parts) = 4
  AND a BETWEEN 0 AND 255 AND b BETWEEN 0 AND 255 AND c BETWEEN 0 AND 255 AND d BETWEEN 0 AND 255
  THEN a * 16777216 + b * 65536 + c * 256 + d END AS number
FROM (SELECT *, {PARTS} FROM (SELECT *, split(address, '[.]') AS parts FROM events))
"""


def statement() -> str:
    """Of each prefix length a join; the longest that finds a row counts."""
    joins, names, kinds = [], [], []
    for length, rows in networks().items():
        values = ", ".join(f"({bits}, '{name}', '{kind}')" for bits, name, kind in rows)
        if length == 0:
            names.append(f"CASE WHEN number IS NOT NULL THEN '{rows[0][1]}' END")
            kinds.append(f"CASE WHEN number IS NOT NULL THEN '{rows[0][2]}' END")
            continue
        table = f"hosts{length}"
        joins.append(
            f"LEFT JOIN (SELECT * FROM VALUES {values} AS t(bits, host_name, host_type)) {table}"
            f" ON shiftright(number, {32 - length}) = {table}.bits"
        )
        names.append(f"{table}.host_name")
        kinds.append(f"{table}.host_type")
    subnet = 92 * 65536 + 126 * 256 + 10
    return (
        f"SELECT time, type, key, source, value, coalesce({', '.join(names)}) AS host_name,"
        f" coalesce({', '.join(kinds)}) AS host_type FROM ({READ}) e {' '.join(joins)}"
        f" WHERE NOT coalesce(shiftright(number, 8) = {subnet}, FALSE)"
    )


def main() -> None:
    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    spark.read.parquet(str(folder() / "events.parquet")).createOrReplaceTempView("events")
    text = statement()
    seconds, _ = quickest(lambda: spark.sql(text).toArrow())
    rows = spark.sql(
        f"SELECT host_type, count(*), sum(value) FROM ({text}) found GROUP BY host_type"
    ).collect()
    put_out(seconds, rules_answer(rows))
    spark.stop()
    server.stop()


main()
