/* Reads a source from beginning to end through foreread, and prints the time and the counters.
 *
 *   capi/install && cc -Wall capi/examples/read.c $(pkg-config --cflags --libs foreread) -o read
 *   ./read disk.img linux-6.18:max=1M */
#include "foreread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char buf[128 << 10];
    struct foreread_stats stats;
    uint64_t offset = 0, sum = 0;
    ssize_t n;

    if (argc < 2) {
        fprintf(stderr, "usage: %s SOURCE [POLICY]\n", argv[0]);
        return 2;
    }
    foreread *reader = foreread_open(argv[1], argc > 2 ? argv[2] : NULL, 0);
    if (!reader) {
        fprintf(stderr, "%s (%s)\n", foreread_error(), strerror(errno));
        return 1;
    }
    while ((n = foreread_pread(reader, buf, sizeof buf, offset)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sum = sum * 31 + (unsigned char)buf[i];
        offset += (uint64_t)n;
    }
    if (n < 0) {
        fprintf(stderr, "%s\n", foreread_error());
        return 1;
    }
    foreread_get_stats(reader, &stats, sizeof stats);
    printf("%llu bytes, sum %016llx, %llu reads, %llu hits, %llu late, %llu bytes read ahead\n",
           (unsigned long long)offset, (unsigned long long)sum, (unsigned long long)stats.demand_reads,
           (unsigned long long)stats.hits, (unsigned long long)stats.late_hits,
           (unsigned long long)stats.ra_bytes);
    foreread_close(reader);
    return 0;
}
