"""Thins a trace of foreread's own format (docs/trace-format.md): neutral names, and a limit of records.

How: the blocks are unpacked by zstd(1), items are walked one by one, and the records that stay are copied as they are, since
each is coded relative to the one before it. Only the items of files are written anew. Example: of

    file /tmp/x7/pdftotext/in-a/d.pdf    read 0 4096    file /usr/lib/x86_64-linux-gnu/libc.so.6    fault 0 65536

it writes `input-a/d.pdf` and `usr/lib/x86_64-linux-gnu/libc.so.6`. A file that is neither below a known folder nor of a
Debian package becomes `other/N` with its ending; the block device of the file system becomes `device`.
"""
import functools
import json
import os
import pathlib
import struct
import subprocess
import zlib

MAGIC = b"\x89FRT\r\n\x1a\x01"
READ, FAULT = 1, 3
HAS_SIZE, SAME_READER, SAME_LENGTH, FOLLOWS, NEW_SHAPE = 0x10, 0x10, 0x20, 0x40, 0x80
START, END, RETURNED, FLAGS, AFTER = 1, 2, 4, 8, 16
AHEAD = 1
# Files that no package has and every Debian machine has.
MADE_EVERYWHERE = {"/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt", "/var/lib/dpkg/status",
                   "/var/lib/dpkg/triggers/File", "/var/cache/apt/pkgcache.bin", "/var/cache/apt/srcpkgcache.bin", "/var/lib/apt/extended_states",
                   "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", "/usr/lib/locale/locale-archive"}


class Cursor:
    """Reads numbers from an unpacked block."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    def difference(self):
        value = self.number()
        return value >> 1 if value % 2 == 0 else -(value >> 1) - 1

    def text(self, length):
        self.at += length
        return self.data[self.at - length:self.at]


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def inodes(folders):
    """Paths of the files below folders, by the names that foreread gives to inodes."""
    paths, folders = {}, list(folders)
    while folders:
        try:
            folder = folders.pop()
            device, entries = os.stat(folder).st_dev, list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                paths[f"inode {entry.inode()} of {os.major(device)}:{os.minor(device)}"] = entry.path
    return paths


class Packaged:
    """Files of Debian packages: their names are the same on every machine."""

    def __init__(self):
        self.paths = set(MADE_EVERYWHERE)
        for listed in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
            for path in listed.read_text().splitlines():
                # /lib is /usr/lib, and what is read has the latter name.
                self.paths.add("/usr" + path if path.startswith(("/lib", "/bin/", "/sbin/")) else path)

    @functools.cache
    def inodes(self):
        return inodes(["/usr", "/etc", "/var/lib", "/var/cache"])

    def has(self, path):
        folder, name = os.path.split(path)
        if folder.endswith("/__pycache__"):
            path = f"{os.path.dirname(folder)}/{name.split('.')[0]}.py"
        return path in self.paths


class Names:
    """Neutral names of files. `places` are pairs of a folder of this machine and the name that it gets."""

    def __init__(self, places, packaged):
        self.places = [(os.path.realpath(folder) + "/", name) for folder, name in places]
        self.packaged, self.given, self.inodes = packaged, {}, None

    def find(self, name):
        """The path and size of a file that foreread names by its inode: it looks at a limited number of folders."""
        if self.inodes is None:
            # The last place holds this script's files, which have got the inodes of files that are gone.
            self.inodes = inodes(folder for folder, _ in self.places[:-1]) | self.packaged.inodes()
        path = self.inodes.get(name)
        return (path, os.lstat(path).st_size) if path and os.path.lexists(path) else (name, None)

    def neutral(self, name):
        if name not in self.given:
            self.given[name] = self.new(name)
        return self.given[name]

    def new(self, name):
        for folder, own in self.places:
            if name.startswith(folder):
                return f"{own}/{name[len(folder):]}"
        if name.startswith("/dev/"):
            return "device"
        if self.packaged.has(name):
            return name[1:]
        ending = os.path.splitext(name)[1] if name.startswith("/") else ""
        return f"other/{len(self.given)}{ending if len(ending) < 8 else ''}"


class Thinned:
    """What stays of a trace: its blocks, and what the index says of it."""

    def __init__(self, path, names, limit):
        self.blocks, self.reads, self.faults, self.bytes_read, self.records, self.total = [], 0, 0, 0, 0, 0
        self.names, self.limit, self.read_files, self.files = names, limit, set(), 0
        # Names of this machine.
        self.found = []
        with open(path, "rb") as file:
            data = file.read()
        if data[:8] != MAGIC:
            raise ValueError(f"{path}: not a trace of version 1 of foreread's own format")
        length = struct.unpack_from("<I", data, 8)[0]
        self.header, at = json.loads(data[16:16 + length]), 16 + length
        while True:
            tag, stored, _, items, _ = struct.unpack_from("<4sIIII", data, at)
            body, at = data[at + 20:at + 20 + stored], at + 20 + stored
            if tag == b"done":
                self.end = json.loads(body)
                return
            self.block(zstd(body, "-d"), items)

    def block(self, data, items):
        """Walks the items of a block, and keeps those within the limit."""
        cursor, out, kept = Cursor(data), bytearray(), 0
        self.shape, self.file, self.length = 0, 0, 0
        for _ in range(items):
            start = cursor.at
            first = cursor.byte()
            if first & 15 == 0:
                name = cursor.text(cursor.number()).decode()
                known_size = cursor.number() if first & HAS_SIZE else None
                if name.startswith("inode "):
                    name, known_size = self.names.find(name)
                self.found.append(name)
                if self.total < self.limit:
                    name = self.names.neutral(name).encode()
                    out += number(0 if known_size is None else HAS_SIZE) + number(len(name)) + name
                    out += b"" if known_size is None else number(known_size)
                    self.files, kept = self.files + 1, kept + 1
                continue
            self.record(cursor, first)
            self.total += 1
            if self.total <= self.limit:
                out += data[start:cursor.at]
                self.records, kept = self.records + 1, kept + 1
        if kept:
            self.blocks.append((bytes(out), kept))

    def record(self, cursor, first):
        if first & NEW_SHAPE:
            self.shape = cursor.byte()
        if not first & SAME_READER:
            self.file += cursor.difference()
            cursor.difference(), cursor.difference()
        if not first & FOLLOWS:
            cursor.difference()
        if not first & SAME_LENGTH:
            self.length = cursor.number()
        if self.shape & START:
            cursor.number()
        if self.shape & END:
            cursor.number()
        came = self.length + (cursor.difference() if self.shape & RETURNED else 0)
        flags = cursor.number() if self.shape & FLAGS else 0
        for _ in range(cursor.number() if self.shape & AFTER else 0):
            cursor.number(), cursor.number()
        if self.total < self.limit and not flags & AHEAD and first & 15 in (READ, FAULT):
            self.read_files.add(self.file)
            if first & 15 == READ:
                self.reads, self.bytes_read = self.reads + 1, self.bytes_read + came
            else:
                self.faults += 1

    def write(self, path):
        nameless = sum(name.startswith("inode ") for name in self.found)
        notes = self.header["notes"] = [note for note in self.header["notes"] if "have no name" not in note]
        if nameless:
            notes.append(f"{nameless} files have no name: deleted")
        if self.total > self.limit:
            notes.append(f"cut: the first {self.limit} of {self.total} records")
        head = json.dumps(self.header, separators=(",", ":")).encode()
        with open(path, "wb") as file:
            file.write(MAGIC + struct.pack("<II", len(head), zlib.crc32(head)) + head)
            for data, items in self.blocks:
                file.write(block(b"blok", zstd(data, "-19"), len(data), items))
            end = {"files": self.files, "records": self.records, "left_out": self.end["left_out"]}
            end = json.dumps(end, separators=(",", ":")).encode()
            file.write(block(b"done", end, len(end), 0))


def block(tag, body, plain, items):
    head = struct.pack("<4sIII", tag, len(body), plain, items)
    return head + struct.pack("<I", zlib.crc32(head + body)) + body


def zstd(data, option):
    return subprocess.run(["zstd", "-q", "-c", option], input=data, stdout=subprocess.PIPE, check=True).stdout

