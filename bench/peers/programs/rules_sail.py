"""The rules in Sail, a server of Spark's protocol, by Spark's client: one statement, its rows as Arrow."""

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
from rules_sql import statement
from timed import folder, put_out, quickest, rules_answer

PARTS = ", ".join(f"try_cast(parts[{place}] AS BIGINT) AS {name}" for place, name in enumerate("abcd"))
READ = f"SELECT *, {PARTS} FROM (SELECT *, split(address, '[.]') AS parts FROM events)"


def main() -> None:
    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    spark.read.parquet(str(folder() / "events.parquet")).createOrReplaceTempView("events")
    text = statement(
        READ,
        "size(parts)",
        lambda length: f"shiftright(number, {32 - length})",
        "(SELECT * FROM VALUES {values} AS t(bits, host_name, host_type)) {table}",
    )
    seconds, _ = quickest(lambda: spark.sql(text).toArrow())
    counted = f"SELECT host_type, count(*), sum(value) FROM ({text}) found GROUP BY host_type"
    put_out(seconds, rules_answer(spark.sql(counted).collect()))
    spark.stop()
    server.stop()


main()
