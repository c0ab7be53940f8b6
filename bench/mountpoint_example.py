"""mount-s3 without its package: the example `mount_from_config` of the crate mountpoint-s3-fs, for bench/remote-vs-peers.

    mountpoint_example.py EXAMPLES BUCKET DIR ENDPOINT

EXAMPLES is the folder of `cargo build --release --example mount_from_config --example create_manifest --features
manifest,event_log` in the crate's own folder (cmake and clang are needed). The example takes its names from a manifest that is made
before the mount, so it lists nothing, and shows the bucket at DIR/b. Part size (8 MiB) and throughput (10 Gbit/s) are mount-s3's defaults;
its memory is half of this machine's, because the example would otherwise use its minimum of 512 MiB.
"""
import json
import os
import subprocess
import sys
import tempfile

EXAMPLES, BUCKET, DIR, ENDPOINT = sys.argv[1:]
work = tempfile.mkdtemp()
manifest = os.path.join(work, "manifest.csv")
env = dict(os.environ, AWS_ENDPOINT_URL=ENDPOINT)
made = subprocess.run([os.path.join(EXAMPLES, "create_manifest"), "--region", "us-east-1", "--bucket", BUCKET, "--output-file", manifest],
                      env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
config = os.path.join(work, "config.json")
with open(config, "w", encoding="utf-8") as file:
    json.dump({
        "config_version": "0.0.1", "mountpoint": DIR, "metadata_store_dir": work, "event_log_dir": work, "region": "us-east-1",
        "endpoint_url": ENDPOINT, "loglevel": "off", "throughput_config": {"type": "Explicit", "throughput": 10.0},
        "memory_limit_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2,
        "channels": [{"directory_name": "b", "bucket_name": BUCKET, "manifest_path": manifest,
                      "manifest_checksum": made.rsplit(": ", 1)[1].strip()}],
    }, file)
os.execve(program := os.path.join(EXAMPLES, "mount_from_config"), [program, "--config", config], env)
