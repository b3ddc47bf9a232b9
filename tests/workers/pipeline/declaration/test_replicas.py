"""Which process runs which replica, and what the processes of replicas follow."""

import pytest

from common.errors import BadInput
from workers.pipeline.declaration.declared import Declarations, DeclarationText, FollowedDeclarations
from workers.pipeline.declaration.replicas import MAIN, ProcessRole, list_replica_names
from workers.pipeline.runtime.application import Settings

NAMES = list_replica_names(3)


@pytest.mark.parametrize("separate", range(5))
def test_every_replica_runs_in_exactly_one_process(separate):
    processes = [ProcessRole.build_main(separate), *map(ProcessRole, list_replica_names(separate))]
    for name in NAMES:
        assert [role.runs(name) for role in processes].count(True) == 1
    assert [role.is_main for role in processes].count(True) == 1


def test_by_default_all_replicas_run_in_the_main_process():
    assert Settings.load({}).role == MAIN
    assert all(MAIN.runs(name) for name in NAMES)


def test_the_process_of_a_replica_has_its_own_session_and_folder(tmp_path):
    main = Settings.load({"WEIR_DATA": str(tmp_path), "WEIR_PIPELINE_REPLICA_PROCESSES": "2"})
    own = main.narrow_to_replica("iap2", 3)
    assert (own.master, own.role) == ("local[3]", ProcessRole("iap2"))
    assert own.folder != main.folder
    with pytest.raises(BadInput, match="must be iap1 to"):
        main.narrow_to_replica("r1", 1)


def test_the_process_of_a_replica_runs_the_version_that_the_main_process_has_accepted(control):
    main, replica = Declarations(control), FollowedDeclarations(control)
    main.want(DeclarationText("app", 2, "new"))
    assert replica.load_wanted() == {}
    main.note_at_work(DeclarationText("app", 1, "old"), "version 2 is rejected")
    assert replica.load_wanted() == {"app": DeclarationText("app", 1, "old")}
    replica.note_at_work(DeclarationText("app", 2, "new"))
    assert main.load_running()["app"].version == 1
