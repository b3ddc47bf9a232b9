"""The rules as one SQL statement, in the words of who reads it."""

from collections.abc import Callable

from timed import TEST_SUBNET, networks

# Of four parts its number; null where one of them is none.
NUMBER = """
CASE WHEN {count} = 4
  AND a BETWEEN 0 AND 255 AND b BETWEEN 0 AND 255 AND c BETWEEN 0 AND 255 AND d BETWEEN 0 AND 255
  THEN a * 16777216 + b * 65536 + c * 256 + d END AS number
"""


def statement(read: str, count: str, first_bits: Callable[[int], str], rows: str) -> str:
    """Of each prefix length a join; the longest that finds a row counts.

    read: events with the parts of their address, a to d; count: how many parts there are; first_bits: so many
    of `number`; rows: a table of {values} that is named {table}, with columns bits, host_name, host_type.
    """
    joins, names, kinds = [], [], []
    for length, hosts in networks().items():
        if length == 0:
            names.append(f"CASE WHEN number IS NOT NULL THEN '{hosts[0][1]}' END")
            kinds.append(f"CASE WHEN number IS NOT NULL THEN '{hosts[0][2]}' END")
            continue
        table = f"hosts{length}"
        values = ", ".join(f"({bits}, '{name}', '{kind}')" for bits, name, kind in hosts)
        joins.append(f"LEFT JOIN {rows.format(values=values, table=table)} ON {first_bits(length)} = {table}.bits")
        names.append(f"{table}.host_name")
        kinds.append(f"{table}.host_type")
    return (
        f"SELECT time, type, key, source, value, coalesce({', '.join(names)}) AS host_name,"
        f" coalesce({', '.join(kinds)}) AS host_type"
        f" FROM (SELECT *, {NUMBER.format(count=count)} FROM ({read}) r) e {' '.join(joins)}"
        f" WHERE NOT coalesce({first_bits(24)} = {TEST_SUBNET}, FALSE)"
    )
