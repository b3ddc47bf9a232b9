"""A library of declared plants to start from."""

from pathlib import Path

# name → text
EXAMPLES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.yaml"))}
