"""The command `foreread`, as the wheel carries it."""

import importlib.metadata
import json
import signal
import subprocess
import sys

import foreread
import pytest


def run(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "foreread", *arguments], capture_output=True, text=True, timeout=60, check=False, **more
    )


def test_it_is_the_command():
    assert run("-V").stdout == f"foreread {foreread.__version__}\n"
    shown = run("-h")
    assert shown.returncode == 0 and "foreread compare" in shown.stdout
    assert "mount" in shown.stdout and "serve" in shown.stdout


def test_its_exit_codes_and_errors_are_those_of_the_binary():
    wrong = run("compere")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("foreread: ") and wrong.stderr.count("\n") == 1 and "compare" in wrong.stderr
    # The parser's complaint names the command that was asked for.
    assert "'foreread compare -h'" in run("compare", "--nothing").stderr


def test_it_measures():
    asked = ["compare", "boot-virtio", "--on", "model:object-near", "--policy", "none,linux-6.18", "--runs", "2", "--json", "-"]
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {"none", "linux-6.18"} <= {row["policy"] for row in rows}


def test_a_command_that_starts_itself_finds_itself(tmp_path):
    """The guard of a tracing instance and the recording of `tune` are children, in which the command runs again."""
    again = f"import sys; from foreread import _native as n; sys.exit(n.command(['foreread', 'tune', '--', 'true'], [{sys.executable!r}, '-c', 'print(9)'], n.__file__))"
    done = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert "9" in done.stdout, "what it starts is what it was given"


def test_a_folder_is_looked_at_by_a_process_of_its_own(tmp_path):
    looked = run("health", str(tmp_path))
    assert (looked.returncode, looked.stdout) == (1, f"{tmp_path}: not a foreread mount\n"), looked.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number, path):
    socket = path.with_suffix(".sock")
    asked = [sys.executable, "-m", "foreread", "serve", str(path), "--unix", str(socket)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        # Its address, once it listens.
        assert str(socket).encode() in server.stdout.readline()
        server.send_signal(number)
        server.communicate(timeout=30)
        assert server.returncode == 0


def test_an_installed_wheel_has_its_command_and_its_licences():
    try:
        installed = importlib.metadata.distribution("foreread")
    except importlib.metadata.PackageNotFoundError:
        installed = None
    if installed is None or installed.version == "0":
        pytest.skip("needs a wheel (./test-long wheel makes one)")
    assert any(entry.name == "foreread" and entry.group == "console_scripts" for entry in installed.entry_points)
    names = {file.name for file in installed.files}
    assert {"THIRD-PARTY-LICENSES.txt", "LICENSE-MIT", "LICENSE-APACHE"} <= names
