"""Files of stores by their names: a hub that the test program starts, and emulators of Google's and Azure's storage where they are installed."""

import base64
import email.utils
import hmac
import json
import os

import foreread
import foreread.fsspec
import pytest

from conftest import AZURE_ACCOUNT as ACCOUNT
from conftest import AZURE_KEY as KEY
from conftest import send

DATA = bytes(n % 251 for n in range(300_000))


def azure_put(port, name, body):
    """A container or a blob, signed as Azure's documents say (Authorize with Shared Key)."""
    path, _, query = name.partition("?")
    headers = {"x-ms-blob-type": "BlockBlob", "x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    own = "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
    resource = f"/{ACCOUNT}/{ACCOUNT}/{path}" + (f"\n{query.replace('=', ':')}" if query else "")
    text = f"PUT\n\n\n{len(body) or ''}\n\napplication/octet-stream\n\n\n\n\n\n\n{own}{resource}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Type": "application/octet-stream"}
    send(f"http://127.0.0.1:{port}/{ACCOUNT}/{name}", body, headers, "PUT")


def is_read(name):
    with foreread.open(name) as file:
        assert file.size == len(DATA)
        assert file.read() == DATA
        file.seek(200_000)
        assert file.read(1000) == DATA[200_000:201_000]


def test_a_blob_of_azure(emulator, monkeypatch):
    port = emulator("az")
    azure_put(port, "bucket?restype=container", b"")
    azure_put(port, "bucket/dir/a%20b", DATA)
    for name, value in [("ACCOUNT", ACCOUNT), ("KEY", KEY), ("ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")]:
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    is_read("az://bucket/dir/a b")
    is_read(f"abfss://bucket@{ACCOUNT}.dfs.core.windows.net/dir/a b")


def test_an_object_of_google(emulator, monkeypatch):
    port = emulator("gs")
    url = f"http://127.0.0.1:{port}"
    send(f"{url}/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode(), {"Content-Type": "application/json"}, "POST")
    send(f"{url}/upload/storage/v1/b/bucket/o?uploadType=media&name=dir%2Fa%20b", DATA, {"Content-Type": "x/y"}, "POST")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    is_read("gs://bucket/dir/a b")


hub = pytest.mark.skipif("FOREREAD_TEST_HUB" not in os.environ, reason="needs the hub of the test program (cargo test --test python)")


@hub
def test_a_file_of_a_hub(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", os.environ["FOREREAD_TEST_HUB"])
    is_read("hf://u/r/dir/a b")


@hub
def test_the_filesystem_of_the_hub_reads_by_the_cache():
    hub_client = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    fs = hub_client.HfFileSystem(endpoint=os.environ["FOREREAD_TEST_HUB"], token=False, skip_instance_cache=True)
    with fs.open("u/r/dir/a b", cache_type="foreread", block_size=50_000) as file:
        assert file.read() == DATA
        file.seek(200_000)
        assert file.read(1000) == DATA[200_000:201_000]
