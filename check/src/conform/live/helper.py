# Plays operations on a file for 'foreread check conform linux': one line asks, one line answers (a number, or why not).
# Ends when its input does. A mapping begins at a named page of a page table, and never where one has been shortly before, so
# that its page tables are its own.
import ctypes, errno, fcntl, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.readahead.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_size_t]
PAGE, SLOT, SLOTS, BASE = 4096, 1 << 30, 4096, 1 << 44
MAP_PRIVATE, MAP_FIXED_NOREPLACE = 2, 0x100000
READ, EXEC = 1, 4
FS_IOC_FIEMAP, FIEMAP, EXTENT, EXTENTS = 0xC020660B, struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL"), 4096
ADVICE = {word: getattr(os, "POSIX_FADV_" + word.upper())
          for word in ("normal", "random", "sequential", "willneed", "dontneed", "noreuse")}
files, maps, slot = [], {}, 0


def checked(failed):
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unmap(fd):
    if fd in maps:
        checked(libc.munmap(*maps.pop(fd)))


def ready():
    return 0


def open_(count, path):
    for fd in list(maps):
        unmap(fd)
    while files:
        os.close(files.pop())
    for _ in range(int(count)):
        files.append(os.open(path, os.O_RDONLY))


def pread(fd, off, length):
    return len(os.pread(files[int(fd)], int(length), int(off)))


def fadvise(fd, advice, off, length):
    os.posix_fadvise(files[int(fd)], int(off), int(length), ADVICE[advice])


def readahead(fd, off, length):
    checked(libc.readahead(files[int(fd)], int(off), int(length)))


def mmap(fd, pgoff, npages, va, prot, advice):
    global slot
    fd, pgoff, length, advice = int(fd), int(pgoff), int(npages) * PAGE, int(advice)
    unmap(fd)
    slot = (slot + 1) % SLOTS
    want = BASE + slot * SLOT + int(va) * PAGE
    bits = READ | (EXEC if "x" in prot else 0)
    got = libc.mmap(want, length, bits, MAP_PRIVATE | MAP_FIXED_NOREPLACE, files[fd], pgoff * PAGE)
    checked(got != want)
    maps[fd] = (got, length)
    if advice:
        checked(libc.madvise(got, length, advice))


def touch(fd, page):
    ctypes.c_ubyte.from_address(maps[int(fd)][0] + int(page) * PAGE).value


# Pages at which the file goes on elsewhere on its device: requests end there. "-" for none, and where the file system does not say.
def extents(path):
    fd = os.open(path, os.O_RDONLY)
    answer = bytearray(FIEMAP.pack(0, (1 << 64) - 1, 0, 0, EXTENTS, 0) + bytes(EXTENTS * EXTENT.size))
    try:
        fcntl.ioctl(fd, FS_IOC_FIEMAP, answer)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        return "-"
    finally:
        os.close(fd)
    pages, follows = [], None
    for nth in range(FIEMAP.unpack_from(answer)[3]):
        logical, physical, length = EXTENT.unpack_from(answer, FIEMAP.size + nth * EXTENT.size)[:3]
        if follows not in (None, physical):
            pages.append(logical // PAGE)
        follows = physical + length
    return ",".join(map(str, pages)) or "-"


DO = {"ready": ready, "open": open_, "pread": pread, "fadvise": fadvise, "readahead": readahead, "mmap": mmap, "touch": touch,
      "extents": extents}
for line in iter(sys.stdin.readline, ""):
    try:
        word, *rest = line.split()
        answer = DO[word](*rest) or 0
    except Exception as error:
        answer = repr(error)
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
