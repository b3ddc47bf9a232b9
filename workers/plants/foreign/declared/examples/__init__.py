"""A library of declared plants to begin from."""

from pathlib import Path

# Name → text.
EXAMPLES = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.yaml"))
}
