"""The programs that check/record-programs records, a row each, in the order of the index.

    program(KIND, NAME, "PACKAGES", make=RECIPE, run=COMMAND, ...)

| field | meaning |
|---|---|
| kind, name | the class of programs, and the name of the recordings |
| packages | of Debian; the version of the first one goes into the index |
| make | a recipe of the shell, run in $IN, that writes the input once |
| before | a recipe run in $OUT before each run, unrecorded: copies of what the program changes |
| run | the command, run in $OUT; through `sh -c` where it has signs of the shell |
| ok | exit codes that are right, 0 unless named |
| pip | Python packages instead, for `$VENV/bin/python` |

`make`, `before` and `run` are one text for both inputs or a pair (a, b); $SEED is 1 or 2, $SIDE a or b, so one recipe makes two inputs.
`gen KIND SEED ...` writes synthetic data (inputs.py). Inputs have 1 to 64 MB. To add a program: add a row, then
`check/record-programs --install --only NAME`. The second input should make the program read otherwise, as another user's would:
other sizes, other options, another part of the file.
"""
from dataclasses import dataclass


@dataclass
class Program:
    kind: str
    name: str
    packages: list
    make: tuple
    run: tuple
    before: tuple
    ok: tuple
    pip: list


PROGRAMS = []


def program(kind, name, packages, *, run, make="", before="", ok=(0,), pip=""):
    pair = [text if isinstance(text, tuple) else (text, text) for text in (make, run, before)]
    PROGRAMS.append(Program(kind, name, packages.split(), pair[0], pair[1], pair[2], ok, pip.split()))


# ---- interpreters: a start with many small files, then data ----

program("interpreter", "python", "python3-minimal libpython3-stdlib",
        make=(r"""gen csv 1 60000 rows.csv
cat >app.py <<'E'
import sys, csv, collections, argparse, logging, decimal, statistics, email, http.client, xml.etree.ElementTree
total = collections.Counter()
with open(sys.argv[1], newline="") as file:
    for row in csv.DictReader(file):
        total[row["shop"]] += decimal.Decimal(row["price"])
print(total.most_common(3))
E""", r"""mkdir data; for n in 1 2 3 4 5 6 7 8 9; do gen jsonl $n 5000 data/$n.jsonl; done
cat >app.py <<'E'
import sys, json, mmap, pathlib, asyncio, unittest, sqlite3, multiprocessing
def count(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return sum(json.loads(line)["score"] > 0.5 for line in iter(data.readline, b""))
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(sum(pool.map(count, sorted(pathlib.Path(sys.argv[1]).iterdir()))))
E"""),
        run=("/usr/bin/python3 $IN/app.py $IN/rows.csv", "/usr/bin/python3 $IN/app.py $IN/data"))
program("interpreter", "perl", "perl",
        make=("gen weblog 1 8M access.log", "gen mixed 2 12M data.bin"),
        run=(r"""perl -MPOSIX -MData::Dumper -MEncode -ne '$n{$1}++ if /"GET (\S+)/; END { print scalar keys %n }' $IN/access.log""",
             r"""perl -MFcntl=:seek -MDigest::SHA -MStorable -e 'open F, "<:raw", $ARGV[0]; srand 7; for (1..600) { seek F, int(rand(2900)) * 4096, SEEK_SET; read F, $b, 4096 * (1 + $_ % 3); $s += length $b } print $s' $IN/data.bin"""))
program("interpreter", "ruby", "ruby",
        make=("gen csv 1 30000 rows.csv", "mkdir d; for n in $(seq 60); do gen jsonl $n 200 d/$n.jsonl; done"),
        run=("""ruby -rcsv -e 's = 0; CSV.foreach(ARGV[0], headers: true) { |r| s += r["amount"].to_i }; puts s' $IN/rows.csv""",
             """ruby -rjson -rset -rerb -ropenssl -ryaml -e 'puts Dir[ARGV[0] + "/*"].sum { |f| File.readlines(f).sum { |l| JSON.parse(l)["score"] } }' $IN/d"""))
program("interpreter", "node", "nodejs",
        make=("""gen text 1 24M big.txt
echo 'let n=0;require("fs").createReadStream(process.argv[2]).on("data",d=>{n+=d.length}).on("end",()=>console.log(n))' >app.js""",
              """mkdir m; for n in $(seq 400); do echo "exports.f=x=>x*$n; // $(head -c $((n * 30)) /dev/zero | tr '\\0' x)" >m/m$n.js; done
echo 'let s=0;for(let n=1;n<=400;n++)s+=require("./m/m"+n+".js").f(n);console.log(s,require("crypto").createHash("md5").update("a").digest("hex"))' >app.js"""),
        run=("node $IN/app.js $IN/big.txt", "node $IN/app.js"))
program("interpreter", "php", "php-cli",
        make=("gen csv 1 60000 rows.csv", "gen text 2 6M text.txt"),
        run=("""php -r '$f = fopen($argv[1], "r"); $s = 0; while (($r = fgetcsv($f)) !== false) $s += (int)$r[4]; echo $s;' $IN/rows.csv""",
             """php -r '$f = fopen($argv[1], "r"); $n = 0; for ($at = filesize($argv[1]) - 8192; $at > 0; $at -= 8192) { fseek($f, $at); $n += substr_count(fread($f, 8192), " "); } echo $n;' $IN/text.txt"""))
program("interpreter", "lua", "lua5.4",
        make=("gen text 1 8M text.txt", "gen mixed 2 16M data.bin"),
        run=("""lua5.4 -e 'local n = 0 for l in io.lines(os.getenv("IN") .. "/text.txt") do n = n + #l end print(n)'""",
             """lua5.4 -e 'local f = io.open(os.getenv("IN") .. "/data.bin", "rb") local s = 0 for i = 0, 3900, 3 do f:seek("set", (i * 7919 % 3900) * 4096) s = s + #f:read(1000) end print(s)'"""))
program("interpreter", "guile", "guile-3.0",
        make="gen text $SEED 3M text.txt",
        run=("""guile-3.0 --no-auto-compile -c '(use-modules (ice-9 rdelim) (srfi srfi-1) (srfi srfi-43) (ice-9 regex) (web uri)) (call-with-input-file (string-append (getenv "IN") "/text.txt") (lambda (p) (let loop ((n 0)) (let ((l (read-line p))) (if (eof-object? l) (display n) (loop (+ n (string-length l))))))))'""",
             """guile-3.0 --no-auto-compile -c '(use-modules (ice-9 textual-ports) (sxml simple) (ice-9 match) (ice-9 format) (texinfo) (system vm assembler)) (display (string-length (call-with-input-file (string-append (getenv "IN") "/text.txt") get-string-all)))'"""))
program("interpreter", "r", "r-base-core",
        make=("gen csv 1 20000 rows.csv", """Rscript -e 'set.seed(2); d <- data.frame(x = rnorm(4e5), y = rnorm(4e5)); saveRDS(d, "d.rds", compress = FALSE)'"""),
        run=("""Rscript -e 'd <- read.csv(file.path(Sys.getenv("IN"), "rows.csv")); print(coef(lm(price ~ amount, d)))'""",
             """Rscript -e 'library(stats4); library(splines); library(parallel); library(tools); d <- readRDS(file.path(Sys.getenv("IN"), "d.rds")); print(cor(d$x, d$y))'"""))
program("interpreter", "octave", "octave",
        make=("""cut -d, -f1,2,5,6 <(gen csv 1 40000 rows.csv; cat rows.csv) | tail -n +2 >n.csv; rm rows.csv""",
              """octave-cli -q --eval 'x = reshape(mod((1:1500000) * 7, 1013), 1500, 1000); save("-binary", "x.mat", "x");'"""),
        run=("""octave-cli -q --no-history --eval 'd = dlmread(fullfile(getenv("IN"), "n.csv"), ","); disp(mean(d));'""",
             """octave-cli -q --no-history --eval 'load(fullfile(getenv("IN"), "x.mat")); disp(std(x(:))); disp(fzero(@(t) t^3 - 2, 1)); disp(interp1(1:3, 4:6, 2.5));'"""))
program("interpreter", "tcl", "tcl",
        make=("gen text 1 6M text.txt", "gen weblog 2 5M access.log"),
        run=("""echo 'set f [open $env(IN)/text.txt]; set n 0; while {[gets $f l] >= 0} {incr n [string length $l]}; puts $n' | tclsh""",
             """echo 'package require msgcat; package require http; set f [open $env(IN)/access.log rb]; set n 0; for {set i 600} {$i >= 0} {incr i -1} {seek $f [expr {$i * 8192}]; incr n [string length [read $f 2000]]}; puts $n' | tclsh"""))
program("interpreter", "java", "default-jre-headless default-jdk-headless",
        make=("""gen text 1 16M text.txt
cat >Count.java <<'E'
import java.nio.file.*;
public class Count { public static void main(String[] a) throws Exception { System.out.println(Files.lines(Path.of(a[0])).mapToLong(String::length).sum()); } }
E
javac Count.java""", """gen java_project 2 120 src; javac -d out src/*.java
cat >All.java <<'E'
public class All { public static void main(String[] a) throws Exception { int s = 0; for (int n = 0; n < 120; n++) { Object o = Class.forName("C" + n).getConstructor().newInstance(); s += o.hashCode() & 1; } System.out.println(s); } }
E
javac -cp out -d out All.java; jar cf all.jar -C out ."""),
        run=("java -cp $IN Count $IN/text.txt", "java -cp $IN/all.jar All"))

# ---- compilers: headers, small sources, mapped compilers ----

program("compiler", "gcc", "gcc",
        make=("gen c_project 1 20 src", "gen c_project 2 6 src"),
        run=("for f in $IN/src/*.c; do gcc -c -o o.o $f || exit 1; done", "gcc -O2 -g -o out $IN/src/*.c"))
program("compiler", "g++", "g++",
        make=("""cat >a.cpp <<'E'
#include <iostream>
#include <regex>
#include <map>
#include <string>
int main(int n, char **) { std::map<std::string, int> m; m["a"] = n; std::regex r("a+"); std::cout << std::regex_match("aa", r) << m.size(); }
E""", """for n in 1 2 3 4; do cat >b$n.cpp <<E
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <random>
#include <thread>
#include <vector>
int f$n(int n) { std::vector<int> v(n); std::mt19937 g(n); std::generate(v.begin(), v.end(), g); std::sort(v.begin(), v.end()); return v[0]; }
E
done"""),
        run=("g++ -std=c++17 -o a.out $IN/a.cpp", "for n in 1 2 3 4; do g++ -std=c++20 -O1 -c -o b$n.o $IN/b$n.cpp || exit 1; done; ar rc libb.a b*.o"))
program("compiler", "clang", "clang-14",
        make=("gen c_project 1 2 src", "gen c_project 2 3 src"),
        run=("clang-14 -O1 -o out $IN/src/*.c", "clang-14 -fsyntax-only $IN/src/*.c"))
program("compiler", "javac", "default-jdk-headless",
        make=("gen java_project 1 20 src", "gen java_project 2 160 src"),
        run=("javac -d classes $IN/src/*.java", "javac -g -Xlint:all -d classes $IN/src/*.java"))
program("compiler", "tcc", "tcc libc6-dev",
        make=("gen c_project 1 60 src", "gen c_project 2 60 src"),
        run=("tcc -o out $IN/src/*.c -lm", "for f in $IN/src/part*.c; do tcc -c -o o.o $f || exit 1; done"))
program("compiler", "nasm", "nasm",
        make="""{ echo 'section .text'; for n in $(seq $((SEED * 20000))); do echo "l$n: mov eax, $n"; echo " add ebx, eax"; done; } >a.asm
gen noise $SEED 3M blob; printf 'section .data\\nincbin "blob"\\n' >>a.asm""",
        run=("nasm -f elf64 -I $IN/ -o a.o $IN/a.asm", "nasm -f elf64 -g -I $IN/ -l a.lst -o a.o $IN/a.asm"))
program("compiler", "fpc", "fp-compiler-3.2.2 fp-units-rtl-3.2.2",
        make=("printf 'program a; uses sysutils, classes, math, strutils; begin writeln(UpperCase(inttostr(trunc(power(2, 9))))); end.' >a.pas",
              """for n in $(seq 40); do printf 'unit u%s; interface uses sysutils; function f%s(x: integer): string; implementation function f%s(x: integer): string; begin f%s := IntToStr(x * %s); end; end.' $n $n $n $n $n >u$n.pas; done
{ printf 'program a; uses u1'; for n in $(seq 2 40); do printf ', u%s' $n; done; printf '; begin writeln(f1(2)); end.'; } >a.pas"""),
        before="cp $IN/*.pas .", run="fpc a.pas")
program("compiler", "sbcl", "sbcl",
        make="""for n in $(seq $((SEED * 150))); do echo "(defun f$n (x) (declare (fixnum x)) (loop for i below x sum (* i $n)))"; done >a.lisp""",
        before="cp $IN/a.lisp .",
        run=("""sbcl --noinform --non-interactive --no-userinit --load a.lisp""",
             """sbcl --noinform --non-interactive --no-userinit --eval '(require :asdf)' --eval '(require :sb-md5)' --eval '(compile-file "a.lisp")' --eval '(load "a.fasl")'"""))

# ---- binaries: tables at the end, then sections in any order ----

program("binary-tools", "ld", "binutils gcc g++",
        make="""gen c_project $SEED 40 src; for f in src/*.c; do gcc -g -c -o ${f%.c}.o $f; done; ar rc libparts.a src/part*.o""",
        run=("gcc -static -o out $IN/src/*.o -lm", "ld -r -o all.o --whole-archive $IN/libparts.a"))
program("binary-tools", "objdump", "binutils gdb libstdc++6",
        make=("cp /usr/bin/gdb bin", "cp /usr/lib/x86_64-linux-gnu/libstdc++.so.6 bin"),
        run=("objdump -d --stop-address=0x280000 $IN/bin | tail -n 1", "objdump -x $IN/bin; objdump -s -j .rodata $IN/bin"))
program("binary-tools", "readelf", "binutils gcc",
        make="gen c_project $SEED 60 src; for f in src/*.c; do gcc -g -O$SEED -c -o ${f%.c}.o $f; done; gcc -o all src/*.o",
        run=("readelf -a -W $IN/src/*.o", "readelf --debug-dump=info,line $IN/all"))
program("binary-tools", "strip", "binutils gcc gdb",
        make=("cp /usr/bin/gdb bin", "gen c_project 2 80 src; for f in src/*.c; do gcc -g -c -o ${f%.c}.o $f; done"),
        run=("strip -o out $IN/bin", "for f in $IN/src/*.o; do strip --strip-debug -o o.o $f || exit 1; done"))
program("binary-tools", "gdb", "gdb gcc",
        make=("gen c_project 1 40 src; gcc -g -o all src/*.c -lm", "gen c_project 2 20 src; gcc -gdwarf-4 -O1 -o all src/*.c -lm"),
        run=("gdb -nx -batch -ex 'info functions part1' -ex 'list main' -ex 'ptype struct s3' $IN/all",
             "gdb -nx -batch -ex 'break main' -ex run -ex bt -ex 'info sharedlibrary' -ex 'disassemble main' $IN/all"))
program("binary-tools", "file", "file",
        make=("gen tree 1 800 t", "mkdir t; cp /usr/bin/[a-b]* t; gen pdf 1 20 t/a.pdf; gen sound 1 20 t/a.wav"),
        run=("find $IN/t -type f | file -f -", "file -k $IN/t/*"))
program("binary-tools", "strings", "binutils gdb",
        make=("gen mixed 1 24M data", "cp /usr/bin/gdb .; cp /usr/lib/x86_64-linux-gnu/libc.a ."),
        run=("strings $IN/data", "strings -d -n 8 $IN/gdb; strings -t x -e l $IN/libc.a"))

# ---- databases ----

SQL = """CREATE TABLE t(id INTEGER PRIMARY KEY, shop INT, item INT, amount INT, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ROWS) INSERT INTO t SELECT i, i * 7919 % 1000, i * 104729 % 5000, i % 17, hex(i * 31) || '-' || hex(i * i) FROM n;
CREATE INDEX t_item ON t(item); CREATE INDEX t_shop ON t(shop, amount);"""


def sqlite(rows, first="", last=""):
    return f"sqlite3 a.db <<'E'\n{first}\n{SQL.replace('ROWS', str(rows))}\n{last}\nE"


program("database", "sqlite", "sqlite3",
        make=(sqlite(300000), sqlite(400000, first="PRAGMA page_size=16384;")),
        run=("sqlite3 -readonly $IN/a.db 'SELECT count(*), max(length(note)) FROM t WHERE item IN (5, 77, 1234, 4999, 3000, 2000)'",
             "sqlite3 -readonly $IN/a.db 'PRAGMA mmap_size=1000000000; SELECT shop, sum(amount), count(DISTINCT note) FROM t GROUP BY shop ORDER BY 2 DESC LIMIT 5'"))
program("database", "sqlite-check", "sqlite3",
        make=(sqlite(15000), sqlite(200000, last="DELETE FROM t WHERE id % 3 = 0;")),
        before="cp $IN/a.db .", run=("sqlite3 a.db 'PRAGMA integrity_check'", "sqlite3 a.db VACUUM"))
UNPRIVILEGED = "setpriv --reuid=65534 --regid=65534 --clear-groups /usr/lib/postgresql/15/bin/"
POSTGRES = f"""mkdir pg; chown 65534:65534 pg; chmod 700 pg
{UNPRIVILEGED}initdb -D $IN/pg -N -U postgres --locale=C -A trust >/dev/null
{UNPRIVILEGED}postgres --single -D $IN/pg -j postgres <<'E'
CREATE TABLE t AS SELECT i AS id, i * 7919 % 1000 AS shop, (i::bigint * 104729 % 50000)::int AS item, md5(i::text) AS note FROM generate_series(1, ROWS) i;

CREATE INDEX t_item ON t(item);

VACUUM ANALYZE t;

CHECKPOINT;

E"""
program("database", "postgres", "postgresql-15",
        make=(POSTGRES.replace("ROWS", "200000"), POSTGRES.replace("ROWS", "400000")),
        before="cp -a $IN/pg .",
        run=(f"echo 'SELECT count(note) FROM t WHERE item BETWEEN 700 AND 800 OR item = 4;' | {UNPRIVILEGED}postgres --single -D $OUT/pg postgres",
             f"echo 'SELECT shop, max(note) FROM t GROUP BY shop ORDER BY 2 LIMIT 9;' | {UNPRIVILEGED}postgres --single -D $OUT/pg postgres"))
MARIADBD = "mariadbd --no-defaults --user=root --innodb-log-file-size=4M --innodb-use-native-aio=0 --tmpdir=$TMPDIR --bootstrap"
MARIADB = f"""mkdir db; {{ printf 'create database mysql;\\nuse mysql;\\n'; cat /usr/share/mysql/mysql_system_tables.sql; cat <<'E'
create database s;
create table s.t (id int primary key, shop int, note varchar(80), key (shop)) engine=innodb;
insert into s.t select seq, seq * 7919 % 1000, md5(seq) from seq_1_to_ROWS;
E
}} | {MARIADBD} --datadir=$IN/db"""
program("database", "mariadb", "mariadb-server-core",
        make=(MARIADB.replace("ROWS", "60000"), MARIADB.replace("ROWS", "120000")),
        before="cp -a $IN/db .",
        run=(f"echo 'select count(note) from s.t where shop in (1,7,99,500);' | {MARIADBD} --datadir=$OUT/db",
             f"echo 'select max(note), count(*) from s.t group by shop % 10;' | {MARIADBD} --datadir=$OUT/db --innodb-buffer-pool-size=8M"))
REDIS = """(exec -a redis-server redis-check-rdb --port 0 --unixsocket $IN/s --dir $IN --save '' --enable-debug-command yes MORE) >/dev/null & server=$!
for n in $(seq 50); do redis-cli -s s ping >/dev/null 2>&1 && break; sleep 0.1; done
redis-cli -s s debug populate KEYS key SIZE >/dev/null
redis-cli -s s eval 'for i=1,3000 do redis.call("hset","h"..i%50,i,i*i) redis.call("zadd","z",i,i) end' 0 >/dev/null
redis-cli -s s save >/dev/null; redis-cli -s s shutdown nosave || true; wait $server || true; rm -f s"""
program("database", "redis", "redis-tools",
        make=(REDIS.replace("MORE", "").replace("KEYS", "60000").replace("SIZE", "200"),
              REDIS.replace("MORE", "--rdbcompression no").replace("KEYS", "4000").replace("SIZE", "4000")),
        run=("redis-check-rdb $IN/dump.rdb",
             """bash -c 'cp $IN/dump.rdb .; (exec -a redis-server redis-check-rdb --port 0 --unixsocket $OUT/s --dir $OUT --save "") &
for n in $(seq 80); do redis-cli -s $OUT/s dbsize 2>/dev/null | grep -q "[1-9]" && break; sleep 0.1; done; redis-cli -s $OUT/s shutdown nosave; wait'"""))

# ---- key-value stores ----


def pairs(seed, rows, then):
    """A file of keys and values, a line each in turns, and what is made of it."""
    return f"""python3 - >pairs <<'E'
import random
r = random.Random({seed})
for n in sorted(r.sample(range(10**7), {rows})):
    print(f"key{{n:08}}\\n{{r.randbytes(r.randint(20, 200)).hex()}}")
E
{then}
rm pairs"""


ROCKS = "paste -d' ' - - <pairs | sed 's/ / ==> /' | ldb --db=$IN/db --create_if_missing MORE load >/dev/null"
program("key-value", "rocksdb", "rocksdb-tools",
        make=(pairs(1, 60000, ROCKS.replace("MORE", "")), pairs(2, 25000, ROCKS.replace("MORE", "--compression_type=zstd --block_size=16384") + "; ldb --db=$IN/db compact")),
        before="cp -a $IN/db .",
        run=("ldb --db=$OUT/db scan --from=key02 --to=key05", "for k in 0100 0300 0500 0700 0900; do ldb --db=$OUT/db scan --from=key0$k --max_keys=20; done; sst_dump --file=$OUT/db --command=verify"))
LMDB = "{ printf 'VERSION=3\\nformat=print\\ntype=btree\\nmapsize=100000000\\nHEADER=END\\n'; sed 's/^/ /' pairs; echo DATA=END; } >dump; mkdir db; mdb_load -f dump db; rm dump"
program("key-value", "lmdb", "lmdb-utils", make=(pairs(1, 60000, LMDB), pairs(2, 25000, LMDB)),
        run=("mdb_dump $IN/db", "mdb_stat -efff $IN/db; mkdir copy; mdb_copy -c $IN/db copy"))
program("key-value", "berkeley-db", "db5.3-util",
        make=(pairs(1, 60000, "db5.3_load -T -t btree -f pairs a.db"), pairs(2, 25000, "db5.3_load -T -t hash -f pairs a.db")),
        run=("db5.3_dump -p $IN/a.db", "db5.3_verify $IN/a.db"))
GDBM = "paste -d' ' - - <pairs | sed 's/^/store /' | gdbmtool -n a.gdbm"
program("key-value", "gdbm", "gdbmtool", make=(pairs(1, 60000, GDBM), pairs(2, 25000, GDBM)),
        run=("gdbmtool -r $IN/a.gdbm count", "gdbm_dump $IN/a.gdbm dump"))
program("key-value", "leveldb", "python3-plyvel",
        make="""cat >fill.py <<'E'
import plyvel, random, os
r = random.Random(int(os.environ["SEED"]))
db = plyvel.DB("db", create_if_missing=True, write_buffer_size=1 << 20)
for n in r.sample(range(10**6), 90000):
    db.put(b"k%07d" % n, r.randbytes(150))
db.close()
E
/usr/bin/python3 fill.py""",
        before="cp -a $IN/db .",
        run=("""/usr/bin/python3 -c 'import plyvel, random; r = random.Random(5); db = plyvel.DB("db"); print(sum(db.get(b"k%07d" % r.randrange(10**6)) is not None for _ in range(3000)))'""",
             """/usr/bin/python3 -c 'import plyvel; db = plyvel.DB("db"); print(sum(len(v) for k, v in db.iterator(start=b"k03", stop=b"k06", reverse=True)))'"""))
program("key-value", "tokyocabinet", "tokyocabinet-bin",
        make=(pairs(1, 60000, "paste - - <pairs >p.tsv; tcbmgr create a.tcb; tcbmgr importtsv a.tcb p.tsv >/dev/null; rm p.tsv"),
              pairs(2, 25000, "paste - - <pairs >p.tsv; tchmgr create a.tch; tchmgr importtsv a.tch p.tsv >/dev/null; rm p.tsv")),
        run=("tcbmgr list -pv $IN/a.tcb", "tchmgr list -m 4000 -pv $IN/a.tch; tchmgr inform $IN/a.tch"))

# ---- archives ----

TREE = ("gen tree 1 500 t; gen mixed 1 4M t/big", "gen tree 2 1200 t; gen mixed 2 12M t/big")


def packed(a, b):
    return (f"{TREE[0]}; {a}; rm -r t", f"{TREE[1]}; {b}; rm -r t")


program("archive", "tar", "tar gzip", make=packed("tar cf a.tar t", "tar czf a.tar t"), run=("tar tvf $IN/a.tar", "tar xf $IN/a.tar"))
program("archive", "tar-create", "tar xz-utils", make=TREE, run=("tar cf a.tar -C $IN t", "tar cJf a.tar -C $IN --sort=name t"))
program("archive", "unzip", "unzip zip", make=packed("zip -qr a.zip t", "zip -qr0 a.zip t"), run=("unzip -l $IN/a.zip; unzip -p $IN/a.zip t/big", "unzip -q $IN/a.zip"))
program("archive", "7z", "p7zip-full", make=packed("7z a -bd a.7z t >/dev/null", "7z a -bd -ms=off -mx=1 a.7z t >/dev/null"),
        run=("7z x -bd $IN/a.7z", "7z l $IN/a.7z; 7z e -bd $IN/a.7z t/big"))
program("archive", "xz", "xz-utils", make=("gen text 1 20M a; xz -1 a", "gen mixed 2 24M a; xz -1 --block-size=2MiB a"), run=("xz -dc $IN/a.xz", "xz -lvv $IN/a.xz; xz -t -T2 $IN/a.xz"))
program("archive", "zstd", "zstd tar",
        make=("gen mixed 1 40M a; zstd -q --rm a", TREE[1] + "; tar cf - t | zstd -q --long >a.zst; rm -r t"),
        run=("zstd -q -d -o a $IN/a.zst", "zstd -q -dc --long $IN/a.zst | tar x"))
program("archive", "unsquashfs", "squashfs-tools", make=packed("mksquashfs t a.sq -quiet -no-progress", "mksquashfs t a.sq -quiet -no-progress -comp zstd -b 32K"),
        run=("unsquashfs -q -n -d all $IN/a.sq", "unsquashfs -lls $IN/a.sq | tail -n 1; unsquashfs -q -n -d one $IN/a.sq big"))
program("archive", "cpio", "cpio", make=packed("find t | cpio --quiet -o -H newc >a", "find t | cpio --quiet -o -H crc >a"), run=("cpio --quiet -t <$IN/a", "cpio --quiet -id -C 8192 <$IN/a"))

# ---- backup and deltas ----

BORG = "export BORG_BASE_DIR=$HOME BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes; "
BORG_RUN = "env BORG_BASE_DIR=$HOME BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes borg "
program("backup", "borg", "borgbackup",
        make=(BORG + "gen tree 1 500 t; gen mixed 1 6M t/big; borg init -e none r; borg create r::one t; rm -r t",
              BORG + "gen tree 2 300 t; gen mixed 2 16M t/big; borg init -e none r; borg create -C none r::one t; gen change 3 t; borg create r::two t; rm -r t"),
        before="cp -a $IN/r .", run=(BORG_RUN + "extract r::one", BORG_RUN + "check r"))
RESTIC = "export RESTIC_PASSWORD=a; "
RESTIC_RUN = "env RESTIC_PASSWORD=a restic -q --no-cache --no-lock -r $IN/r "
program("backup", "restic", "restic",
        make=(RESTIC + "gen tree 1 600 t; gen mixed 1 8M t/big; restic -q init -r r; restic -q --no-cache backup -r r t; rm -r t",
              RESTIC + "gen tree 2 300 t; gen noise 2 12M t/big; restic -q init -r r; restic -q --no-cache backup -r r t; gen change 3 t; restic -q --no-cache backup -r r t; rm -r t"),
        run=(RESTIC_RUN + "restore latest --target .", RESTIC_RUN + "check --read-data"))
program("backup", "rsync", "rsync",
        make=("gen tree 1 800 t; gen mixed 1 8M t/big", "gen tree 2 400 t; gen noise 2 16M t/big; cp -a t old; gen change 3 t"),
        before=("", "cp -a $IN/old old"), run=("rsync -a $IN/t/ new/", "rsync -a --no-whole-file --checksum $IN/t/ old/"))
program("backup", "rdiff-backup", "rdiff-backup",
        make=("gen tree 1 500 t", "gen tree 2 300 t; gen mixed 2 6M t/big; rdiff-backup t r; gen change 3 t; sleep 1.1; rdiff-backup t r"),
        before=("", "cp -a $IN/r ."), run=("rdiff-backup $IN/t r", "rdiff-backup --verify r"))
program("backup", "par2", "par2",
        make=("gen mixed 1 12M data.bin; par2 create -q -q -s65536 -r10 data.bin",
              "gen noise 2 6M data.bin; gen text 2 6M more.txt; par2 create -q -q -s32768 -r20 set data.bin more.txt; printf damaged | dd of=data.bin bs=1 seek=3000000 conv=notrunc status=none"),
        before="cp $IN/* .", run=("par2 verify -q data.bin.par2", "par2 repair -q set.par2"))
program("backup", "xdelta3", "xdelta3",
        make="mkdir d; gen mixed $SEED 16M d/new; cp -r d old; gen change $SEED d; xdelta3 -e -s old/new d/new delta",
        run=("xdelta3 -d -s $IN/old/new $IN/delta new", "xdelta3 -e -9 -B 4194304 -s $IN/old/new $IN/d/new delta"))

# ---- version control ----

GIT = """export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
gen tree $SEED FILES r; cd r; git init -q -b main; git add .; git commit -q -m first
for n in $(seq COMMITS); do gen change $n .; git commit -q -a -m "change $n"; done
"""
GIT_A, GIT_B = GIT.replace("FILES", "500").replace("COMMITS", "15"), GIT.replace("FILES", "250").replace("COMMITS", "40")
program("version-control", "git-clone", "git", make=(GIT_A + "git gc -q", GIT_B),
        run=("git clone -q --no-local $IN/r new", "git clone -q --no-local --bare $IN/r new"))
program("version-control", "git-log", "git", make=(GIT_A + "git gc -q", GIT_B),
        run=("git -C $IN/r --no-pager log --stat", "cd $IN/r; for f in $(git ls-files | head -n 5); do git --no-pager blame $f; done; git --no-pager log -p -S zzz"))
program("version-control", "git-status", "git", make=(GIT_A + "gen change 99 .", GIT_B + "git gc -q; gen change 99 ."),
        before="cp -r $IN/r .", run=("git -C r status", "git -C r diff --stat HEAD~5"))
program("version-control", "git-fsck", "git", make=(GIT_B, GIT_A + "git repack -q -a -d --depth=50"),
        run=("git -C $IN/r fsck --full", "git -C $IN/r --no-pager grep -n bana main~9"), ok=(0, 1))
HG = """export HGUSER=a; gen tree $SEED FILES r; cd r; hg init; hg add -q; hg commit -q -m first -d '0 0'
for n in $(seq COMMITS); do gen change $n .; hg commit -q -m "change $n" -d "$n 0"; done
"""
program("version-control", "mercurial", "mercurial",
        make=(HG.replace("FILES", "300").replace("COMMITS", "6"), HG.replace("FILES", "150").replace("COMMITS", "15")),
        before="cp -a $IN/r .", run=("hg clone -q --pull r new", "hg -R r log -p -l 6"))
SVN = """svnadmin create r; gen tree $SEED FILES t; svn import -q t file://$IN/r/trunk -m first --username a; rm -r t; svn checkout -q file://$IN/r/trunk w
for n in $(seq COMMITS); do gen change $n w; svn commit -q w -m "change $n" --username a; done; rm -rf w
"""
program("version-control", "subversion", "subversion",
        make=(SVN.replace("FILES", "250").replace("COMMITS", "3"), SVN.replace("FILES", "120").replace("COMMITS", "10")),
        before="cp -a $IN/r .", run=("svn checkout -q file://$OUT/r/trunk w", "svnadmin dump -q r"))
FOSSIL = """export USER=a; gen tree $SEED FILES t; fossil init a.fossil >/dev/null; cd t; fossil open -f ../a.fossil >/dev/null; fossil add . >/dev/null; fossil commit -m first --no-warnings >/dev/null
for n in 1 2 3 4; do gen change $n .; fossil commit -m "change $n" --no-warnings >/dev/null; done; fossil close; cd ..; rm -r t
"""
program("version-control", "fossil", "fossil", make=(FOSSIL.replace("FILES", "300"), FOSSIL.replace("FILES", "150")),
        before="cp $IN/a.fossil .", run=("env USER=a fossil open -f a.fossil --workdir w", "env USER=a fossil test-integrity -R a.fossil"))

# ---- columnar files: the end first, then columns ----


def table(seed, rows, write):
    """A table of 13 columns, written by pyarrow."""
    return f"""cat >fill.py <<'E'
import numpy, pyarrow, pyarrow.parquet, pyarrow.feather, pyarrow.orc
r = numpy.random.default_rng({seed})
n = {rows}
t = pyarrow.table({{"id": numpy.arange(n), "shop": r.integers(0, 1000, n), "price": r.lognormal(3, 1, n), "amount": r.integers(1, 20, n),
                   **{{f"x{{c}}": r.normal(size=n) for c in range(8)}}, "note": [f"note {{v}}" for v in r.integers(0, 10**6, n)]}})
{write}
E
$VENV/bin/python fill.py"""


def python(text):
    return f"$VENV/bin/python -c '{text}'"


program("columnar", "pyarrow-parquet", "", pip="pyarrow numpy",
        make=(table(1, 300000, 'pyarrow.parquet.write_table(t, "a.parquet", row_group_size=30000)'),
              table(2, 200000, '[pyarrow.parquet.write_table(t.slice(k * 20000, 20000), f"p{k}.parquet", row_group_size=4000, compression="zstd") for k in range(10)]')),
        run=(python('import os, pyarrow.parquet as p; print(p.read_table(os.environ["IN"] + "/a.parquet", columns=["shop", "price"]).num_rows)'),
             python('import os, pyarrow.dataset as d; print(d.dataset([os.environ["IN"] + f"/p{k}.parquet" for k in range(10)]).to_table(filter=d.field("id") > 150000, columns=["x1", "note"]).num_rows)')))
program("columnar", "pyarrow-feather", "", pip="pyarrow numpy",
        make=(table(1, 300000, 'pyarrow.feather.write_feather(t, "a.arrow", compression="uncompressed", chunksize=20000)'),
              table(2, 300000, 'pyarrow.feather.write_feather(t, "a.arrow", compression="lz4", chunksize=50000)')),
        run=(python('import os, pyarrow.feather as f, pyarrow.compute as c; t = f.read_table(os.environ["IN"] + "/a.arrow", memory_map=True); print(c.sum(t["price"]), c.max(t["x3"]))'),
             python('import os, pyarrow as a; r = a.ipc.open_file(os.environ["IN"] + "/a.arrow"); print(sum(r.get_batch(k).num_rows for k in (5, 1, 4)))')))
program("columnar", "orc", "", pip="pyarrow numpy",
        make=(table(1, 300000, 'pyarrow.orc.write_table(t, "a.orc", stripe_size=1 << 20)'), table(2, 400000, 'pyarrow.orc.write_table(t, "a.orc", stripe_size=8 << 20, compression="zlib")')),
        run=(python('import os, pyarrow.orc as o; print(o.read_table(os.environ["IN"] + "/a.orc", columns=["id", "note"]).num_rows)'),
             python('import os, pyarrow.orc as o; f = o.ORCFile(os.environ["IN"] + "/a.orc"); print([f.read_stripe(k, columns=["x2"]).num_rows for k in range(f.nstripes - 1, -1, -1)])')))
program("columnar", "duckdb", "", pip="duckdb",
        make=(python('import duckdb; duckdb.connect("a.db").execute("create table t as select i, i * 7919 % 1000 as shop, hash(i) as h, md5(i::varchar) as note from range(800000) r(i)")'),
              python('import duckdb; [duckdb.sql(f"copy (select i, i * 31 % 97 as k, md5(i::varchar) as note, hash(i) / 1e9 as x from range({n}00000, {n}00000 + 100000) r(i)) to $$p{n}.parquet$$ (format parquet, row_group_size 10000)") for n in range(6)]')),
        run=(python('import os, duckdb; print(duckdb.connect(os.environ["IN"] + "/a.db", read_only=True).execute("select shop, count(*), max(h) from t group by shop order by 3 limit 4").fetchall())'),
             python('import os, duckdb; print(duckdb.sql("select k, avg(x) from read_parquet($$" + os.environ["IN"] + "/*.parquet$$) where i % 7 = 0 group by k order by 2 limit 3").fetchall())')))
program("columnar", "polars", "", pip="polars numpy pyarrow",
        make=(table(1, 400000, 'pyarrow.parquet.write_table(t, "a.parquet", row_group_size=50000)'), "gen csv 2 200000 a.csv"),
        run=(python('import os, polars as p; print(p.scan_parquet(os.environ["IN"] + "/a.parquet").filter(p.col("shop") < 50).select("price", "x7").collect().shape)'),
             python('import os, polars as p; print(p.scan_csv(os.environ["IN"] + "/a.csv").group_by("shop").agg(p.col("price").mean()).collect().shape)')))

# ---- arrays of science ----

HDF5 = """cat >fill.py <<'E'
import h5py, numpy
r = numpy.random.default_rng(SEED)
with h5py.File("a.h5", "w") as f:
    f.create_dataset("big", data=r.normal(size=(1500, 1500)), chunks=CHUNKS)
    f.create_dataset("packed", data=r.integers(0, 9, (1000, 1000)), chunks=(100, 100), compression="gzip")
    for n in range(60):
        g = f.create_group(f"g{n}"); g.attrs["n"] = n; g["x"] = r.normal(size=3000)
E
$VENV/bin/python fill.py"""
HDF5 = (HDF5.replace("SEED", "1").replace("CHUNKS", "(50, 1500)"), HDF5.replace("SEED", "2").replace("CHUNKS", "(128, 128)"))
program("science", "h5py", "", pip="h5py numpy", make=HDF5,
        run=(python('import os, h5py; f = h5py.File(os.environ["IN"] + "/a.h5"); print(f["big"][:, 200:300].sum(), sum(f[f"g{n}/x"][0] for n in range(60)))'),
             python('import os, h5py; f = h5py.File(os.environ["IN"] + "/a.h5"); print(sum(f["big"][i * 131 % 1400:, i * 71 % 1400][:40].sum() for i in range(60)), f["packed"][...].sum())')))
program("science", "h5dump", "hdf5-tools", pip="h5py numpy", make=HDF5,
        run=("h5dump -d packed $IN/a.h5", "h5ls -r -v $IN/a.h5; h5repack -f GZIP=1 $IN/a.h5 b.h5"))
CDL = """python3 - >a.cdl <<'E'
import random
r = random.Random(SEED); t, y, x = SHAPE
print(f"netcdf a {{ dimensions: time = unlimited; y = {y}; x = {x}; variables: double time(time); float temp(time, y, x); short rain(time, y, x); data: time = " + ", ".join(map(str, range(t))) + ";")
print("temp = " + ",".join(f"{r.random():.3f}" for _ in range(t * y * x)) + ";")
print("rain = " + ",".join(str(r.randrange(99)) for _ in range(t * y * x)) + "; }")
E
ncgen KIND -o a.nc a.cdl; rm a.cdl"""
program("science", "netcdf", "netcdf-bin",
        make=(CDL.replace("SEED", "1").replace("SHAPE", "60, 100, 120").replace("KIND", "-3"), CDL.replace("SEED", "2").replace("SHAPE", "30, 120, 150").replace("KIND", "-4")),
        run=("ncdump -v rain $IN/a.nc", "nccopy -c time/1,y/40,x/50 -d1 $IN/a.nc b.nc"))
program("science", "zarr", "", pip="zarr numpy",
        make="""cat >fill.py <<'E'
import os, zarr, numpy
s = int(os.environ["SEED"])
z = zarr.open("a.zarr", mode="w", shape=(1200, 1200), chunks=(100, 100) if s == 1 else (40, 60), dtype="f8")
z[:] = numpy.random.default_rng(s).normal(size=(1200, 1200))
E
$VENV/bin/python fill.py""",
        run=(python('import os, zarr; print(zarr.open(os.environ["IN"] + "/a.zarr", mode="r")[:].sum())'),
             python('import os, zarr; z = zarr.open(os.environ["IN"] + "/a.zarr", mode="r"); print(z[300:500, :].sum(), z[:, 7].sum())')))
program("science", "fits", "libcfitsio-bin",
        make=("gen fits 1 6 768 a.fits", "gen fits 2 3 1024 a.fits; fpack a.fits; rm a.fits"), run=("fpack -O b.fz $IN/a.fits", "funpack -O b.fits $IN/a.fits.fz"))

# ---- genomics ----

BAM = "gen fasta $SEED 4 COUNT ref.fa; gen fastq $SEED READS 150 ref.fa r.fq; minimap2 -a -x sr ref.fa r.fq 2>/dev/null | samtools sort -o a.bam - 2>/dev/null; samtools index a.bam; samtools faidx ref.fa; rm r.fq"


def bam(count, reads):
    return BAM.replace("COUNT", count).replace("READS", str(reads))


program("genomics", "samtools", "samtools minimap2", make=(bam("1M", 60000), bam("256K", 50000)),
        run=("for c in 1 2 3 4; do samtools view $IN/a.bam chr$c:300000-340000 chr$c:50000-52000; done", "samtools mpileup -f $IN/ref.fa $IN/a.bam"))
program("genomics", "samtools-sort", "samtools minimap2", make=(bam("512K", 80000), bam("512K", 120000)),
        run=("samtools sort -n -m 8M -o b.bam $IN/a.bam", "samtools flagstat -@ 1 $IN/a.bam; samtools view -@ 1 -C -T $IN/ref.fa -o b.cram $IN/a.bam"))
program("genomics", "bcftools", "bcftools tabix",
        make=("gen vcf 1 60000 60 a.vcf; bgzip a.vcf; tabix -p vcf a.vcf.gz", "gen vcf 2 30000 150 a.vcf; bcftools view -Ob -o a.bcf a.vcf; bcftools index a.bcf; rm a.vcf"),
        run=("bcftools view -r chr2:100000-300000,chr7:4000000-4900000,chr4:1-500000 $IN/a.vcf.gz", "bcftools stats $IN/a.bcf"))
program("genomics", "tabix", "tabix",
        make="gen bed $SEED $((SEED * 150000)) a.bed; bgzip a.bed; tabix -p bed a.bed.gz; gen bed 9 $((SEED * 60)) regions.bed",
        run=("tabix $IN/a.bed.gz -R $IN/regions.bed", "for c in 8 3 5 1; do tabix $IN/a.bed.gz chr$c:2000000-2600000; done"))
program("genomics", "bwa", "bwa",
        make="gen fasta $SEED 4 $((SEED * 2))M ref.fa; gen fastq $SEED $((20000 / SEED)) 100 ref.fa r.fq; bwa index ref.fa 2>/dev/null",
        run=("bwa mem $IN/ref.fa $IN/r.fq", "bwa aln -t 2 $IN/ref.fa $IN/r.fq"))
program("genomics", "minimap2", "minimap2",
        make=("gen fasta 1 4 4M ref.fa; gen fastq 1 20000 200 ref.fa r.fq", "gen fasta 2 3 4M ref.fa; gen fastq 2 2000 5000 ref.fa r.fq; minimap2 -x map-ont -d ref.mmi ref.fa 2>/dev/null"),
        run=("minimap2 -a -x sr -t 2 $IN/ref.fa $IN/r.fq", "minimap2 -x map-ont -t 2 $IN/ref.mmi $IN/r.fq"))
program("genomics", "bedtools", "bedtools",
        make=("gen bed 1 120000 a.bed; gen bed 2 120000 b.bed", "gen fasta 2 8 5M ref.fa; gen bed 3 4000 a.bed"),
        run=("bedtools intersect -sorted -a $IN/a.bed -b $IN/b.bed -c", "bedtools getfasta -fi $IN/ref.fa -bed $IN/a.bed -fo out.fa"))
program("genomics", "blast", "ncbi-blast+",
        make=("gen fasta 1 12 1M db.fa; gen fastq 1 30 300 db.fa q.fq; sed -n '1~4s/^@/>/p;2~4p' q.fq >q.fa; makeblastdb -in db.fa -dbtype nucl -out db >/dev/null",
              "gen proteins 2 40000 db.fa; head -n 40 db.fa >q.fa; makeblastdb -in db.fa -dbtype prot -out db >/dev/null"),
        run=("blastn -query $IN/q.fa -db $IN/db -num_threads 2", "blastp -query $IN/q.fa -db $IN/db -evalue 1e-9"))
program("genomics", "bowtie2", "bowtie2",
        make="gen fasta $SEED 3 $((SEED * 2))M ref.fa; gen fastq $SEED $((20000 / SEED)) 80 ref.fa r.fq; bowtie2-build -q ref.fa ref",
        run=("bowtie2 -x $IN/ref -U $IN/r.fq", "bowtie2 --mm -p 2 --very-sensitive -x $IN/ref -U $IN/r.fq"))

# ---- images and maps ----


def photo(seed, width, height, then):
    return f"gen picture {seed} {width} {height} p.ppm; {then}; rm p.ppm"


def photos(count, width, height, each):
    return f"for n in $(seq {count}); do gen picture $n {width} {height} p.ppm; {each}; done; rm p.ppm"


program("image", "imagemagick", "imagemagick",
        make=(photos(6, 1600, 1100, "convert p.ppm -quality 90 p$n.jpg"), photo(2, 3000, 2200, "convert p.ppm p.png")),
        run=("for n in 1 2 3 4 5 6; do convert $IN/p$n.jpg -resize 300 t$n.jpg; done", "convert $IN/p.png -rotate 90 -blur 0x2 out.png"))
program("image", "exiftool", "libimage-exiftool-perl imagemagick",
        make=("gen picture 1 700 500 p.ppm; for n in $(seq 80); do convert p.ppm -quality $n p$n.jpg; done; rm p.ppm",
              "gen picture 2 1200 900 p.ppm; for n in $(seq 8); do convert p.ppm -resize $((n * 20))% p$n.tif; convert p.ppm p$n.png; done; rm p.ppm; gen sound 1 60 s.wav; gen pdf 1 200 d.pdf"),
        run=("exiftool -q -r -csv $IN", "exiftool -a -u -g1 $IN"))
program("image", "vips", "libvips-tools",
        make=(photo(1, 4000, 3000, "vips tiffsave p.ppm p.tif --tile"), photo(2, 3600, 2700, "vips jpegsave p.ppm p.jpg")),
        run=("vips crop $IN/p.tif out.png 1800 1200 500 500", "vips thumbnail $IN/p.jpg out.png 256"))
program("image", "libtiff", "libtiff-tools libvips-tools",
        make=(photos(6, 1200, 900, "vips tiffsave p.ppm p$n.tif") + "; tiffcp p?.tif all.tif; rm p?.tif", photo(2, 3000, 2500, "vips tiffsave p.ppm p.tif --tile --compression deflate")),
        run=("tiffcp $IN/all.tif,4 $IN/all.tif,1 out.tif", "tiffinfo -D $IN/p.tif; tiffcp -s -r 16 $IN/p.tif out.tif"))
program("image", "djpeg", "libjpeg-turbo-progs",
        make=(photo(1, 3000, 2200, "cjpeg -quality 95 p.ppm >p.jpg"), photos(8, 900, 700, "cjpeg -progressive p.ppm >p$n.jpg")),
        run=("djpeg -outfile out.ppm $IN/p.jpg", "for n in 1 2 3 4 5 6 7 8; do jpegtran -rotate 90 -outfile o.jpg $IN/p$n.jpg || exit 1; done"))
program("maps", "gdal-raster", "gdal-bin",
        make=(photo(1, 4000, 3000, "gdal_translate -q -co TILED=YES p.ppm p.tif; gdaladdo -q p.tif 2 4 8"), photo(2, 3000, 2500, "gdal_translate -q p.ppm p.tif")),
        run=("gdal_translate -q -srcwin 2000 900 600 600 $IN/p.tif out.png", "gdalwarp -q -ts 1000 900 -r bilinear -wm 4 -to SRC_METHOD=NO_GEOTRANSFORM $IN/p.tif out.tif"))
POINTS = """python3 - >a.csv <<'E'
import random
r = random.Random(SEED)
print("id,lon,lat,name")
for n in range(ROWS): print(f"{n},{r.uniform(-20, 40):.5f},{r.uniform(30, 70):.5f},n{n * 7919 % 1000}")
E
ogr2ogr -f KIND -oo X_POSSIBLE_NAMES=lon -oo Y_POSSIBLE_NAMES=lat -a_srs EPSG:4326 OUT a.csv; rm a.csv"""
program("maps", "gdal-vector", "gdal-bin",
        make=(POINTS.replace("SEED", "1").replace("ROWS", "60000").replace("KIND", "GPKG").replace("OUT", "a.gpkg"),
              POINTS.replace("SEED", "2").replace("ROWS", "120000").replace("KIND", "'ESRI Shapefile'").replace("OUT", "a.shp")),
        run=("ogr2ogr -f GeoJSON -spat 3 40 9 45 out.json $IN/a.gpkg", """ogr2ogr -f CSV -sql "SELECT id FROM a WHERE name = 'n77'" out.csv $IN/a.shp"""))

# ---- video and sound ----


def film(seconds, size, name, options=""):
    return (f"ffmpeg -loglevel error -f lavfi -i testsrc2=size={size}:rate=25:duration={seconds} -f lavfi -i sine=duration={seconds} "
            f"-c:v libx264 -preset ultrafast -b:v 3M -c:a aac {options} {name}")


program("video", "ffmpeg", "ffmpeg", make=(film(40, "640x360", "a.mp4"), film(90, "480x270", "a.mkv")),
        run=("ffmpeg -loglevel error -ss 27 -i $IN/a.mp4 -frames:v 20 out%02d.png", "ffmpeg -loglevel error -i $IN/a.mkv -c copy -movflags +faststart out.mp4"))
program("video", "ffprobe", "ffmpeg",
        make=(f"for n in 1 2 3 4 5 6; do {film('$((n * 5))', '320x240', 'a$n.mp4', '-movflags +faststart')}; done", f"for n in 1 2 3 4 5 6; do {film('$((n * 5))', '320x240', 'a$n.mp4')}; done"),
        run=("for n in 1 2 3 4 5 6; do ffprobe -loglevel error -show_streams $IN/a$n.mp4; done", "for n in 6 2 4; do ffprobe -loglevel error -count_packets -show_entries stream=nb_read_packets $IN/a$n.mp4; done"))
program("video", "mkvtoolnix", "mkvtoolnix ffmpeg", make=(film(60, "480x270", "a.mkv"), film(60, "480x270", "a.mkv") + "; mkvmerge -q -o b.mkv --split 10s a.mkv"),
        run=("mkvextract -q $IN/a.mkv tracks 1:audio.aac", "mkvinfo -v $IN/b-002.mkv; mkvmerge -q -o all.mkv $IN/b-001.mkv + $IN/b-002.mkv + $IN/b-003.mkv"))
program("video", "mediainfo", "mediainfo ffmpeg",
        make=(f"for n in 1 2 3; do {film('$((n * 12))', '640x360', 'a$n.mp4')}; done", f"for n in 1 2 3; do {film('$((n * 12))', '640x360', 'a$n.ts')}; done"),
        run=("mediainfo $IN", "mediainfo --ParseSpeed=1 -f $IN"))
program("video", "flac", "flac", make="gen sound $SEED $((SEED * 60)) a.wav; flac -s a.wav",
        run=("flac -s -d --skip=0:40 --until=0:50 -o b.wav $IN/a.flac", "flac -s -8 -o b.flac $IN/a.wav"))

# ---- mail ----

NOTMUCH = "printf '[database]\\npath=%s/mail\\n[user]\\nname=a\\nprimary_email=a@example.org\\n[new]\\ntags=new\\n' WHERE >config"
program("mail", "notmuch-new", "notmuch", make="gen maildir $SEED $((SEED * 700)) mail/in; " + NOTMUCH.replace("WHERE", "$OUT"),
        before=("cp -a $IN/mail .", "cp -a $IN/mail .; NOTMUCH_CONFIG=$IN/config notmuch new --quiet; gen maildir 9 300 mail/more"), run="env NOTMUCH_CONFIG=$IN/config notmuch new --quiet")
program("mail", "notmuch-search", "notmuch", make="gen maildir $SEED $((SEED * 900)) mail/in; " + NOTMUCH.replace("WHERE", "$IN") + "; NOTMUCH_CONFIG=$IN/config notmuch new --quiet",
        run=("env NOTMUCH_CONFIG=$IN/config notmuch search bana", "env NOTMUCH_CONFIG=$IN/config notmuch show --format=json date:2026-03-05..2026-03-09"))
program("mail", "mu", "maildir-utils",
        make="gen maildir $SEED $((SEED * 700)) mail/in; mu init --quiet --muhome=$IN/mu --maildir=$IN/mail; [ $SEED = 1 ] || mu index --quiet --muhome=$IN/mu",
        before="cp -a $IN/mu .", run=("mu index --quiet --muhome=$OUT/mu", "mu find --muhome=$OUT/mu from:example.org | tail -n 3; mu find --muhome=$OUT/mu --sortfield=size date:20260301..20260312 --fields l | head -n 60 | xargs cat"))
program("mail", "formail", "procmail", make="gen mbox $SEED $((SEED * 400)) box",
        ok=(0, 74), run=("formail -s formail -x Subject: <$IN/box", "formail +300 -200 -s cat <$IN/box"))
program("mail", "bogofilter", "bogofilter-bdb bogofilter",
        make="gen mbox 1 1200 ham; gen mbox 2 1200 spam; gen maildir 3 400 mail; mkdir db; bogofilter -d db -M -n <ham; bogofilter -d db -M -s <spam",
        before="cp -a $IN/db .", run=("bogofilter -d db -T -B $IN/mail/cur", "bogofilter -d db -M -s -I $IN/ham"), ok=(0, 1, 2))
program("mail", "dovecot", "dovecot-core",
        make="gen maildir $SEED $((SEED * 500)) mail; printf 'log_path = /dev/stderr\\nstats_writer_socket_path =\\nprotocols =\\nmail_uid = 65534\\nmail_gid = 65534\\n' >conf",
        before="cp -a $IN/mail .; chown -R 65534:65534 mail",
        run=("env USER=a doveadm -c $IN/conf -o mail_location=maildir:$OUT/mail search text bana", "env USER=a doveadm -c $IN/conf -o mail_location=maildir:$OUT/mail fetch 'hdr.subject size.virtual' all"))

# ---- package managers ----

program("package-manager", "dpkg-verify", "dpkg perl-modules-5.36 git", run=("dpkg --verify perl-modules-5.36", "dpkg --verify perl-base coreutils git"))
program("package-manager", "dpkg-deb", "dpkg",
        make="gen tree $SEED $((SEED * 400)) p/usr/share/x; gen mixed $SEED 6M p/usr/lib/x; mkdir p/DEBIAN; printf 'Package: x\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@example.org>\\nDescription: x\\n' >p/DEBIAN/control; dpkg-deb --root-owner-group -Zxz -z1 -b p x.deb >/dev/null; rm -r p",
        run=("dpkg-deb -x $IN/x.deb out", "dpkg-deb -I $IN/x.deb; dpkg-deb -c $IN/x.deb"))
program("package-manager", "dpkg-query", "dpkg", run=("dpkg-query -l", "dpkg-query -S /usr/bin/git"))
program("package-manager", "apt-cache", "apt ffmpeg", run=("apt-cache search archive", "apt-cache depends --recurse --installed ffmpeg"))
program("package-manager", "pip", "python3-venv", pip="pip numpy duckdb",
        make=("""mkdir w; for n in $(seq 30); do gen tree $n 20 s/p$n/pkg$n; done
python3 - <<'E'
import pathlib, zipfile
for n in range(1, 31):
    root = pathlib.Path(f"s/p{n}")
    with zipfile.ZipFile(f"w/pkg{n}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        names = []
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            wheel.write(path, path.relative_to(root)); names.append(f"{path.relative_to(root)},,")
        about = f"pkg{n}-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\\nName: pkg{n}\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        names += [f"{about}/{part},," for part in ("METADATA", "WHEEL", "RECORD")]
        wheel.writestr(f"{about}/RECORD", "\\n".join(names) + "\\n")
E
rm -r s""", ""),
        run=("$VENV/bin/pip install -q --disable-pip-version-check --no-index --no-deps --target t $IN/w/*.whl", "$VENV/bin/pip --disable-pip-version-check show -f numpy duckdb"))
program("package-manager", "npm", "nodejs",
        make="""mkdir -p m; for n in $(seq $((SEED * 15))); do gen tree $n 12 m/p$n/lib; printf '{"name":"p%s","version":"1.0.0"}' $n >m/p$n/package.json; done
{ printf '{"name":"app","version":"1.0.0","dependencies":{'; for n in $(seq $((SEED * 15))); do [ $n = 1 ] || printf ,; printf '"p%s":"file:m/p%s"' $n $n; done; printf '}}'; } >package.json""",
        before="cp -a $IN/. .; [ $SIDE = a ] || npm install --offline --no-audit --no-fund --silent --install-links",
        run=("npm install --offline --no-audit --no-fund --silent --install-links", "npm ls --all --long"), ok=(0, 1))
program("package-manager", "rpm", "rpm cpio",
        make="""gen tree $SEED $((SEED * 250)) src; mkdir -p top; cat >x.spec <<E
Name: x
Version: 1
Release: 1
Summary: x
License: x
BuildArch: noarch
%description
x
%install
mkdir -p %{buildroot}/opt/x; cp -r $IN/src/* %{buildroot}/opt/x/
%files
/opt/x
E
rpmbuild -bb --quiet --define "_topdir $IN/top" x.spec; mv top/RPMS/noarch/*.rpm x.rpm; rm -r top src""",
        run=("rpm2cpio $IN/x.rpm | cpio --quiet -id", "rpm --dbpath $OUT/db -qp --qf '[%{FILENAMES} %{FILESIZES}\\n]' $IN/x.rpm; rpm --dbpath $OUT/db -K --nosignature $IN/x.rpm"))

# ---- containers ----

IMAGE = "gen docker_archive $SEED $((SEED * 3)) $((240 / SEED)) i.tar; echo '{\"default\":[{\"type\":\"insecureAcceptAnything\"}]}' >policy.json"
program("container", "skopeo", "skopeo", make=IMAGE,
        run=("skopeo --policy $IN/policy.json copy -q docker-archive:$IN/i.tar oci:$OUT/o:1", "skopeo --policy $IN/policy.json copy -q docker-archive:$IN/i.tar dir:$OUT/d"))
program("container", "umoci", "umoci skopeo", make=IMAGE + "; skopeo --policy policy.json copy -q docker-archive:i.tar oci:o:1; rm i.tar",
        run=("umoci unpack --rootless --image $IN/o:1 bundle", "umoci stat --image $IN/o:1; umoci raw unpack --rootless --image $IN/o:1 root"))
program("container", "docker-layers", "tar jq", make=IMAGE,
        run=("tar xf $IN/i.tar; for l in $(jq -r '.[0].Layers[]' manifest.json); do tar xf $l; done",
             "tar xOf $IN/i.tar manifest.json | jq -r '.[0].Layers[]' | tac | while read l; do tar xOf $IN/i.tar $l | tar t | tail -n 1; done"))

# ---- model loaders ----

program("model-loader", "safetensors", "", pip="safetensors numpy",
        make="""cat >fill.py <<'E'
import os, numpy, safetensors.numpy
r = numpy.random.default_rng(int(os.environ["SEED"]))
d = 256 if os.environ["SEED"] == "1" else 320
safetensors.numpy.save_file({f"layers.{n}.{part}": r.normal(size=(d, d * k)).astype("f2") for n in range(16) for part, k in (("q", 1), ("k", 1), ("v", 1), ("up", 4), ("down", 4))}, "m.safetensors")
E
$VENV/bin/python fill.py""",
        run=(python('import os, safetensors.numpy as s; print(sum(float(t[0, 0]) for t in s.load_file(os.environ["IN"] + "/m.safetensors").values()))'),
             python('import os, safetensors; f = safetensors.safe_open(os.environ["IN"] + "/m.safetensors", "numpy"); print(sum(f.get_slice(k)[:, 100:200].sum() for k in sorted(f.keys())[::7]))')))
program("model-loader", "gguf", "", pip="gguf numpy",
        make="""cat >fill.py <<'E'
import os, numpy, gguf
r = numpy.random.default_rng(int(os.environ["SEED"]))
w = gguf.GGUFWriter("m.gguf", "llama"); w.add_block_count(8); w.add_token_list([f"token{n}" for n in range(8000)])
for n in range(12):
    w.add_tensor(f"blk.{n}.w", r.normal(size=(512, 1024 * int(os.environ["SEED"]))).astype("f2"))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
E
$VENV/bin/python fill.py""",
        run=(python('import os, gguf; print(sum(float(t.data.sum(dtype="f8")) for t in gguf.GGUFReader(os.environ["IN"] + "/m.gguf").tensors))'),
             python('import os, gguf; r = gguf.GGUFReader(os.environ["IN"] + "/m.gguf"); print(len(r.fields), [float(r.tensors[n].data[:40].sum(dtype="f8")) for n in (11, 3, 7)])')))
program("model-loader", "onnx", "", pip="onnx numpy",
        make="""cat >fill.py <<'E'
import os, numpy, onnx
from onnx import helper, numpy_helper
s = int(os.environ["SEED"]); r = numpy.random.default_rng(s)
parts = [numpy_helper.from_array(r.normal(size=(256, 512)).astype("f4"), f"w{n}") for n in range(24)]
g = helper.make_graph([helper.make_node("Add", ["w0", "w1"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, [256, 512])], parts)
onnx.save(helper.make_model(g), "m.onnx", save_as_external_data=s == 2, all_tensors_to_one_file=True, location="weights", size_threshold=0)
E
$VENV/bin/python fill.py""",
        run=(python('import os, onnx; print(len(onnx.load(os.environ["IN"] + "/m.onnx").graph.initializer))'),
             python('import os, onnx; print(len(onnx.load(os.environ["IN"] + "/m.onnx").graph.initializer)); onnx.load_model(os.environ["IN"] + "/m.onnx", load_external_data=False)')))
program("model-loader", "numpy-batches", "", pip="numpy",
        make=python('import os, numpy; s = int(os.environ["SEED"]); numpy.save("x.npy", numpy.random.default_rng(s).normal(size=(3000 * s, 3 * 32 * 32 // s)).astype("f4"))'),
        run=(python('import os, numpy; x = numpy.load(os.environ["IN"] + "/x.npy", mmap_mode="r"); o = numpy.random.default_rng(3).permutation(len(x)); print(sum(float(x[sorted(o[i:i + 64])].mean()) for i in range(0, 1280, 64)))'),
             python('import os, numpy; x = numpy.load(os.environ["IN"] + "/x.npy", mmap_mode="r"); print(sum(float(x[i::97, :200].mean()) for i in range(20)))')))
program("model-loader", "checkpoint", "", pip="numpy",
        make=python('import os, numpy; s = int(os.environ["SEED"]); r = numpy.random.default_rng(s); (numpy.savez if s == 1 else numpy.savez_compressed)("c.npz", **{f"t{n}": r.normal(size=(200, 1000)).astype("f4") for n in range(30 // s)})'),
        run=(python('import os, numpy; c = numpy.load(os.environ["IN"] + "/c.npz"); print(sum(float(c[k].sum()) for k in c.files))'),
             python('import os, numpy; c = numpy.load(os.environ["IN"] + "/c.npz"); print([float(c[k].sum()) for k in ("t12", "t3", "t9")])')))

# ---- search ----

SOURCES = ("gen tree 1 900 t", "gen tree 2 400 t; gen text 2 12M t/big.txt")
program("search", "grep", "grep", make=SOURCES, run=("grep -rn 'ba.*ba' $IN/t", "grep -c 'fu.*nanka$' $IN/t/big.txt"), ok=(0, 1))
program("search", "ripgrep", "ripgrep", make=SOURCES, run=("rg -c ba $IN/t", "rg -j1 -U --multiline 'return.*\\n.*def' $IN/t"), ok=(0, 1))
program("search", "ag", "silversearcher-ag", make=SOURCES, run=("ag -c ba $IN/t", "ag --nommap -w bana $IN/t"), ok=(0, 1))
program("search", "ugrep", "ugrep", make=(SOURCES[0] + "; tar czf t.tgz t", SOURCES[1]), run=("ugrep -r -z -c ba $IN", "ugrep -J2 -r -n '[a-z]{12}' $IN/t"), ok=(0, 1))
program("search", "find-xargs", "findutils", make=SOURCES, run=("find $IN/t -name '*.c' | xargs -n 40 wc -l", "find $IN/t -type f -size +8k | xargs -P 2 -n 5 md5sum"))
program("search", "plocate", "plocate",
        make="for n in $(seq $((SEED * 40))); do mkdir -p t/d$n; (cd t/d$n; seq -f 'name%.0f-'$n'.txt' $((SEED * 400)) | xargs touch); done; updatedb -l no -U $IN/t -o $IN/db --prunepaths '' --prunefs ''; rm -r t",
        run=("plocate -d $IN/db name7 -c", "plocate -d $IN/db -r 'na.e[0-9]+1-3'"), ok=(0, 1))
program("search", "xapian", "xapian-omega xapian-tools", make="gen tree $SEED $((SEED * 400)) t; [ $SEED = 1 ] || omindex -s none -D db -U / t >/dev/null",
        run=("omindex -s none -D db -U / $IN/t", "for w in bana dosu kaba fume rasa; do quest -d $IN/db -m 20 $w; done; xapian-check $IN/db"))
program("search", "recoll", "recollcmd",
        make="gen tree $SEED 300 t; mkdir conf; printf 'topdirs = %s/t\\nidxflushmb = 10\\n' $IN >conf/recoll.conf; [ $SEED = 1 ] || recollindex -c $IN/conf >/dev/null 2>&1",
        before="cp -a $IN/conf .", run=("recollindex -c $OUT/conf", "recollq -c $OUT/conf -n 30 bana OR dosu"))
program("search", "codesearch", "codesearch", make=(SOURCES[0], SOURCES[1] + "; CSEARCHINDEX=$IN/index cindex $IN/t 2>/dev/null"),
        run=("env CSEARCHINDEX=$OUT/index cindex $IN/t", "env CSEARCHINDEX=$IN/index csearch 'return.*(37|59);'"), ok=(0, 1))
program("search", "global", "global", make="gen tree $SEED $((SEED * 400)) t; cd t; [ $SEED = 1 ] || gtags",
        before="cp -a $IN/t .", run=("cd t && gtags", "cd t && global -x . | tail -n 3; global -rx bana; global -g return | tail -n 1"))

# ---- documents ----

program("document", "pdftotext", "poppler-utils", make="gen pdf $SEED $((SEED * 250)) d.pdf", run=("pdftotext $IN/d.pdf out.txt", "pdftotext -f 390 -l 400 $IN/d.pdf out.txt"))
program("document", "pdftoppm", "poppler-utils", make="gen pdf $SEED $((SEED * 150)) d.pdf",
        run=("pdftoppm -r 30 -l 20 $IN/d.pdf p", "pdfinfo $IN/d.pdf; pdfimages -list $IN/d.pdf; pdfseparate -f 290 -l 295 $IN/d.pdf p%d.pdf"))
program("document", "ghostscript", "ghostscript", make="gen pdf $SEED $((SEED * 60)) d.pdf",
        run=("gs -q -dNOPAUSE -dBATCH -sDEVICE=png16m -r20 -dLastPage=15 -sOutputFile=p%d.png $IN/d.pdf", "gs -q -dNOPAUSE -dBATCH -sDEVICE=pdfwrite -sOutputFile=o.pdf $IN/d.pdf"))
program("document", "qpdf", "qpdf", make="gen pdf $SEED $((SEED * 300)) d.pdf", run=("qpdf --linearize $IN/d.pdf o.pdf", "qpdf --empty --pages $IN/d.pdf 550-560,3,100-110 -- o.pdf"))
program("document", "mupdf", "mupdf-tools", make="gen pdf $SEED $((SEED * 200)) d.pdf", run=("mutool draw -F txt -o out.txt $IN/d.pdf", "mutool clean -gggg $IN/d.pdf o.pdf 380-400"))
program("document", "djvu", "djvulibre-bin",
        make=(photos(12, 900, 700, "c44 p.ppm p$n.djvu") + "; djvm -c a.djvu p*.djvu; rm p*", photos(24, 900, 700, "c44 p.ppm p$n.djvu") + "; djvm -c a.djvu p*.djvu; rm p*"),
        run=("ddjvu -format=ppm -page=7 $IN/a.djvu o.ppm", "djvudump $IN/a.djvu; ddjvu -format=tiff -page=20-24 $IN/a.djvu o.tif"))

# ---- disk images: metadata here and there, then data ----

EXT4 = "truncate -s 48M d.img; gen tree $SEED $((SEED * 500)) t; gen mixed $SEED 8M t/big; mkfs.ext4 -q -b $((SEED == 1 ? 1024 : 4096)) -d t d.img; rm -r t"
program("disk-image", "e2fsck", "e2fsprogs", make=EXT4, run=("e2fsck -fn $IN/d.img", "e2fsck -fnt $IN/d.img"))
program("disk-image", "debugfs", "e2fsprogs", make=EXT4, run=("debugfs -R 'rdump / .' $IN/d.img", "debugfs -R 'ls -l /' $IN/d.img; debugfs -R 'dump /big big' $IN/d.img; e2image $IN/d.img meta.e2i"))
program("disk-image", "qemu-img", "qemu-utils e2fsprogs",
        make=(EXT4 + "; qemu-img convert -O qcow2 d.img d.qcow2; rm d.img", EXT4 + "; qemu-img convert -O qcow2 -c d.img d.qcow2"),
        run=("qemu-img convert -O raw $IN/d.qcow2 o.img", "qemu-img check $IN/d.qcow2; qemu-img compare $IN/d.img $IN/d.qcow2"))
program("disk-image", "xfs", "xfsprogs",
        make="""gen tree $SEED $((SEED * 600)) t; truncate -s 320M d.img
python3 - >proto <<'E'
import os
def walk(folder):
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            print(f"{entry.name} d--755 0 0"); walk(entry.path); print("$")
        else:
            print(f"{entry.name} ---644 0 0 {entry.path}")
print("/dev/null\\n0 0\\nd--755 0 0"); walk("t"); print("$")
E
mkfs.xfs -q -p proto d.img; rm -r t""",
        run=("xfs_repair -n -f $IN/d.img", "xfs_db -r -f -c 'frag -v' -c 'freesp -s' $IN/d.img; xfs_metadump $IN/d.img meta"))
program("disk-image", "btrfs-check", "btrfs-progs",
        make="truncate -s 128M d.img; gen tree $SEED $((SEED * 500)) t; gen mixed $SEED 4M t/big; mkfs.btrfs -q -r t d.img; rm -r t",
        run=("btrfs check --readonly $IN/d.img", "btrfs inspect-internal dump-tree $IN/d.img | tail -n 1; btrfs restore $IN/d.img ."))
program("disk-image", "mtools", "mtools dosfstools",
        make="truncate -s 40M d.img; mkfs.vfat $([ $SEED = 1 ] || echo -F 32 -s 1) d.img >/dev/null; gen tree $SEED 300 t; gen mixed $SEED 6M t/big; mcopy -i d.img -s -Q t ::; rm -r t",
        run=("mcopy -i $IN/d.img -s -n ::t .", "mdir -i $IN/d.img -/ -b ::; mcopy -i $IN/d.img -n ::t/big ."))
program("disk-image", "sleuthkit", "sleuthkit e2fsprogs", make=EXT4, run=("fls -r -p $IN/d.img", "tsk_recover -a $IN/d.img out"))
program("disk-image", "isoinfo", "genisoimage xorriso",
        make="gen tree $SEED $((SEED * 400)) t; gen mixed $SEED 8M t/big; genisoimage -quiet -R -J -o d.iso t; rm -r t",
        run=("isoinfo -l -R -i $IN/d.iso; isoinfo -R -x /big -i $IN/d.iso", "xorriso -osirrox on -report_about FAILURE -indev $IN/d.iso -extract / out"))

# ---- captures and logs ----

program("log", "tshark", "tshark", make="gen pcap $SEED $((SEED * 15000)) a.pcap", run=("tshark -r $IN/a.pcap -Y 'tcp.port == 443' -T fields -e frame.number", "tshark -2 -r $IN/a.pcap -q -z conv,tcp"))
program("log", "tcpdump", "tcpdump", make="gen pcap $SEED $((SEED * 60000)) a.pcap", run=("tcpdump -n -r $IN/a.pcap port 25", "tcpdump -n -r $IN/a.pcap -w out.pcap -C 4 -Z root tcp"))
program("log", "goaccess", "goaccess", make="gen weblog $SEED $((SEED * 5))M access.log",
        run=("goaccess $IN/access.log --log-format=COMBINED --no-global-config -o out.json", "goaccess $IN/access.log --log-format=COMBINED --no-global-config -o out.csv --no-query-string"))
program("log", "zgrep", "gzip grep", make="for n in 1 2 3 4 5 6; do gen weblog $((SEED * 10 + n)) 3M access.log.$n; [ $n = 1 ] || gzip access.log.$n; done",
        run=("zgrep -c ' 500 ' $IN/access.log.*", "tail -n 2000 $IN/access.log.1 | grep -c 404; zcat $IN/access.log.[65].gz | mawk '{ n[$9]++ } END { for (k in n) print k, n[k] }'"))

# ---- text and tables ----

program("text", "sort", "coreutils", make=("gen csv 1 250000 a.csv", "gen text 2 24M a.csv"), run=("sort -t, -k3,3 -k6,6n -S 4M -o out $IN/a.csv", "sort --parallel=2 -S 2M -u -o out $IN/a.csv"))
program("text", "join", "coreutils", make="gen csv 1 120000 a; gen csv 2 120000 b; sort -t, -k1,1 a >x; sort -t, -k1,1 b >y; rm a b",
        run=("join -t, $IN/x $IN/y", "comm -3 $IN/x $IN/y; paste -d, $IN/x $IN/y"))
program("text", "awk", "mawk", make="gen csv $SEED $((SEED * 100000)) a.csv",
        run=("mawk -F, '{ n[$3] += $6 } END { for (k in n) print k, n[k] }' $IN/a.csv", """mawk -F, '{ print > ("part-" $2 % 40) }' $IN/a.csv; cat part-3 part-11"""))
program("text", "jq", "jq", make=("gen jsonl 1 30000 a.jsonl", "gen jsonl 2 20000 l; jq -s . l >a.jsonl; rm l"), run=("jq -c 'select(.score > 0.9) | .user' $IN/a.jsonl", "jq '[.[].nested.x] | add' $IN/a.jsonl"))
program("text", "xsltproc", "xsltproc libxml2-utils",
        make="""gen xml $SEED $((SEED * 12000)) a.xml; cat >a.xsl <<'E'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/"><out><xsl:for-each select="catalog/book[@year &gt; 1990]"><xsl:sort select="title"/><t><xsl:value-of select="title"/></t></xsl:for-each></out></xsl:template></xsl:stylesheet>
E
[ $SEED = 1 ] || for n in $(seq 40); do gen xml $n 300 part$n.xml; done""",
        run=("xsltproc -o out.xml $IN/a.xsl $IN/a.xml", "for n in $(seq 40); do xsltproc --nonet -o out$n.xml $IN/a.xsl $IN/part$n.xml || exit 1; done"))
program("text", "xmllint", "libxml2-utils", make=("gen xml 1 20000 a.xml", "for n in $(seq 60); do gen xml $n 200 a$n.xml; done"),
        run=("xmllint --stream --noout $IN/a.xml", "xmllint --xpath 'count(//book)' $IN/a*.xml"))
program("text", "miller", "miller", make="gen csv $SEED $((SEED * 60000)) a.csv", run=("mlr --icsv --ojson stats1 -a mean,p50 -f price -g shop $IN/a.csv", "mlr --csv sort -nr price then head -n 5 -g item $IN/a.csv"))
program("text", "aspell", "aspell aspell-en", make="gen text $SEED $((SEED * 2))M a.txt", run=("aspell -l en list <$IN/a.txt", "head -c 400000 $IN/a.txt | aspell -l en_GB --sug-mode=ultra list"))
program("text", "hunspell", "hunspell hunspell-en-us", make="gen text $SEED 1M a.txt; cat /usr/share/common-licenses/* >b.txt", run=("hunspell -d en_US -l $IN/b.txt", "hunspell -d en_US -L $IN/a.txt $IN/b.txt"))

# ---- checksums, encryption, comparison ----

program("checksum", "md5sum", "coreutils", make=("gen tree 1 700 t; cd t; find . -type f | xargs md5sum >../sums", "mkdir t; cd t; for n in 1 2 3 4; do gen noise $n 6M $n; done; sha256sum * >../sums"),
        run=("cd $IN/t && md5sum --quiet -c ../sums", "cd $IN/t && sha256sum --quiet -c ../sums"))
program("checksum", "b3sum", "b3sum", make=("gen noise 1 40M a", "gen tree 2 500 t; gen mixed 2 20M t/big"), run=("b3sum $IN/a", "find $IN/t -type f | xargs b3sum --num-threads 1"))
program("checksum", "openssl", "openssl", make="gen mixed $SEED $((SEED * 12))M a; openssl enc -aes-256-ctr -pbkdf2 -pass pass:a -in a -out a.enc",
        run=("openssl enc -d -aes-256-ctr -pbkdf2 -pass pass:a -in $IN/a.enc -out b", "openssl dgst -sha512 $IN/a $IN/a.enc"))
program("checksum", "gpg", "gpg gpg-agent",
        make="gen mixed $SEED $((SEED * 8))M a; mkdir -m 700 k; gpg --homedir k --batch --quiet --pinentry-mode loopback --passphrase a -c $([ $SEED = 1 ] || echo -z 0) -o a.gpg a; GNUPGHOME=k gpgconf --kill all; rm -rf k a",
        before="mkdir -m 700 k",
        run=("gpg --homedir k --batch --quiet --pinentry-mode loopback --passphrase a -o a -d $IN/a.gpg; GNUPGHOME=k gpgconf --kill all",
             "gpg --homedir k --batch --list-packets --pinentry-mode loopback --passphrase a $IN/a.gpg; GNUPGHOME=k gpgconf --kill all"))
program("checksum", "diff", "diffutils", make=("gen tree 1 500 t; cp -r t u; gen change 3 u", "gen noise 2 20M a; cp a b; printf x | dd of=b bs=1 seek=15000000 conv=notrunc status=none"),
        run=("diff -ru $IN/t $IN/u", "cmp $IN/a $IN/b"), ok=(1,))
program("checksum", "rdfind", "rdfind", make="gen tree $SEED $((SEED * 300)) t; cp -r t u; gen change 4 u; gen mixed $SEED 6M t/big; cp t/big u/big2",
        run=("rdfind -dryrun true -outputname r.txt $IN/t $IN/u", "rdfind -checksum sha256 -dryrun true -outputname r.txt $IN/t $IN/u"))
