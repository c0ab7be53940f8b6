"""What the tests share: a file with known bytes, an HTTP server of one object that answers late or not at all, and emulators of stores."""

import gc
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import foreread
import pytest

SIZE = 3 * 1024 * 1024 + 12345


def pattern(start, end):
    """The bytes of the test objects: each eight say where they are."""
    first = start // 8
    text = b"".join(n.to_bytes(8, "little") for n in range(first, end // 8 + 1))
    return text[start - first * 8 : end - first * 8]


@pytest.fixture(scope="session")
def data():
    return pattern(0, SIZE)


def wait_for(condition, what="it did not happen", seconds=20):
    """Until a condition holds; far longer than it takes on a machine that is busy."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.005)


def open_files():
    """Files that are open in this process, of all engines."""
    return sum(one["open_files"] for one in foreread.stats())


@pytest.fixture(autouse=True, scope="module")
def no_file_is_left_open():
    """What a test forgets is closed at the latest when Python collects it, so that the tests of a module depend on no other's."""
    yield
    wait_for(lambda: gc.collect() is not None and open_files() == 0, "files are left open")


@pytest.fixture
def path(tmp_path, data):
    path = tmp_path / "data.bin"
    path.write_bytes(data)
    return path


class Server(http.server.ThreadingHTTPServer):
    """One object at any path. `delay` seconds come before each answer; while `go` is not set none comes."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, data):
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.delay, self.go, self.requests = data, 0.0, threading.Event(), []
        self.go.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data.bin"

    def handle_error(self, request, client_address):
        """A client may leave at any time."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        data = self.server.data
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1, len(data)) if asked and asked[2] else len(data)
        self.server.requests.append((start, end))
        time.sleep(self.server.delay)
        self.server.go.wait(20)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            self.wfile.write(data[start:end])


@pytest.fixture
def server(data):
    server = Server(data)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()


AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
EMULATORS = {
    "s3": "versitygw --port 127.0.0.1:PORT --quiet posix .",
    "gs": "fake-gcs-server -backend memory -scheme http -host 127.0.0.1 -port PORT -public-host 127.0.0.1:PORT -log-level error",
    "az": "azurite-blob --blobHost 127.0.0.1 --blobPort PORT --silent --inMemoryPersistence --skipApiVersionCheck --disableTelemetry",
}
"""Commands that serve HTTP; PORT is one that is free."""


def send(url, body, headers, method):
    request = urllib.request.Request(url, body, headers, method=method)
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).read()


def free_port():
    """A port that is free now; another process may take it before it is used."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(process, port):
    """Does a process, or one that it has started, listen on a port? An answer alone may be another program's."""
    listening = set()
    for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
        with open(table, encoding="ascii") as lines:
            fields = [line.split() for line in list(lines)[1:]]
        # Local address, state (0A: listens), inode.
        listening |= {f"socket:[{line[9]}]" for line in fields if line[3] == "0A" and int(line[1].rpartition(":")[2], 16) == port}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == process.pid:
                folder = f"/proc/{pid}/fd"
                if any(os.readlink(f"{folder}/{one}") in listening for one in os.listdir(folder)):
                    return True
        except OSError:
            # It has ended, or has closed the descriptor.
            continue
    return False


@pytest.fixture
def emulator(tmp_path):
    """Starts the emulator of a store, "s3", "gs" or "az", and returns its port. Those of S3 have `key` and the secret "secret"."""
    started = []

    def start(store, key="key", ports=free_port):
        words = EMULATORS[store].split()
        program = shutil.which(words[0])
        if not program:
            pytest.skip(f"needs {words[0]} (./setup installs it)")
        environment = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": "secret"}
        for _ in range(5):
            port = ports()
            command = [word.replace("PORT", str(port)) for word in words]
            folder = tmp_path / f"{store} {len(started)}"
            folder.mkdir()
            # A session of its processes, by which they are found.
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            started.append(process)
            wait_for(lambda: process.poll() is not None or listens(process, port), f"{words[0]} does not start", 60)
            # One that ends has found its port taken meanwhile: another one, then.
            if process.poll() is None:
                answers(port)
                return port
        raise AssertionError(f"{words[0]} ends when it starts")

    def answers(port):
        def asked():
            try:
                send(f"http://127.0.0.1:{port}/", None, {}, "GET")
            except urllib.error.HTTPError:
                return True
            except OSError:
                return False
            return True

        wait_for(asked, "it does not answer", 60)

    yield start
    for process in started:
        process.terminate()
        process.wait(20)
