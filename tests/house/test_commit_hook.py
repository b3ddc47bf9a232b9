"""The hook `bin/hooks/commit-msg` accepts imperative subjects of at most 72 characters, and names what is wrong."""

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[2] / "bin" / "hooks" / "commit-msg"


def run_hook(folder: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = folder / "message"
    file.write_text(message, encoding="utf-8")
    return subprocess.run([HOOK, file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "Revoke shared links when a user loses access",
        "Shed load by criterion",
        "Fix the age of a snapshot\n\nIt was counted twice.",
        "# a comment\nAdd a queue",
        "Merge branch 'queues'",
    ],
)
def test_an_imperative_subject_is_accepted(tmp_path, message):
    assert run_hook(tmp_path, message).returncode == 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "is empty"),
        ("Fix " + "a" * 69, "has 73 characters"),
        ("Fix the age of a snapshot.", "ends with a period"),
        ("Added a queue", "must be imperative"),
        ("Who loses access loses the links they shared", "must start with a verb"),
        ("fix the age", "must start with a capitalized verb"),
    ],
)
def test_any_other_subject_is_rejected_with_the_reason(tmp_path, message, reason):
    result = run_hook(tmp_path, message)
    assert result.returncode == 1
    assert reason in result.stderr
