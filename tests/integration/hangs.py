"""A test that never ends and has started a process of its own session; for `test_as_an_ordinary_user`."""

import signal
import subprocess


def test_that_hangs() -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    signal.pause()
