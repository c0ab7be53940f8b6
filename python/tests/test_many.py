"""`foreread.read_files`: many files in a known order."""

import itertools
import os
import signal
import threading

import foreread
import pytest

from conftest import wait_for


@pytest.fixture
def names(tmp_path):
    for n in range(50):
        (tmp_path / f"f{n:02}").write_bytes(bytes([n]) * (n * 1000))
    return [tmp_path / f"f{n:02}" for n in range(50)]


def test_files_come_in_the_order_of_their_names(names):
    order = names[::-3]
    assert list(foreread.read_files(order)) == [name.read_bytes() for name in order]
    assert list(foreread.read_files(order, concurrency=1)) == [name.read_bytes() for name in order]
    assert list(foreread.read_files([])) == []


def test_the_next_files_are_read_before_their_turn(server, data):
    """Eight requests reach the server, although none is answered; and no ninth."""
    server.go.clear()
    files = foreread.read_files([server.url] * 20, concurrency=8)
    got = []
    reader = threading.Thread(target=lambda: got.append(next(files)))
    reader.start()
    wait_for(lambda: len(server.requests) >= 8)
    assert len(server.requests) == 8
    server.go.set()
    reader.join()
    assert got == [data]
    files.close()


def test_names_may_be_endless_and_are_asked_for_as_needed(names):
    taken = []
    endless = (taken.append(name) or name for name in itertools.cycle(names))
    files = foreread.read_files(endless, concurrency=4)
    assert not taken, "nothing begins before the first file is asked for"
    assert next(files) == names[0].read_bytes()
    assert next(files) == names[1].read_bytes()
    assert len(taken) == 5
    files.close()


def test_an_error_may_come_in_place_of_the_bytes(names):
    order = [names[1], names[0].with_name("none"), names[2]]
    one, error, two = foreread.read_files(order, on_error="return")
    assert (one, two) == (names[1].read_bytes(), names[2].read_bytes())
    assert isinstance(error, FileNotFoundError) and error.filename.endswith("none")
    assert list(foreread.read_files(order, on_error="omit", concurrency=1)) == [one, two]
    with pytest.raises(ValueError, match="'raise', 'return' or 'omit'"):
        foreread.read_files(order, on_error="skip")


def test_an_error_is_raised_in_its_turn(names):
    files = foreread.read_files([names[1], names[0].with_name("none"), names[2]])
    assert next(files) == names[1].read_bytes()
    with pytest.raises(FileNotFoundError) as raised:
        next(files)
    assert raised.value.filename.endswith("none")
    assert list(files) == []


def test_bad_arguments_are_said_at_once(names):
    for bad in (0, -1, True, 2.5):
        with pytest.raises(ValueError, match="at least 1"):
            foreread.read_files(names, concurrency=bad)
    with pytest.raises(TypeError, match="list of names"):
        foreread.read_files(str(names[0]))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_generator_made_before_a_fork_reads_in_the_child(names):
    # One thread: a pool that the child shared would have as many as it may, and start none there.
    assert list(foreread.read_files(names[:3], concurrency=1)), "threads of the parent, of which the child has none"
    files = foreread.read_files(names, concurrency=1)
    pid = os.fork()
    if pid == 0:
        right = False
        signal.alarm(20)  # A read that waits for threads of the parent never ends.
        try:
            right = list(files) == [name.read_bytes() for name in names]
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
