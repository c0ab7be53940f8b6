/* foreread for C: read a file, a device, an NBD export, an image or an object through a cache with readahead.
 *
 * Any number of threads may use one reader. Do not call any function from a signal handler, or in the child after
 * a fork. A function that fails returns -1 or NULL, sets errno, and stores a one-line message for foreread_error().
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

/* A reader: like an open file description, with its own readahead state. Several readers may share a cache. */
typedef struct foreread foreread;

/* Hints about a range. The values are foreread's own, not those of posix_fadvise. */
enum foreread_advice {
    FOREREAD_NORMAL = 0,
    FOREREAD_SEQUENTIAL = 1,
    FOREREAD_RANDOM = 2,
    FOREREAD_WILLNEED = 3, /* a hint: the policy decides */
    FOREREAD_DONTNEED = 4,
    FOREREAD_WANT = 5      /* will be read: fetched regardless of the policy, if the cache has room */
};

/* Counters of all readers of the cache since it was created. New fields are only added at the end. */
struct foreread_stats {
    uint64_t demand_reads;
    uint64_t demand_bytes;
    uint64_t hits;          /* reads that found all bytes cached */
    uint64_t late_hits;     /* reads that waited for readahead in flight */
    uint64_t misses;
    uint64_t failed_reads;
    uint64_t stall_ns;      /* time that reads waited for the source */
    uint64_t ra_bytes;      /* bytes read ahead */
    uint64_t unused_bytes;  /* bytes read ahead and dropped before any read used them */
    uint64_t source_reads;
    uint64_t source_bytes;
};

/* Opens a source: a path, file:PATH, nbd://HOST/EXPORT, nbds://HOST/EXPORT?tls-certificates=DIR,
 * nbd+unix:///EXPORT?socket=PATH, rbd:POOL/IMAGE, ...
 * policy: NAME[:key=value,...] ("foreread list policies" lists them), NULL for the default.
 * cache_bytes: memory for pages, at least 1 MiB; 0 for the default (256 MiB).
 * Returns NULL on error: errno is EINVAL for an empty name and an invalid policy or size, otherwise the source's own number. */
foreread *foreread_open(const char *source, const char *policy, uint64_t cache_bytes);

/* Opens another reader on the same cache, with its own readahead state. Close both readers. */
foreread *foreread_dup(const foreread *reader);

/* Reads len bytes from offset on. Returns fewer bytes only at the end of the source, and 0 beyond it.
 * ESTALE: the source has a new version; each reader gets this error once, and then reads the new version.
 * EINVAL: len is above SSIZE_MAX. */
ssize_t foreread_pread(foreread *reader, void *buf, size_t len, uint64_t offset);

/* Like foreread_pread, but reads into iovcnt buffers (at most 1024), as one read. */
ssize_t foreread_preadv(foreread *reader, const struct iovec *iov, int iovcnt, uint64_t offset);

/* Declares that the source is only appended to, never overwritten: if it grows, its old bytes are not checked.
 * Without this call, growth is accepted as an append only after the old last page and a sample of the bytes read
 * before were read again and are unchanged; otherwise it is a change (ESTALE). */
int foreread_allow_appends(foreread *reader);

/* Size in bytes, as far as the cache knows. -1 for NULL. */
int64_t foreread_size(const foreread *reader);

/* Gives a hint about a range. With a len of 0, the range extends to the end. EINVAL: the advice is unknown. */
int foreread_advise(foreread *reader, uint64_t offset, uint64_t len, int advice);

/* Fills the first size bytes of stats; pass sizeof(struct foreread_stats). */
int foreread_get_stats(const foreread *reader, struct foreread_stats *stats, size_t size);

/* Closes a reader. No other thread may be in a call with it. Does nothing for NULL. */
void foreread_close(foreread *reader);

/* The last error of this thread in one line, or "" if there was none. Valid until this thread's next call. */
const char *foreread_error(void);

/* Sets how readers opened from now on access object stores, in the notation of FOREREAD_OBJECT, such as
   "profile=dev,region=eu-central-1,endpoint-url=https://host,no-sign-request,requester-pays,ca-file=/etc/ca.pem".
   Replaces earlier settings; NULL or "" removes them. Returns 0, or -1 with EINVAL, or with ENOTSUP in a build without
   object stores. */
int foreread_configure_stores(const char *settings);

/* Sets where readers opened from now on keep bytes of objects between runs: "DIR[,size=50G][,free=10%]", like --disk-cache
   of the commands. NULL uses FOREREAD_DISK_CACHE, "" uses no disk cache. Returns 0, or -1 with errno: EINVAL for invalid settings,
   the error of the folder, or ENOTSUP in a build without object stores. */
int foreread_configure_disk_cache(const char *settings);

/* The version, such as "0.1.0". */
const char *foreread_version(void);

#ifdef __cplusplus
}
#endif

#endif
