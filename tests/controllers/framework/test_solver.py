"""The solver's prints never reach standard output, where a command's one JSON document goes."""

import ctypes
import json
import os
import subprocess
import sys
import threading

from controllers.framework.solver import redirect_standard_output

C = ctypes.CDLL(None)


def test_what_c_code_prints_goes_to_standard_error_and_standard_output_comes_back(capfd):
    with redirect_standard_output():
        C.puts(b"transformNewIntegerFeasibleSolution")
    os.write(1, b"document\n")
    out, err = capfd.readouterr()
    assert out == "document\n"
    assert "transformNewIntegerFeasibleSolution" in err


def test_two_threads_at_once_leave_standard_output_where_it_was(capfd):
    def chatter():
        for _ in range(50):
            with redirect_standard_output():
                C.puts(b"chatter")

    threads = [threading.Thread(target=chatter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(1, b"document\n")
    out, err = capfd.readouterr()
    assert (out, err.count("chatter")) == ("document\n", 100)


def test_a_buffered_print_into_a_pipe_does_not_arrive_late():
    program = (
        "import ctypes, json\n"
        "from controllers.framework.solver import redirect_standard_output\n"
        "with redirect_standard_output():\n"
        "    ctypes.CDLL(None).puts(b'chatter')\n"
        "print(json.dumps({'law': 'rebalancing'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == {"law": "rebalancing"}
    assert done.stderr == "chatter\n"
