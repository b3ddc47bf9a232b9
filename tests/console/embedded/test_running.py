"""The commands of manage.py find the plant that ./run has started from this checkout."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from common import environment as variables
from common.errors import BadInput
from console import release
from console.embedded import running

NAMED = (variables.DATA, variables.REDIS_URL, variables.DATABASE_URL)


@pytest.fixture
def plants(tmp_path, monkeypatch):
    """Folders of plants, in a checkout of their own whose environment names none."""
    for variable in NAMED:
        monkeypatch.setenv(variable.name, "")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    folders = [tmp_path / ".weir", tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir(mode=0o700)
    return folders


def test_the_single_running_plant_is_used_as_long_as_it_runs(plants):
    with running.register(plants[1]):
        assert running.choose_plant() == release.get_data_folder() == plants[1]
    variables.PROCESS[variables.DATA.name] = ""
    assert running.choose_plant() is None and release.get_data_folder() == plants[0]


def test_a_plant_in_the_default_folder_needs_no_word(plants):
    with running.register(plants[0]):
        assert running.choose_plant() is None


@pytest.mark.parametrize("variable", NAMED)
def test_a_plant_that_the_environment_names_is_used_whatever_runs(variable, plants, monkeypatch):
    monkeypatch.setenv(variable.name, "redis://elsewhere")
    with running.register(plants[1]), running.register(plants[2]):
        assert running.choose_plant() is None


def test_several_running_plants_are_named_with_the_option_that_chooses_one(plants):
    with ExitStack() as stack:
        for folder in plants:
            stack.enter_context(running.register(folder))
        with pytest.raises(BadInput, match="3 plants are running") as caught:
            running.choose_plant()
    assert all(str(folder) in caught.value.message for folder in plants)
    assert f"WEIR_DATA={plants[0]} .venv/bin/python manage.py" in caught.value.message


def test_a_plant_whose_folder_was_deleted_is_forgotten_at_the_next_start(plants):
    with running.register(plants[1]):
        pass
    plants[1].rmdir()
    with running.register(plants[2]):
        assert len(list((plants[0] / "running").iterdir())) == 1


def test_a_checkout_that_can_not_be_written_to_keeps_no_plant_from_starting(plants):
    (plants[0] / "running").write_text("")
    with running.register(plants[1]):
        assert running.list_running_plants() == []


@pytest.mark.parametrize("words", [["publish", "alert", "-"], ["token", "shop", "--role", "producer", "--days", "1"]])
def test_a_command_without_a_plant_names_the_folder_and_the_setting(words, tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "WEIR_DATA": str(tmp_path / "data"), "REDIS_URL": "redis://127.0.0.1:1/0"}
    command = [sys.executable, str(release.ROOT / "manage.py"), *words]
    done = subprocess.run(command, env=environment, input="", capture_output=True, text=True)
    assert done.returncode == 1
    assert str(tmp_path / "data") in done.stderr and "set WEIR_DATA" in done.stderr
