/* foreread for C: read a file, a device, an NBD export, an image or an object through a cache with readahead.
 *
 * Any number of threads may use one reader. No function is to be called from a signal handler or after a fork
 * in the child. Everything that fails returns -1 or NULL, sets errno, and leaves one line for foreread_error().
 *
 *   foreread *r = foreread_open("disk.img", NULL, 0);
 *   ssize_t n = foreread_pread(r, buf, sizeof buf, 0);
 *   foreread_close(r);
 *
 * Build with: cc program.c $(pkg-config --cflags --libs foreread)   (capi/install or cargo cinstall installs it) */
#ifndef FOREREAD_H
#define FOREREAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A reader: one open description, with its readahead state, on a cache. */
typedef struct foreread foreread;

/* What a caller may say of a range. The values are foreread's own, not those of posix_fadvise. */
enum foreread_advice {
    FOREREAD_NORMAL = 0,
    FOREREAD_SEQUENTIAL = 1,
    FOREREAD_RANDOM = 2,
    FOREREAD_WILLNEED = 3, /* a hint: the policy decides */
    FOREREAD_DONTNEED = 4,
    FOREREAD_WANT = 5      /* will be read: fetched whatever the policy, as far as there is room */
};

/* Counters since the cache was made, of all its readers. Fields are only ever added at the end. */
struct foreread_stats {
    uint64_t demand_reads;
    uint64_t demand_bytes;
    uint64_t hits;          /* reads that found everything there */
    uint64_t late_hits;     /* that waited for readahead in flight */
    uint64_t misses;
    uint64_t failed_reads;
    uint64_t stall_ns;      /* time that reads waited for the source */
    uint64_t ra_bytes;      /* read ahead */
    uint64_t unused_bytes;  /* of these, dropped before any read wanted them */
    uint64_t source_reads;
    uint64_t source_bytes;
};

/* Opens a source: a path, file:PATH, nbd://HOST/EXPORT, nbds://HOST/EXPORT?tls-certificates=DIR,
 * nbd+unix:///EXPORT?socket=PATH, rbd:POOL/IMAGE, ...
 * policy: NAME[:key=value,...] ("foreread list policies" lists them), NULL for the default.
 * cache_bytes: memory for pages, 0 for the default (256 MiB).
 * NULL: errno is EINVAL for a policy or size that does not fit, else the source's own. */
foreread *foreread_open(const char *source, const char *policy, uint64_t cache_bytes);

/* A second reader on the same cache, with separate readahead state. Close each of them. */
foreread *foreread_dup(const foreread *reader);

/* Reads up to len bytes from offset on: fewer only at the end, 0 past it. ESTALE: the source is another version
 * now; said once to each reader, whose next read is of the new one. len above SSIZE_MAX is EINVAL. */
ssize_t foreread_pread(foreread *reader, void *buf, size_t len, uint64_t offset);

/* The same into iovcnt buffers (at most 1024), as one read. */
ssize_t foreread_preadv(foreread *reader, const struct iovec *iov, int iovcnt, uint64_t offset);

/* Says that the source is only ever appended to, and nothing is copied over it: one that grows is read on without a look
 * at its bytes. Without it growth counts as an append after the old last page and a sample of what was read have been
 * read again and are the same, and as a change (ESTALE) otherwise. */
int foreread_allow_appends(foreread *reader);

/* Size in bytes, as far as the cache knows. -1 for NULL. */
int64_t foreread_size(const foreread *reader);

/* Says something of a range. A len of 0 reaches to the end. EINVAL: no such advice. */
int foreread_advise(foreread *reader, uint64_t offset, uint64_t len, int advice);

/* Fills the first size bytes of stats; pass sizeof(struct foreread_stats). */
int foreread_get_stats(const foreread *reader, struct foreread_stats *stats, size_t size);

/* Ends a reader. No other thread may be in a call with it. NULL is nothing. */
void foreread_close(foreread *reader);

/* What went wrong in this thread last: one line, "" if nothing. Valid until this thread's next call. */
const char *foreread_error(void);

/* How stores of objects are asked by readers that are opened from now on, in the notation of FOREREAD_OBJECT, such as
   "profile=dev,region=eu-central-1,endpoint-url=https://host,no-sign-request,requester-pays,ca-file=/etc/ca.pem".
   It replaces what was set before; NULL or "" is nothing. 0, or -1 with EINVAL, or with ENOTSUP in a build without objects. */
int foreread_configure_stores(const char *settings);

/* Where bytes of objects are kept between runs, by readers that are opened from now on: "DIR[,size=50G][,free=10%]", as
   --disk-cache of the commands. NULL is what FOREREAD_DISK_CACHE names, "" is nothing. 0, or -1 with errno: EINVAL for settings that
   are none, that of the folder, or ENOTSUP in a build without objects. */
int foreread_configure_disk_cache(const char *settings);

/* Such as "0.1.0". */
const char *foreread_version(void);

#ifdef __cplusplus
}
#endif

#endif
