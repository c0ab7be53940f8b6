"""Synthetic input for check/record-programs: each function writes one kind of data, the same for the same seed.

The recipes of rows.py call them from the shell as `gen KIND SEED ARGUMENTS...`; sizes may be written as 8M. Example:

    gen text 1 8M notes.txt        8 MiB of words, common ones often
    gen tree 2 600 sources         600 files of source code in nested folders

The data is as regular or irregular as real data where that changes what a program reads: words follow Zipf's law, sizes of
files are log-normal, genomic reads come from their reference. Nothing in it is from a real person, program or place.
"""
import array
import base64
import hashlib
import io
import itertools
import json
import math
import os
import random
import struct
import sys
import tarfile


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def vocabulary():
    """Some 4500 invented words, and how often each is used."""
    rng = random.Random(0)
    syllables = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "an", "er")]
    # Shorter ones would be keywords of C and Python.
    words = sorted({"".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(5000)} - {"from", "goto", "volatile"})
    rng.shuffle(words)
    return words, list(itertools.accumulate(1 / (rank + 2) for rank in range(len(words))))


WORDS, WEIGHTS = vocabulary()


def sentence(rng, n):
    return " ".join(rng.choices(WORDS, cum_weights=WEIGHTS, k=n))


def create(path):
    """A new file of ASCII text, and its folder."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return open(path, "w", encoding="ascii")


def write(path, data):
    with create(path) as file:
        file.buffer.write(data if isinstance(data, bytes) else data.encode())


def lines(path, wanted, line):
    """Lines made by `line()` until there are `wanted` bytes."""
    written = 0
    with create(path) as file:
        while written < wanted:
            written += file.write(line() + "\n")


# ---- text, tables, sources ----

def text(rng, wanted, path):
    lines(path, size(wanted), lambda: sentence(rng, rng.randint(4, 16)))


def noise(rng, wanted, path):
    write(path, rng.randbytes(size(wanted)))


def mixed(rng, wanted, path):
    """Blocks of 16 KiB: half text, a quarter zeros, a quarter noise."""
    with create(path) as file:
        for _ in range(size(wanted) >> 14):
            kind = rng.randrange(4)
            block = sentence(rng, 3600).encode() if kind < 2 else b"" if kind == 2 else rng.randbytes(1 << 14)
            file.buffer.write(block[:1 << 14].ljust(1 << 14, b"\0"))


def csv(rng, rows, path):
    rows = int(rows)
    with create(path) as file:
        file.write("id,day,shop,item,amount,price,note\n")
        for n in range(rows):
            shop = min(int(rng.expovariate(0.1)), 99)
            file.write(f"{n},{rng.randrange(365)},shop{shop},{WORDS[rng.randrange(400)]},{rng.randint(1, 20)},"
                       f"{rng.lognormvariate(3, 1):.2f},{sentence(rng, 4)}\n")


def jsonl(rng, rows, path):
    with create(path) as file:
        for n in range(int(rows)):
            entry = {"id": n, "user": WORDS[rng.randrange(300)], "score": round(rng.random(), 4),
                     "tags": rng.choices(WORDS[:50], k=3), "text": sentence(rng, 12), "nested": {"x": n % 17, "y": [n, n + 1]}}
            file.write(json.dumps(entry) + "\n")


def xml(rng, rows, path):
    with create(path) as file:
        file.write("<?xml version='1.0'?>\n<catalog>\n")
        for n in range(int(rows)):
            file.write(f"<book id='{n}' year='{rng.randint(1900, 2020)}'><title>{sentence(rng, 5)}</title>"
                       f"<author>{WORDS[rng.randrange(500)]}</author><text>{sentence(rng, 30)}</text></book>\n")
        file.write("</catalog>\n")


def code(rng, n, kind):
    """About `n` lines of C, Python or prose."""
    out = []
    for _ in range(max(n // 4, 1)):
        a, b = rng.choice(WORDS), rng.choice(WORDS)
        if kind in ("c", "h"):
            out.append(f"/* {sentence(rng, 8)} */\nstatic int {a}_{rng.randrange(10**6)}(int {b})\n{{\n\treturn {b} * {rng.randrange(99)};\n}}\n")
        elif kind == "py":
            out.append(f"def {a}_{rng.randrange(10**6)}({b}):\n    # {sentence(rng, 8)}\n    return {b} * {rng.randrange(99)}\n\n")
        else:
            out.append(sentence(rng, 40) + "\n\n")
    return "".join(out)


def tree(rng, files, folder):
    """Sources in nested folders; sizes are log-normal with a median of about 4 KB."""
    folders = [folder]
    for n in range(int(files)):
        if n % 12 == 0:
            folders.append(os.path.join(rng.choice(folders[-8:]), rng.choice(WORDS)))
        kind = rng.choice(["c", "h", "py", "md", "txt"])
        count = min(int(rng.lognormvariate(4.6, 1.1)), 6000)
        write(os.path.join(rng.choice(folders[-6:]), f"{rng.choice(WORDS)}_{n}.{kind}"), code(rng, count, kind))


def change(rng, folder):
    """Changes a tenth of the files below a folder: lines in the middle, and a new end."""
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) if "/." not in at for name in names)
    for path in rng.sample(paths, max(len(paths) // 10, 1)):
        with open(path, "rb") as file:
            data = file.read()
        middle = data.find(b"\n", len(data) // 2) + 1
        end = code(rng, 8, path.rsplit(".", 1)[-1]).encode()
        write(path, data[:middle] + end + data[middle:] + end)


def c_project(rng, files, folder):
    """C files that include headers of the system and of the project, a main.c, and a program of all of them."""
    files, headers = int(files), ["stdio.h", "stdlib.h", "string.h", "math.h", "time.h", "unistd.h", "sys/stat.h", "pthread.h", "signal.h", "errno.h"]
    for n in range(files):
        own = "".join(f'#include "part{m}.h"\n' for m in rng.sample(range(files), min(6, files)))
        system = "".join(f"#include <{h}>\n" for h in rng.sample(headers, 5))
        write(f"{folder}/part{n}.h", f"#ifndef P{n}\n#define P{n}\nstruct s{n} {{ int a[{n + 1}]; char *b; }};\nint part{n}(int x);\n#endif\n")
        write(f"{folder}/part{n}.c", f'{system}#include "part{n}.h"\n{own}{code(rng, rng.randint(40, 600), "c")}'
                                     f"int part{n}(int x) {{ struct s{n} s = {{ {{ x }}, 0 }}; return s.a[0] + {n}; }}\n")
    calls = "".join(f"    sum += part{n}(sum);\n" for n in range(files))
    includes = "".join(f'#include "part{n}.h"\n' for n in range(files))
    write(f"{folder}/main.c", f"{includes}int main(int argc, char **argv) {{\n    int sum = argc; (void)argv;\n{calls}    return sum & 1 ? 0 : 0;\n}}\n")


def java_project(rng, classes, folder):
    for n in range(int(classes)):
        body = "".join(f"  public int m{m}(int x) {{ return x * {rng.randrange(99)}; }}\n" for m in range(rng.randint(5, 60)))
        use = f"    java.util.Map<String, Integer> map = new java.util.TreeMap<>();\n    map.put(\"a\", new C{max(n - 1, 0)}().m0({n}));\n"
        write(f"{folder}/C{n}.java", f"import java.util.*;\nimport java.util.stream.*;\npublic class C{n} {{\n{body}"
                                     f"  public void go() {{\n{use}  }}\n}}\n")


# ---- logs, mail, packets ----

def weblog(rng, wanted, path):
    second = itertools.count(rng.randrange(1000))
    lines(path, size(wanted), lambda: (lambda s: f'10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(1, 255)} - - [{1 + s // 86400 % 28:02}/Mar/2026:'
          f'{s // 3600 % 24:02}:{s // 60 % 60:02}:{s % 60:02} +0000] "GET /{rng.choice(WORDS[:300])}/{rng.choice(WORDS[:900])}.html HTTP/1.1" '
          f'{rng.choice([200, 200, 200, 304, 404, 500])} {rng.randrange(90000)} "-" "Mozilla/5.0 (X11; Linux x86_64) Firefox/{rng.randint(90, 140)}"')(next(second)))


def message(rng, n):
    day = 1 + n % 28
    extra = ""
    if n % 9 == 0:
        data = base64.encodebytes(rng.randbytes(min(int(rng.lognormvariate(10, 1)), 1 << 20))).decode()
        extra = f"\n--b\nContent-Type: application/octet-stream; name=a{n}.bin\nContent-Transfer-Encoding: base64\n\n{data}\n--b--\n"
    kind = 'multipart/mixed; boundary="b"' if extra else "text/plain; charset=us-ascii"
    head = "\n--b\nContent-Type: text/plain\n\n" if extra else "\n"
    names = WORDS[rng.randrange(40)], WORDS[rng.randrange(40)]
    body = "\n".join(sentence(rng, 11) for _ in range(rng.randint(3, 60)))
    return (f"From: {names[0]}@example.org\nTo: {names[1]}@example.com\nDate: Mon, {day:02} Mar 2026 {n % 24:02}:00:00 +0000\n"
            f"Subject: {sentence(rng, 5)}\nMessage-ID: <{n}.{rng.randrange(10**9)}@example.org>\nMIME-Version: 1.0\n"
            f"Content-Type: {kind}\n{head}{body}\n{extra}")


def mbox(rng, messages, path):
    with create(path) as file:
        for n in range(int(messages)):
            file.write(f"From someone@example.org Mon Mar {1 + n % 28:2} 10:00:00 2026\n{message(rng, n)}\n")


def maildir(rng, messages, folder):
    for part in ("cur", "new", "tmp"):
        os.makedirs(f"{folder}/{part}", exist_ok=True)
    for n in range(int(messages)):
        write(f"{folder}/cur/{1700000000 + n}.{n}.example:2,S", message(rng, n))


def pcap(rng, packets, path):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for n in range(int(packets)):
            payload = sentence(rng, 12).encode() * rng.choice([0, 1, 1, 4, 14])
            tcp = struct.pack(">HHIIBBHHH", 1024 + n % 97, rng.choice([80, 443, 25]), n * 100, 0, 0x50, 0x18, 500, 0, 0)
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), n & 0xffff, 0, 64, 6, 0,
                             bytes([10, 0, 0, 1 + n % 9]), bytes([10, 0, 1, 1 + n % 31]))
            frame = bytes(12) + b"\x08\0" + ip + tcp + payload
            file.write(struct.pack("<IIII", 1767225600 + n // 100, n % 100 * 9999, len(frame), len(frame)) + frame)


# ---- pictures, sound, documents ----

def picture(rng, width, height, path):
    """A PPM: slow waves with noise, so that it packs about as a photograph does."""
    width, height = int(width), int(height)
    waves = [(rng.uniform(0.002, 0.02), rng.uniform(0, 6)) for _ in range(6)]
    table = [[int(100 + 60 * math.sin(x * f + p)) for x in range(width)] for f, p in waves[:3]]
    pool = rng.randbytes(width * 3 + 4096)
    with open(path, "wb") as file:
        file.write(b"P6 %d %d 255\n" % (width, height))
        for y in range(height):
            shift = int(30 * math.sin(y * waves[3][0] + waves[3][1]))
            at = rng.randrange(4096)
            row = bytearray(width * 3)
            for channel in range(3):
                row[channel::3] = bytes(v + shift + (b & 15) for v, b in zip(table[channel], pool[at:at + width]))
            file.write(row)


def sound(rng, seconds, path):
    rate, count = 44100, int(seconds) * 44100
    pool = array.array("h", (int(6000 * math.sin(n * n / 9e6) + rng.gauss(0, 700)) for n in range(1 << 16)))
    data = array.array("h")
    while len(data) < 2 * count:
        start = rng.randrange(1 << 15)
        data.extend(pool[start:start + rng.randrange(1 << 12, 1 << 15)])
    data = data[:2 * count].tobytes()
    write(path, b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 2, rate, 4 * rate, 4, 16)
          + b"data" + struct.pack("<I", len(data)) + data)


def pdf(rng, pages, path):
    """Pages of text; every fourth has a picture of raw pixels."""
    pages, out, at = int(pages), io.BytesIO(), {}

    def put(number, body):
        at[number] = out.tell()
        out.write(b"%d 0 obj\n" % number + body + b"\nendobj\n")

    def stream(head, data):
        return b"<< %s /Length %d >>\nstream\n" % (head, len(data)) + data + b"\nendstream"

    out.write(b"%PDF-1.4\n")
    put(3, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for n in range(pages):
        page, content, image = 4 + 3 * n, 5 + 3 * n, 6 + 3 * n
        rows = "".join(f"({sentence(rng, 9)}) Tj 0 -13 Td\n" for _ in range(52))
        draw = b"q 200 0 0 200 200 40 cm /I Do Q\n" if n % 4 == 0 else b""
        put(content, stream(b"", f"BT /F 10 Tf 50 770 Td\n{rows}ET\n".encode() + draw))
        side = 160 if n % 4 == 0 else 1
        put(image, stream(b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8" % (side, side),
                          bytes(x * y & 255 for x in range(side) for y in range(side))))
        put(page, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F 3 0 R >> /XObject << /I %d 0 R >> >> >>"
            % (content, image))
    put(2, b"<< /Type /Pages /Count %d /Kids [%s] >>" % (pages, b" ".join(b"%d 0 R" % (4 + 3 * n) for n in range(pages))))
    put(1, b"<< /Type /Catalog /Pages 2 0 R >>")
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(at) + 1) + b"".join(b"%010d 00000 n \n" % at[n] for n in sorted(at)))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(at) + 1, table))
    write(path, out.getvalue())


# ---- genomes ----

def bases(rng, n):
    return "".join(rng.choices("ACGT", k=n))


def fasta(rng, count, length, path):
    with create(path) as file:
        for n in range(int(count)):
            data = bases(rng, size(length))
            file.write(f">chr{n + 1}\n" + "".join(data[at:at + 60] + "\n" for at in range(0, len(data), 60)))


def sequences(path):
    with open(path, encoding="ascii") as file:
        parts = file.read().split(">")[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1].replace("\n", "")) for part in parts]


def fastq(rng, reads, length, reference, path):
    """Reads of a reference, one base of a hundred wrong."""
    whole, length = sequences(reference), int(length)
    with create(path) as file:
        for n in range(int(reads)):
            _, chromosome = rng.choice(whole)
            at = rng.randrange(len(chromosome) - length)
            read = list(chromosome[at:at + length])
            for _ in range(length // 100):
                read[rng.randrange(length)] = rng.choice("ACGT")
            file.write(f"@r{n}\n{''.join(read)}\n+\n{''.join(rng.choices('FFFFF:,#', k=length))}\n")


def bed(rng, rows, path):
    at = sorted((rng.randint(1, 8), rng.randrange(5_000_000)) for _ in range(int(rows)))
    write(path, "".join(f"chr{c}\t{a}\t{a + rng.randint(50, 4000)}\t{rng.choice(WORDS)}\t{rng.randrange(1000)}\t+\n" for c, a in at))


def vcf(rng, rows, samples, path):
    samples = int(samples)
    names = "\t".join(f"s{n}" for n in range(samples))
    at = sorted((rng.randint(1, 8), rng.randrange(1, 5_000_000)) for _ in range(int(rows)))
    with create(path) as file:
        file.write("##fileformat=VCFv4.2\n" + "".join(f"##contig=<ID=chr{n},length=5000000>\n" for n in range(1, 9)))
        file.write('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">\n')
        file.write(f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}\n")
        for c, a in at:
            genotypes = "\t".join(rng.choices(["0/0", "0/1", "1/1"], weights=[8, 2, 1], k=samples))
            file.write(f"chr{c}\t{a}\t.\t{'ACGT'[a % 4]}\t{'CGTA'[a % 4]}\t{rng.randint(10, 99)}\tPASS\tDP={rng.randint(5, 90)}\tGT\t{genotypes}\n")


def proteins(rng, count, path):
    with create(path) as file:
        for n in range(int(count)):
            data = "".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=rng.randint(80, 600)))
            file.write(f">p{n}\n" + "".join(data[at:at + 60] + "\n" for at in range(0, len(data), 60)))


def fits(rng, images, side, path):
    side = int(side)
    cards = ["SIMPLE  =                    T", "BITPIX  =                   16", "NAXIS   =                    2",
             f"NAXIS1  = {side:20}", f"NAXIS2  = {side:20}", "EXTEND  =                    T", "END"]
    with open(path, "wb") as file:
        for n in range(int(images)):
            if n:
                cards = ["XTENSION= 'IMAGE   '", *cards[1:5], "PCOUNT  =                    0", "GCOUNT  =                    1", "END"] if n == 1 else cards
            file.write("".join(card.ljust(80) for card in cards).ljust(2880).encode())
            data = b"".join(struct.pack(">h", 900 + b) for b in rng.randbytes(side * side // 16)) * 16
            file.write(data.ljust(-(-len(data) // 2880) * 2880, b"\0"))


# ---- containers ----

def docker_archive(rng, layers, files, path):
    """What `docker save` writes: an image of layers of small files, the last layer with one large file."""
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}, "history": []}
    names, blobs = [], {}
    for layer in range(int(layers)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for n in range(int(files)):
                data = code(rng, min(int(rng.lognormvariate(4.6, 1.1)), 4000), "py").encode()
                if n == 0 and layer == int(layers) - 1:
                    data = rng.randbytes(4 << 20)
                entry = tarfile.TarInfo(f"usr/lib/l{layer}/{rng.choice(WORDS)}{n}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        digest = hashlib.sha256(out.getvalue()).hexdigest()
        config["rootfs"]["diff_ids"].append(f"sha256:{digest}")
        config["history"].append({"created": "2026-01-01T00:00:00Z", "created_by": f"layer {layer}"})
        names.append(f"{digest}/layer.tar")
        blobs[names[-1]] = out.getvalue()
    about = json.dumps(config).encode()
    own = hashlib.sha256(about).hexdigest() + ".json"
    blobs[own] = about
    blobs["manifest.json"] = json.dumps([{"Config": own, "RepoTags": ["example/app:1"], "Layers": names}]).encode()
    with tarfile.open(path, mode="w") as tar:
        for name, data in blobs.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


KINDS = {kind.__name__: kind for kind in (
    text, noise, mixed, csv, jsonl, xml, tree, change, c_project, java_project, weblog, mbox, maildir, pcap, picture, sound, pdf,
    fasta, fastq, bed, vcf, proteins, fits, docker_archive)}


def main(words):
    if len(words) < 2 or words[0] not in KINDS:
        sys.exit(f"gen: the kinds are {', '.join(KINDS)}")
    # Each kind draws other numbers, so that two files of one seed are not alike.
    KINDS[words[0]](random.Random(f"{words[0]} {words[1]}"), *words[2:])


if __name__ == "__main__":
    main(sys.argv[1:])
