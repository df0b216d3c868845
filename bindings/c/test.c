/* The library with real processes: a server and two agents, whose places are in the environment. Ends at the first promise that is not kept. */
#define _GNU_SOURCE
#include "cistern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cistern *one, *two;

#define CHECK(promise) ((promise) ? (void)0 : broken(#promise, __LINE__))

static void broken(const char *promise, int line) {
    fprintf(stderr, "test.c:%d: %s; one: %s: %s; two: %s: %s\n", line, promise, cistern_code(one), cistern_message(one), cistern_code(two),
            cistern_message(two));
    exit(1);
}

static int failed_with(int result, const cistern *connection, const char *code) {
    return result < 0 && !strcmp(cistern_code(connection), code);
}

/* Waits for an event, and passes over others: a lease that was renewed late on a busy machine. */
static void comes(cistern *connection, uint64_t hold, uint64_t object, const char *what, struct cistern_event *event) {
    do
        CHECK(cistern_next_event(connection, 20000, event) == 1);
    while (event->hold != hold || event->object != object || strcmp(event->what, what));
}

static void files(void) {
    static char every[70000];
    void *data;
    size_t size;
    uint64_t version = 0, now, none = 0;
    for (size_t i = 0; i < sizeof every; i++)
        every[i] = (char)(i * 7 + i / 256);
    CHECK(failed_with(cistern_read(one, "/c/none", &data, &size, NULL), one, "ENOENT") && cistern_exit_status(one) == 1);
    CHECK(cistern_mkdir(one, "/c") == 0);
    for (size_t length = 0; length < sizeof every; length = length * 5 + 1) {
        CHECK(cistern_write(one, "/c/every", every, length, NULL, NULL, &version) == 0);
        CHECK(cistern_read(two, "/c/every", &data, &size, &now) == 0);
        CHECK(now == version && size == length && !memcmp(data, every, size));
        free(data);
    }
    CHECK(failed_with(cistern_write(two, "/c/every", "x", 1, &none, NULL, NULL), two, "VERSION_CHANGED"));
    CHECK(cistern_write(two, "/c/every", "x", 1, &version, NULL, NULL) == 0);
    /* What comes as a string with escapes: two, three and four bytes, and controls. */
    static const char text[] = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x92 \"\\/\b\f\n\r\t\x01\x1f end";
    CHECK(cistern_write(one, "/c/\xc3\xa9\xff", text, sizeof text, NULL, NULL, NULL) == 0);
    CHECK(cistern_rename(one, "/c/\xc3\xa9\xff", "/c/text") == 0);
    CHECK(cistern_read(two, "/c/text", &data, &size, NULL) == 0 && size == sizeof text && !memcmp(data, text, size));
    free(data);
    CHECK(cistern_remove(two, "/c/text") == 0);
    char *answer;
    CHECK(cistern_call(two, "\"op\":\"list\",\"path\":\"/c\"", &answer) == 0);
    CHECK(!strncmp(answer, "{\"listing\":[{\"name\":\"every\"", 26) && answer[strlen(answer) - 1] == '}');
    free(answer);
}

static void locks(void) {
    struct cistern_lock lock, other;
    struct cistern_event event = {0};
    char evict[1024];
    CHECK(cistern_create(one, "/c/job") == 0);
    CHECK(cistern_lock(one, "/c/job", -1, &lock) == 0 && cistern_is_valid(one, &lock));
    CHECK(failed_with(cistern_lock(two, "/c/job", 0, &other), two, "EAGAIN"));
    CHECK(cistern_unlock(one, &lock) == 0 && !cistern_is_valid(one, &lock));
    CHECK(cistern_lock(two, "/c/job", 20000, &other) == 0 && other.token > lock.token);
    CHECK(cistern_unlock(two, &other) == 0);
    CHECK(cistern_lock(one, "/c/job", 20000, &lock) == 0 && lock.token > other.token);
    CHECK(cistern_write(one, "/c/report", "mine", 4, NULL, &lock, NULL) == 0);
    snprintf(evict, sizeof evict, "%s admin evict one --control %s >/dev/null", getenv("CISTERN_TEST_PROGRAM"), getenv("CISTERN_TEST_CONTROL"));
    CHECK(system(evict) == 0);
    comes(one, lock.hold, 0, "lost", &event);
    CHECK(!cistern_is_valid(one, &lock));
    CHECK(failed_with(cistern_write(one, "/c/report", "stale", 5, NULL, &lock, NULL), one, "STALE_GUARD"));
    CHECK(cistern_lock(two, "/c/job", 20000, &other) == 0 && other.token > lock.token);
    CHECK(cistern_unlock(two, &other) == 0);
}

static void watches(void) {
    struct cistern_event event;
    uint64_t dir, member, first;
    CHECK(cistern_watch(one, "/c", &dir) == 0);
    comes(one, 0, dir, "certain", &event);
    first = event.version;
    CHECK(cistern_next_event(one, 10, &event) == 0);
    CHECK(cistern_join(two, "/c/me", "10.0.0.1:80", 11, &member) == 0);
    comes(one, 0, dir, "changed", &event);
    CHECK(event.version > first);
    CHECK(cistern_leave(two, member) == 0 && cistern_unwatch(one, dir) == 0);
    CHECK(cistern_join(two, "/c/me", "", 0, &member) == 0);
    cistern_close(two);
    two = NULL;
    void *data;
    size_t size;
    for (int tries = 0; cistern_read(one, "/c/me", &data, &size, NULL) == 0; tries++) {
        free(data);
        CHECK(tries < 2000);
        usleep(10000);
    }
    CHECK(!strcmp(cistern_code(one), "ENOENT"));
}

int main(void) {
    CHECK(cistern_open("/nowhere/agent.sock", &one) < 0 && !strcmp(cistern_code(one), "NO_AGENT") && cistern_exit_status(one) == 69);
    CHECK(cistern_mkdir(one, "/c") < 0 && !strcmp(cistern_code(one), "NO_AGENT"));
    cistern_close(one);
    CHECK(cistern_open(getenv("CISTERN_TEST_ONE"), &one) == 0);
    CHECK(cistern_open(getenv("CISTERN_TEST_TWO"), &two) == 0);
    files();
    locks();
    watches();
    cistern_close(one);
    return 0;
}
