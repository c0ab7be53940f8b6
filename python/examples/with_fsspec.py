"""fsspec: uses the cache type `foreread` for files of any filesystem, here over HTTP on this machine."""
import functools
import http.server
import os
import tempfile
import threading

import fsspec
import foreread.fsspec  # noqa: F401 (registers the cache type)

with tempfile.TemporaryDirectory() as folder:
    data = os.urandom(1 << 20)
    with open(os.path.join(folder, "data.bin"), "wb") as file:
        file.write(data)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/data.bin"
        # The protocol needs no import of foreread.fsspec, and works wherever a URL of fsspec does.
        with fsspec.open(f"foreread::{url}", "rb") as file:
            assert file.read() == data
        server.shutdown()
