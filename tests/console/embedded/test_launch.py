"""The launcher: what it refuses before it starts anything, and how it ends."""

import pytest

from console.embedded import launch


@pytest.mark.parametrize(
    ("nodes", "remedy"),
    [
        ("n1", "takes name=redis://host:port/0 pairs"),
        ("n1=redis://a:1/0 n1=redis://b:1/0", "give each node a name of its own"),
    ],
)
def test_a_bad_node_list_is_refused_in_one_line_before_anything_is_started(
    nodes, remedy, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("WEIR_NODES", nodes)
    assert launch.main(["--data", str(tmp_path / "data")]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "WEIR_NODES: " in said.err and remedy in said.err
    assert said.out == "" and not (tmp_path / "data").exists()
