# Plays the requests of a workload on real files: reads by read calls, touches through mappings. Joins a control group first, so that what
# it caches is charged there; its own memory was charged before. Arguments: the folder, the plan, the group's list of processes or '-'.
# A plan is a run of records: what (0 open, 1 open executable, 2 close, 3 read, 4 touch), open description, file, offset, length.
import mmap, os, struct, sys

RECORD = struct.Struct("<5Q")
folder, plan, group = sys.argv[1:]
with open(plan, "rb") as f:
    steps = list(RECORD.iter_unpack(f.read()))
buffer = bytearray(1 << 20)
files, maps = {}, {}
if group != "-":
    with open(group, "w") as f:
        f.write(str(os.getpid()))
for what, opened, file, offset, length in steps:
    if what == 4:
        maps[opened][offset]
    elif what == 3:
        while length > 0:
            got = os.preadv(files[opened], [memoryview(buffer)[: min(length, len(buffer))]], offset)
            if got == 0:
                sys.exit("a read ended early")
            offset, length = offset + got, length - got
    elif what == 2:
        if opened in maps:
            maps.pop(opened).close()
        os.close(files.pop(opened))
    else:
        files[opened] = os.open(f"{folder}/{file}", os.O_RDONLY)
        rights = mmap.PROT_READ | (mmap.PROT_EXEC if what == 1 else 0)
        maps[opened] = mmap.mmap(files[opened], 0, flags=mmap.MAP_PRIVATE, prot=rights)
