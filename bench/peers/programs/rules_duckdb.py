"""The rules in DuckDB: one SQL statement over the Parquet file, its rows as Arrow."""

import duckdb
from timed import folder, networks, put_out, quickest, rules_answer

PART = "TRY_CAST(split_part(address, '.', {}) AS BIGINT)"
READ = f"""
SELECT *, CASE WHEN len(string_split(address, '.')) = 4
  AND a BETWEEN 0 AND 255 AND b BETWEEN 0 AND 255 AND c BETWEEN 0 AND 255 AND d BETWEEN 0 AND 255
  THEN a * 16777216 + b * 65536 + c * 256 + d END AS number
FROM (SELECT *, {", ".join(f"{PART.format(n)} AS {name}" for n, name in enumerate("abcd", 1))} FROM events)
"""
TEST_SUBNET = (92 * 65536 + 126 * 256 + 10, 8)


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
            f"LEFT JOIN (VALUES {values}) AS {table}(bits, host_name, host_type)"
            f" ON number >> {32 - length} = {table}.bits"
        )
        names.append(f"{table}.host_name")
        kinds.append(f"{table}.host_type")
    bits, shift = TEST_SUBNET
    return (
        f"SELECT time, type, key, source, value, coalesce({', '.join(names)}) AS host_name,"
        f" coalesce({', '.join(kinds)}) AS host_type FROM ({READ}) {' '.join(joins)}"
        f" WHERE NOT coalesce(number >> {shift} = {bits}, FALSE)"
    )


def main() -> None:
    database = duckdb.connect()
    database.execute(f"CREATE VIEW events AS SELECT * FROM '{folder() / 'events.parquet'}'")
    text = statement()
    seconds, _ = quickest(lambda: database.sql(text).to_arrow_table())
    counted = f"SELECT host_type, count(*), sum(value) FROM ({text}) GROUP BY host_type"
    put_out(seconds, rules_answer(database.sql(counted).fetchall()))


main()
