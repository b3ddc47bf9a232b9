"""What separates the cells of a CSV file: spreadsheets write commas, semicolons or tabs."""

import csv
import re
from collections.abc import Collection

SEPARATORS = ",;\t|"
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def split_header_cells(line: str, separator: str) -> list[str]:
    """Return the names of a header line, without blanks around them. Raises csv.Error."""
    rows = list(csv.reader([line], delimiter=separator, strict=True))
    return [name.strip() for name in rows[0]] if rows else []


def detect_separator(line: str, known: Collection[str] = ()) -> str:
    """Return what separates the names of a header line: what gives the most known names, then the most names.

    `known`: names in lower case. A comma where nothing speaks for another one.
    """
    best, most = ",", (0, 1)
    for separator in SEPARATORS:
        try:
            names = split_header_cells(line, separator)
        except csv.Error:
            continue
        score = (sum(name.lower() in known for name in names), len(names))
        if score > most:
            best, most = separator, score
    return best


def describe_separator(line: str) -> str:
    """Return a sentence for a file that takes commas and has others; "" for one that has commas."""
    separator = detect_separator(line)
    if separator == ",":
        return ""
    return f"; its cells are separated by {NAMES[separator]}, but the file must use commas"


def convert_decimal_comma(cell: str) -> str:
    """Return a number with a decimal comma (1,5) as others write it (1.5); any other cell as it is."""
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell.strip()) else cell
