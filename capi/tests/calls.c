/* Calls every function with valid and invalid arguments. Prints one line if all results are as expected. */
#include "foreread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, foreread_error()); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)
#define REFUSED(call, number) \
    do {                      \
        errno = 0;            \
        CHECK((call) == -1);  \
        CHECK(errno == (number) && *foreread_error()); \
    } while (0)

static void *reads(void *given)
{
    foreread *reader = foreread_dup(given);
    unsigned char buf[1000];
    CHECK(reader);
    for (uint64_t at = 0; at < 100000; at += sizeof buf) {
        CHECK(foreread_pread(reader, buf, sizeof buf, at) == (ssize_t)sizeof buf);
        for (size_t i = 0; i < sizeof buf; i++)
            CHECK(buf[i] == (at + i) % 251);
    }
    foreread_close(reader);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned char buf[64], other[64];
    struct foreread_stats stats;
    struct iovec parts[3] = {{buf, 10}, {NULL, 0}, {other, 20}};
    pthread_t threads[4];
    struct { struct foreread_stats stats; uint64_t after; } larger;

    CHECK(argc == 2);
    CHECK(strlen(foreread_version()) >= 5 && *foreread_error() == 0);
    CHECK(foreread_configure_stores("region=eu-1,no-sign-request") == 0 && foreread_configure_stores(NULL) == 0);
    CHECK(foreread_configure_stores("speed=1") == -1 && errno == EINVAL && strstr(foreread_error(), "speed") != NULL);
    CHECK(foreread_configure_disk_cache(",size=1") == -1 && errno == EINVAL && strstr(foreread_error(), "folder") != NULL);
    CHECK(foreread_configure_disk_cache("/proc/none") == -1 && errno == ENOENT);
    CHECK(foreread_configure_disk_cache("") == 0);
    errno = 0;
    CHECK(!foreread_open(NULL, NULL, 0) && errno == EINVAL && *foreread_error());
    CHECK(!foreread_open("\xff\xfe", NULL, 0) && errno == EINVAL);
    CHECK(!foreread_open("", NULL, 0) && errno == EINVAL && strstr(foreread_error(), "empty") != NULL);
    CHECK(!foreread_open(argv[1], "none:max=1", 0) && errno == EINVAL);
    CHECK(!foreread_open(argv[1], NULL, (1 << 20) - 1) && errno == EINVAL && strstr(foreread_error(), "1 MiB") != NULL);
    foreread *reader = foreread_open(argv[1], "none", 1 << 20);
    CHECK(reader);
    CHECK(foreread_size(reader) == 100000);

    CHECK(foreread_pread(reader, buf, sizeof buf, 500) == sizeof buf && buf[0] == 500 % 251);
    CHECK(foreread_pread(reader, buf, sizeof buf, 99990) == 10);
    CHECK(foreread_pread(reader, buf, sizeof buf, 100000) == 0);
    CHECK(foreread_pread(reader, buf, sizeof buf, UINT64_MAX) == 0);
    CHECK(foreread_pread(reader, NULL, 0, 0) == 0);
    REFUSED(foreread_pread(reader, NULL, 1, 0), EFAULT);
    REFUSED(foreread_pread(NULL, buf, 1, 0), EBADF);
    REFUSED(foreread_pread(reader, buf, SIZE_MAX / 2 + 1, 0), EINVAL);

    CHECK(foreread_preadv(reader, parts, 3, 200) == 30);
    CHECK(buf[9] == 209 && other[0] == 210 && other[19] == 229);
    CHECK(foreread_preadv(reader, NULL, 0, 0) == 0);
    REFUSED(foreread_preadv(reader, NULL, 1, 0), EINVAL);
    REFUSED(foreread_preadv(reader, parts, -1, 0), EINVAL);
    REFUSED(foreread_preadv(reader, parts, 1025, 0), EINVAL);
    parts[1].iov_len = 1;
    REFUSED(foreread_preadv(reader, parts, 3, 0), EFAULT);

    CHECK(foreread_allow_appends(reader) == 0);
    REFUSED(foreread_allow_appends(NULL), EBADF);
    CHECK(foreread_advise(reader, 0, 0, FOREREAD_SEQUENTIAL) == 0);
    CHECK(foreread_advise(reader, 40960, 4096, FOREREAD_WANT) == 0);
    REFUSED(foreread_advise(reader, 0, 0, 6), EINVAL);
    REFUSED(foreread_advise(NULL, 0, 0, 0), EBADF);

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, reads, reader) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    CHECK(foreread_get_stats(reader, &stats, sizeof stats) == 0);
    CHECK(stats.demand_reads >= 403 && stats.hits > 0 && stats.source_bytes >= 100000 && stats.ra_bytes == 4096);
    memset(&larger, 0xab, sizeof larger);
    CHECK(foreread_get_stats(reader, &larger.stats, sizeof larger) == 0 && larger.after == 0xababababababababu);
    CHECK(foreread_get_stats(reader, &stats, 8) == 0);
    REFUSED(foreread_get_stats(reader, NULL, 8), EFAULT);
    CHECK(!foreread_dup(NULL) && errno == EBADF);
    foreread_close(reader);
    foreread_close(NULL);
    puts("all calls as the header says");
    return 0;
}
