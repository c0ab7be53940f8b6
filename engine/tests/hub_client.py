"""What the client huggingface_hub makes of the hub of the tests: it is right where this client takes it.

HF_ENDPOINT names the hub, which has u/model (two pages of files), datasets/u/data, spaces/u/space, u/closed (private) and u/gated.
"""

import os
import sys

from huggingface_hub import HfApi, HfFileSystem, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

folder, sha = sys.argv[1:]
options = {"cache_dir": folder}


def raises(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


large = hf_hub_download("u/model", "dir/large.bin", **options)
assert os.path.getsize(large) == 100_001
with open(hf_hub_download("u/model", "config.json", **options)) as config:
    assert config.read() == "{}"
assert f"/{sha}/" in large

files = HfFileSystem()
names = {entry["name"]: entry for entry in files.ls("u/model")}
assert sorted(names) == ["u/model/config.json", "u/model/dir"] + [f"u/model/file-{n}" for n in range(5)], sorted(names)
assert names["u/model/dir"]["type"] == "directory" and names["u/model/config.json"]["size"] == 2
entry = files.info("u/model/dir/large.bin")
assert entry["size"] == 100_001 and entry["lfs"]["sha256"], entry
assert len(files.find("u/model")) == 7
with files.open("u/model/dir/large.bin", "rb") as file:
    file.seek(99_990)
    assert len(file.read(100)) == 11
assert [entry["name"] for entry in files.ls("datasets/u/data@refs%2Fpr%2F1")] == ["datasets/u/data@refs%2Fpr%2F1/table.parquet"]
assert files.ls("spaces/u/space", detail=False) == ["spaces/u/space/app.py"]

whole = snapshot_download("u/model", **options)
assert sorted(os.listdir(whole)) == ["config.json", "dir"] + [f"file-{n}" for n in range(5)]
assert HfApi().model_info("u/renamed").sha == sha
assert os.path.getsize(hf_hub_download("u/renamed", "dir/large.bin", **options)) == 100_001
assert sorted(info.path for info in HfApi().get_paths_info("u/model", ["dir", "config.json", "none"])) == ["config.json", "dir"]

raises(RepositoryNotFoundError, lambda: hf_hub_download("u/none", "a", **options))
raises(RemoteEntryNotFoundError, lambda: hf_hub_download("u/model", "none", **options))
raises(RevisionNotFoundError, lambda: hf_hub_download("u/model", "dir/large.bin", revision="none", **options))
raises(RepositoryNotFoundError, lambda: hf_hub_download("u/closed", "a", **options))
raises(GatedRepoError, lambda: hf_hub_download("u/gated", "a", **options))
raises(GatedRepoError, lambda: hf_hub_download("u/gated", "a", token="hf_right", **options))
assert os.path.getsize(hf_hub_download("u/closed", "a", token="hf_right", **options)) == 3
assert HfApi(token="hf_right").model_info("u/closed").private
