/* A job that runs on one host at a time: it counts its runs in a file, and adds one only while the lock is its own.
 *
 *     cc -o example example.c cistern.c && ./example /jobs/nightly /jobs/count */
#include "cistern.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(cistern *connection, const char *what) {
    fprintf(stderr, "%s: %s: %s\n", what, cistern_code(connection), cistern_message(connection));
    int status = cistern_exit_status(connection);
    cistern_close(connection);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s LOCK COUNTER\n", argv[0]);
        return 2;
    }
    cistern *connection;
    if (cistern_open(NULL, &connection) < 0)
        return fail(connection, "connect");
    struct cistern_lock lock;
    if (cistern_create(connection, argv[1]) < 0 || cistern_lock(connection, argv[1], 5000, &lock) < 0)
        return fail(connection, argv[1]);

    void *text = NULL;
    size_t size;
    unsigned long runs = 0;
    if (cistern_read(connection, argv[2], &text, &size, NULL) == 0) {
        runs = strtoul(text, NULL, 10); /* A NUL follows what was read. */
        free(text);
    }
    char line[32];
    int length = snprintf(line, sizeof line, "%lu\n", runs + 1);
    if (cistern_is_valid(connection, &lock) && cistern_write(connection, argv[2], line, (size_t)length, NULL, &lock, NULL) < 0)
        return fail(connection, argv[2]);
    printf("run %lu under token %llu\n", runs + 1, (unsigned long long)lock.token);

    if (cistern_unlock(connection, &lock) < 0)
        return fail(connection, argv[1]);
    cistern_close(connection);
    return 0;
}
