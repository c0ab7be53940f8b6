"""Files of stores by their names: a hub that the test program starts, and emulators of Google's and Azure's storage where they are installed."""

import base64
import email.utils
import errno
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


def test_two_accounts_in_one_process(emulator, tmp_path, monkeypatch):
    """The second one's server does not know the first one's key, and is not the environment's."""
    accounts = []
    for n, key in enumerate(["one", "two"]):
        port = emulator("s3", key)
        folder = tmp_path / f"s3 {n}" / "bucket"
        folder.mkdir()
        (folder / "key").write_bytes(DATA[n:])
        accounts.append({"key": key, "secret": "secret", "endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"})
    one, two = accounts
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    profiles = tmp_path / "credentials"
    profiles.write_text("[second]\naws_access_key_id = two\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    for name, value in [("ACCESS_KEY_ID", "one"), ("SECRET_ACCESS_KEY", "secret"), ("ENDPOINT_URL", one["endpoint"]), ("REGION", "us-east-1")]:
        monkeypatch.setenv(f"AWS_{name}", value)
    with foreread.open("s3://bucket/key") as first, foreread.open("s3://bucket/key", **two) as second:
        assert (first.read(1000), second.read(1000)) == (DATA[:1000], DATA[1:1001])
        assert (first.read(), second.read()) == (DATA[1000:], DATA[1001:])
    with foreread.open("s3://bucket/key", profile="second", endpoint=two["endpoint"]) as second:
        assert second.read() == DATA[1:]
    assert list(foreread.read_files(["s3://bucket/key"] * 2, **two)) == [DATA[1:]] * 2
    # versitygw answers 404 for a key that it does not know.
    with pytest.raises(PermissionError, match="the arguments key and secret") as raised:
        foreread.open("s3://bucket/key", **{**two, "key": "one"})
    assert "check the arguments key, secret and token" in str(raised.value) and "AWS_" not in str(raised.value)
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch.*the arguments key and secret"):
        foreread.open("s3://bucket/key", **{**two, "secret": "wrong"})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(PermissionError, match="the variable AWS_ACCESS_KEY_ID"):
        foreread.open("s3://bucket/key")
    # The words of s3fs.
    url = two.pop("endpoint")
    with foreread.open("s3://bucket/key", **two, endpoint_url=url, anon=False, stores={"total": 20, "retries": 1}) as second:
        assert second.read() == DATA[1:]
    with pytest.raises(PermissionError, match="no credentials|unsigned|403"):
        foreread.open("s3://bucket/key", endpoint_url=url, region="us-east-1", anon=True)
    foreread.configure(stores={"anon": True, "endpoint": url, "region": "us-east-1"})
    try:
        with pytest.raises(PermissionError):
            foreread.open("s3://bucket/key")
    finally:
        foreread.configure(stores={})


def test_an_account_is_whole_and_of_s3(path):
    for wrong in [{"key": "a"}, {"secret": "a"}, {"token": "a"}]:
        with pytest.raises(ValueError, match="belong together"):
            foreread.open("s3://bucket/key", **wrong)
    for wrong in [{"key": "", "secret": ""}, {"key": "a", "secret": ""}, {"profile": ""}]:
        with pytest.raises(ValueError, match="is empty"):
            foreread.open("s3://bucket/key", **wrong)
    with pytest.raises(ValueError, match="select two accounts"):
        foreread.open("s3://bucket/key", key="a", secret="b", profile="dev")
    with pytest.raises(ValueError, match="is only for s3://"):
        foreread.open(path, profile="dev")
    for wrong in [{"profile": 5}, {"account": "a"}, {"anon": "yes"}, {"endpoint": "http://h", "endpoint_url": "http://h"}]:
        with pytest.raises(TypeError):
            foreread.open("s3://bucket/key", **wrong)
    with pytest.raises(TypeError, match="'kee'; its arguments for a source are key, secret"):
        foreread.open("s3://bucket/key", kee="a")
    with pytest.raises(ValueError, match="without an account"):
        foreread.open("s3://bucket/key", anon=True, profile="dev")
    with pytest.raises(ValueError, match="stores is only for names of objects"):
        foreread.open(path, stores={"total": 5})


def test_a_wrong_setting_is_said_with_those_there_are():
    for wrong in [lambda stores: foreread.configure(stores=stores), lambda stores: foreread.open("s3://bucket/key", stores=stores)]:
        with pytest.raises(ValueError, match="unknown key `profle`; the keys are first-byte, .*profile, region"):
            wrong({"profle": "dev"})
    with pytest.raises(ValueError, match="'fast' is not a policy that can serve reads.* auto,"):
        foreread.open(__file__, policy="fast")
    with pytest.raises(ValueError, match="has no parameter 'mux'; it has max"):
        foreread.open(__file__, policy="linux-6.18:mux=1M")


def test_a_server_that_does_not_answer_is_given_up(server):
    server.go.clear()
    with pytest.raises(TimeoutError, match="no byte came within 1s"):
        foreread.open(server.url, stores={"first_byte": 1, "retries": 0})


@pytest.mark.parametrize("scheme", ["s3a", "ftp", "s3n"])
def test_an_unknown_scheme_is_said_with_those_there_are(scheme):
    with pytest.raises(OSError, match=f"the scheme {scheme}:// is unknown.*s3://BUCKET/KEY") as raised:
        foreread.open(f"{scheme}://bucket/key")
    assert not isinstance(raised.value, FileNotFoundError)
    assert ("write s3://;" in str(raised.value)) == scheme.startswith("s3")


def test_a_host_without_an_address():
    with pytest.raises(OSError, match="its host name cannot be resolved") as raised:
        foreread.open("http://no-such-host.invalid/x", stores={"retries": 0})
    assert not isinstance(raised.value, ConnectionError) and raised.value.errno == errno.EHOSTUNREACH


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
