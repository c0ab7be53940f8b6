"""The build backend of the wheel. It collects the licences of all crates that the module links, and then calls maturin.

`pip install ./python` calls `build_wheel`. Cargo says which crates are linked; each crate carries its licence in its source, which
cargo has downloaded. They are written to THIRD-PARTY-LICENSES.txt, which `license-files` of pyproject.toml puts into the wheel.
Run as a program, it writes the licences and prints what they contain. It never uses the network.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

try:
    import maturin
except ImportError:  # Run as a program.
    maturin = None

HERE = pathlib.Path(__file__).resolve().parent.parent
OUT = HERE / "THIRD-PARTY-LICENSES.txt"
NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def linked() -> list[dict]:
    """The packages that the module links: normal dependencies alone, without ours."""
    host = next(line.split()[1] for line in _run("rustc", "-vV").splitlines() if line.startswith("host:"))
    found = json.loads(_run("cargo", "metadata", "--format-version", "1", "--filter-platform", host))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == "foreread-python")
    seen, left = set(), [root]
    while left:
        at = left.pop()
        if at in seen:
            continue
        seen.add(at)
        for dependency in nodes[at]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    ours = set(found["workspace_members"])
    return sorted((packages[id] for id in seen - ours), key=lambda package: (package["name"], package["version"]))


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout


def texts(package: dict) -> list[str]:
    """The licence files of a package, and of C sources within it."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [path for depth in ("*", "*/*") for path in folder.glob(depth)]
    own = [path for path in files if path.is_file() and path.name.upper().startswith(NAMES) and path.suffix not in {".rs", ".py"}]
    return [path.read_text(errors="replace").strip() for path in sorted(own)]


def collect() -> str:
    """Each text once, with the crates that it is of."""
    by_text: dict[str, list[str]] = {}
    without = []
    packages = linked()
    for package in packages:
        name = f"{package['name']} {package['version']} ({package['license'] or 'see its file'})"
        found = texts(package)
        for text in found:
            by_text.setdefault(text, []).append(name)
        if not found:
            without.append(f"{name}  {package['repository'] or ''}")
    parts = ["foreread links these crates, and the standard library of Rust (MIT OR Apache-2.0). Each text has the crates that it is of above it."]
    if without:
        parts.append("Crates whose package has no file of its licence:\n" + "\n".join(without))
    for text, names in sorted(by_text.items(), key=lambda item: item[1]):
        parts.append("\n".join(names) + "\n\n" + text)
    line = "\n\n" + "-" * 80 + "\n\n"
    OUT.write_text(line.join(parts) + "\n")
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        if (HERE.parent / name).exists():
            shutil.copy(HERE.parent / name, HERE / name)
    return f"{len(packages)} crates, {len(by_text)} texts, {OUT.stat().st_size} bytes: {OUT}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    collect()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    collect()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    collect()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    collect()
    return maturin.build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings=None):
    return maturin.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    return maturin.get_requires_for_build_sdist(config_settings)


get_requires_for_build_editable = get_requires_for_build_wheel

if __name__ == "__main__":
    print(collect())
    sys.exit(0)
