/* Locks, small files and watches of a Cistern server, through the agent of this host: docs/api.md as C functions.
 *
 * A connection is used by one thread at a time. Functions return 0, or -1 with the reason in cistern_code() and cistern_message(), unless they say
 * otherwise. Paths end with NUL; what is returned by `char **` or `void **` is given back with free(). */
#ifndef CISTERN_H
#define CISTERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern cistern;

/* A lock that is held. `token` is the fencing token: larger than that of every earlier holder of this lock. */
struct cistern_lock {
    uint64_t hold;
    uint64_t token;
    uint64_t object;
    /* Of the library: until when the lock is certain, as the agent told last, on both clocks; 0: not known. */
    uint64_t until_raw_ns;
    uint64_t until_boot_ns;
    uint64_t lease_ms;
    int is_lost;
};

/* What the agent says unasked. */
struct cistern_event {
    /* Of a lock: its hold; else 0. */
    uint64_t hold;
    /* Of a watch: its object; else 0. */
    uint64_t object;
    /* Of a watch, where it is told; else 0. */
    uint64_t version;
    /* Of a lock: certain, suspect, uncertain, lost. Of a watch: certain, changed, uncertain, gone. */
    char what[16];
};

/* Connects to the agent at `socket`; NULL: CISTERN_AGENT, else those of this user and of the system. The connection is given even where that fails, so
 * that it can say why, unless there is no memory (NULL). Everything that belongs to it ends with cistern_close(). */
int cistern_open(const char *socket, cistern **connection);
void cistern_close(cistern *connection);

/* Of the last failure: the code for programs, a sentence for people, the exit status of a command that fails so (docs/exit-statuses.md). */
const char *cistern_code(const cistern *connection);
const char *cistern_message(const cistern *connection);
int cistern_exit_status(const cistern *connection);

/* How long each request may take, locks excepted; 0, as at the beginning: as long as the agent gives its server. */
void cistern_set_deadline(cistern *connection, uint64_t milliseconds);

int cistern_read(cistern *connection, const char *path, void **data, size_t *size, uint64_t *version);

/* Replaces the contents of a file, at most 1 MiB, or makes it. `if_version`: only if the file has that, 0: only if it is not there; NULL: in any case.
 * `guard`: only while that lock is held under its token (code STALE_GUARD); NULL: none. `version`, if not NULL: of what was written. */
int cistern_write(cistern *connection, const char *path, const void *data, size_t size, const uint64_t *if_version,
                  const struct cistern_lock *guard, uint64_t *version);

/* Makes an empty file; one that is there stays as it is. */
int cistern_create(cistern *connection, const char *path);
int cistern_mkdir(cistern *connection, const char *path);
int cistern_remove(cistern *connection, const char *path);
int cistern_rename(cistern *connection, const char *from, const char *to);

/* Takes the exclusive lock on a file that is there, and waits for it at most so long; -1: as long as it takes; 0: not at all (code EAGAIN). */
int cistern_lock(cistern *connection, const char *path, int64_t wait_ms, struct cistern_lock *lock);
int cistern_unlock(cistern *connection, struct cistern_lock *lock);

/* Whether nobody else can have the lock at this moment (1) or it is not so (0): the check to make right before acting under it. It compares clocks, and
 * asks the agent when half of the lease is over that was told last. */
int cistern_is_valid(cistern *connection, struct cistern_lock *lock);

/* Watches what a path names now. */
int cistern_watch(cistern *connection, const char *path, uint64_t *object);
int cistern_unwatch(cistern *connection, uint64_t object);

/* Makes an ephemeral file, which goes with the connection, or with the host. */
int cistern_join(cistern *connection, const char *path, const void *data, size_t size, uint64_t *object);
int cistern_leave(cistern *connection, uint64_t object);

/* The next event of a lock or watch, waited for at most so long (-1: without end): 1; 0: none came; -1: the connection has ended, and nothing is held. */
int cistern_next_event(cistern *connection, int timeout_ms, struct cistern_event *event);

/* Readable when there may be an event, for poll(2); cistern_next_event() with 0 takes it. */
int cistern_fd(const cistern *connection);

/* Any request of docs/api.md: its fields as JSON without braces and id, `"op":"ping"`; the value of `ok`, if `answer` is not NULL. */
int cistern_call(cistern *connection, const char *fields, char **answer);

#ifdef __cplusplus
}
#endif
#endif
