"""The rules in DuckDB: one SQL statement over the Parquet file, its rows as Arrow."""

import duckdb
from rules_sql import statement
from timed import folder, put_out, quickest, rules_answer

PART = "TRY_CAST(split_part(address, '.', {}) AS BIGINT) AS {}"
READ = f"SELECT *, {', '.join(PART.format(place, name) for place, name in enumerate('abcd', 1))} FROM events"


def main() -> None:
    database = duckdb.connect()
    database.execute(f"CREATE VIEW events AS SELECT * FROM '{folder() / 'events.parquet'}'")
    text = statement(
        READ,
        "len(string_split(address, '.'))",
        lambda length: f"number >> {32 - length}",
        "(VALUES {values}) AS {table}(bits, host_name, host_type)",
    )
    seconds, _ = quickest(lambda: database.sql(text).to_arrow_table())
    counted = f"SELECT host_type, count(*), sum(value) FROM ({text}) GROUP BY host_type"
    put_out(seconds, rules_answer(database.sql(counted).fetchall()))


main()
