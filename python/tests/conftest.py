"""What the tests share: a file with known bytes, and an HTTP server of one object that answers late or not at all."""

import gc
import http.server
import re
import threading
import time

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
