"""The rules in Pathway: a table of all rows, each looked up by a function in Python, into a sink that drops
them; counted in a run of its own.
"""

import pathway as pw
import pyarrow.parquet as parquet
from timed import TEST_SUBNET, folder, networks, put_out, quickest, rules_answer

TABLES = {length: {bits: (name, kind) for bits, name, kind in rows} for length, rows in networks().items()}


def number_of(address: str | None) -> int | None:
    parts = (address or "").split(".")
    if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts):
        return None
    a, b, c, d = map(int, parts)
    return a << 24 | b << 16 | c << 8 | d


@pw.udf
def is_of_test(address: str | None) -> bool:
    number = number_of(address)
    return number is not None and number >> 8 == TEST_SUBNET


@pw.udf
def host_of(address: str | None) -> tuple[str | None, str | None]:
    """Of the longest prefix that has it."""
    number = number_of(address)
    if number is None:
        return None, None
    return next(rows[bits] for length, rows in TABLES.items() if (bits := number >> 32 - length) in rows)


def ruled(events: pw.Table) -> pw.Table:
    left = events.filter(~is_of_test(pw.this.address))
    joined = left.select(*pw.this.without("address"), host=host_of(pw.this.address))
    return joined.select(*pw.this.without("host"), host_name=pw.this.host.get(0), host_type=pw.this.host.get(1))


def main() -> None:
    columns = ["time", "type", "key", "source", "value", "address"]
    events = pw.debug.table_from_pandas(parquet.read_table(folder() / "events.parquet", columns=columns).to_pandas())

    def work() -> None:
        pw.io.null.write(ruled(events))
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)

    seconds, _ = quickest(work)
    groups = ruled(events).groupby(pw.this.host_type)
    counted = groups.reduce(pw.this.host_type, events=pw.reducers.count(), value=pw.reducers.sum(pw.this.value))
    put_out(seconds, rules_answer(pw.debug.table_to_pandas(counted).itertuples(index=False)))


main()
