"""Where the shared traces and reference answers lie: beside the checkout, if at all."""

from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
