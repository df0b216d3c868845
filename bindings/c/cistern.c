/* See cistern.h. A request at a time: what is said meanwhile of locks and watches is kept until it is asked for. */
#define _GNU_SOURCE
#include "cistern.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct queued {
    struct cistern_event event;
    struct queued *next;
};

struct cistern {
    int fd;
    uint64_t last_id, deadline_ms;
    /* Bytes that were read: `used` of them, `taken` of which were given out as lines. */
    char *buffer;
    size_t used, taken, room;
    struct queued *first, **end;
    int exit_status;
    char code[32], message[512];
};

/* A text that grows. After want of memory `bytes` is NULL and stays so. */
struct text {
    char *bytes;
    size_t size, room;
};

static int text_new(struct text *text) {
    text->size = 0;
    text->room = 256;
    text->bytes = malloc(text->room);
    return text->bytes ? 0 : -1;
}

static void text_add(struct text *text, const char *bytes, size_t size) {
    if (!text->bytes)
        return;
    if (size >= text->room - text->size) {
        size_t room = (text->size + size + 1) * 2;
        char *larger = realloc(text->bytes, room);
        if (!larger)
            free(text->bytes);
        text->bytes = larger;
        text->room = room;
        if (!larger)
            return;
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = 0;
}

static void text_put(struct text *text, const char *format, ...) {
    char line[128];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    text_add(text, line, size < 0 ? 0 : (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

/* Bytes as a value: plain where they are printable ASCII, else in base64. */
static void text_value(struct text *text, const void *data, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = data;
    int is_plain = 1;
    for (size_t i = 0; i < size; i++)
        is_plain &= bytes[i] >= ' ' && bytes[i] < 0x7f && bytes[i] != '"' && bytes[i] != '\\';
    if (is_plain) {
        text_add(text, "\"", 1);
        text_add(text, data, size);
        text_add(text, "\"", 1);
        return;
    }
    text_put(text, "{\"b64\":\"");
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16;
        three |= i + 1 < size ? (uint32_t)bytes[i + 1] << 8 : 0;
        three |= i + 2 < size ? bytes[i + 2] : 0;
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63], digits[three & 63]};
        if (i + 2 >= size)
            four[3] = '=';
        if (i + 1 >= size)
            four[2] = '=';
        text_add(text, four, 4);
    }
    text_put(text, "\"}");
}

/* Reading JSON: positions in a line that ends with NUL. NULL: what was looked for is not there. */

static const char *skip_space(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r')
        at++;
    return at;
}

static const char *skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

static const char *skip_value(const char *at) {
    size_t depth = 0;
    do {
        at = skip_space(at);
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            size_t word = strcspn(at, ",:]}\" \t\r");
            if (!word)
                return at;
            at += word;
        }
    } while (depth);
    return at;
}

/* The value of a field of the object at `at`. */
static const char *field(const char *at, const char *name) {
    size_t size = strlen(name);
    if (!at || *(at = skip_space(at)) != '{')
        return NULL;
    at = skip_space(at + 1);
    while (*at == '"') {
        const char *end = skip_string(at);
        int is_it = (size_t)(end - at) == size + 2 && !memcmp(at + 1, name, size);
        at = skip_space(end);
        if (*at != ':')
            return NULL;
        at = skip_space(at + 1);
        if (is_it)
            return at;
        at = skip_space(skip_value(at));
        if (*at == ',')
            at = skip_space(at + 1);
    }
    return NULL;
}

static int number(const char *at, uint64_t *value) {
    if (!at || *at < '0' || *at > '9')
        return -1;
    *value = strtoull(at, NULL, 10);
    return 0;
}

static uint32_t hex(const char *at) {
    char four[5] = {0};
    memcpy(four, at, strnlen(at, 4));
    return (uint32_t)strtoul(four, NULL, 16);
}

/* Appends the bytes of the string at `at`. */
static void unquote(struct text *out, const char *at) {
    for (at++; *at && *at != '"'; at++) {
        if (*at != '\\') {
            text_add(out, at, 1);
            continue;
        }
        static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
        const char *known = *++at ? strchr(from, *at) : NULL;
        if (*at != 'u') {
            text_add(out, known ? &to[known - from] : at, *at ? 1 : 0);
            if (!*at)
                return;
            continue;
        }
        uint32_t code = hex(at + 1);
        at += strnlen(at, 5) - 1;
        if (code >= 0xd800 && code < 0xdc00 && at[1] == '\\' && at[2] == 'u') {
            code = 0x10000 + ((code - 0xd800) << 10) + (hex(at + 3) - 0xdc00);
            at += 2 + strnlen(at + 2, 5) - 1;
        }
        char utf8[4];
        size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        for (size_t i = size; i-- > 1; code >>= 6)
            utf8[i] = (char)(0x80 | (code & 0x3f));
        utf8[0] = (char)(size == 1 ? code : (0xf00u >> size & 0xff) | code);
        text_add(out, utf8, size);
    }
}

/* Appends the bytes of a value: a string, or one in base64. */
static void decode(struct text *out, const char *at) {
    const char *coded = field(at, "b64");
    if (!coded) {
        if (at && *at == '"')
            unquote(out, at);
        return;
    }
    uint32_t bits = 0;
    int count = 0;
    for (at = coded + 1; *at && *at != '"' && *at != '='; at++) {
        uint32_t digit = *at >= 'a' ? (uint32_t)(*at - 'a' + 26) : *at >= 'A' ? (uint32_t)(*at - 'A')
                       : *at >= '0' ? (uint32_t)(*at - '0' + 52) : *at == '+' ? 62 : 63;
        bits = bits << 6 | digit;
        count += 6;
        if (count >= 8) {
            char byte = (char)(bits >> (count -= 8));
            text_add(out, &byte, 1);
        }
    }
}

static int failed(cistern *c, const char *code, int exit_status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(c->message, sizeof c->message, format, values);
    va_end(values);
    snprintf(c->code, sizeof c->code, "%s", code);
    c->exit_status = exit_status;
    return -1;
}

static int no_memory(cistern *c) {
    return failed(c, "ENOMEM", 1, "no memory is left");
}

static int ended(cistern *c, const char *why) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    return failed(c, "NO_AGENT", 69, "%s", why);
}

/* The next line, without its end, which is there until the next call: 1; 0: none came in time; -1: none will come. */
static int next_line(cistern *c, int timeout_ms, char **line) {
    for (;;) {
        char *from = c->buffer + c->taken;
        char *at = c->used > c->taken ? memchr(from, '\n', c->used - c->taken) : NULL;
        if (at) {
            *at = 0;
            *line = from;
            c->taken = (size_t)(at - c->buffer) + 1;
            return 1;
        }
        if (c->fd < 0)
            return strcmp(c->code, "NO_AGENT") ? ended(c, "the agent has ended the connection") : -1;
        if (c->taken) {
            memmove(c->buffer, from, c->used - c->taken);
            c->used -= c->taken;
            c->taken = 0;
        }
        if (c->used == c->room) {
            size_t room = c->room ? c->room * 2 : 4096;
            char *larger = realloc(c->buffer, room);
            if (!larger)
                return no_memory(c);
            c->buffer = larger;
            c->room = room;
        }
        struct pollfd ready = {.fd = c->fd, .events = POLLIN};
        int polled = poll(&ready, 1, timeout_ms);
        if (polled == 0)
            return 0;
        ssize_t size = polled < 0 ? -1 : read(c->fd, c->buffer + c->used, c->room - c->used);
        if (size == 0)
            return ended(c, "the agent has ended the connection");
        if (size < 0 && errno != EINTR)
            return ended(c, strerror(errno));
        c->used += size > 0 ? (size_t)size : 0;
    }
}

static int keep_event(cistern *c, const char *event) {
    struct queued *queued = calloc(1, sizeof *queued);
    if (!queued)
        return no_memory(c);
    const char *lock = field(event, "lock"), *watch = field(event, "watch");
    number(field(lock, "hold"), &queued->event.hold);
    number(field(watch, "object"), &queued->event.object);
    number(field(watch, "version"), &queued->event.version);
    struct text what;
    if (text_new(&what) == 0)
        decode(&what, lock ? field(lock, "state") : field(watch, "what"));
    snprintf(queued->event.what, sizeof queued->event.what, "%s", what.bytes && what.size ? what.bytes : "");
    free(what.bytes);
    *c->end = queued;
    c->end = &queued->next;
    return 0;
}

static int refused(cistern *c, const char *error) {
    struct text code, message;
    uint64_t exit_status = 1;
    if (text_new(&code) < 0)
        return no_memory(c);
    if (text_new(&message) < 0) {
        free(code.bytes);
        return no_memory(c);
    }
    decode(&code, field(error, "code"));
    decode(&message, field(error, "message"));
    number(field(error, "exit"), &exit_status);
    failed(c, code.bytes && code.size ? code.bytes : "INTERNAL", (int)exit_status, "%s", message.bytes && message.size ? message.bytes : "");
    free(code.bytes);
    free(message.bytes);
    return -1;
}

/* Sends the request that `fields` has, gives them back, and waits for the answer; `ok` is there until the next line is read. */
static int ask(cistern *c, struct text *fields, const char **ok) {
    struct text line;
    if (!fields->bytes || text_new(&line) < 0) {
        free(fields->bytes);
        return no_memory(c);
    }
    uint64_t id = ++c->last_id;
    text_put(&line, "{\"id\":%" PRIu64 ",", id);
    text_add(&line, fields->bytes, fields->size);
    text_add(&line, "}\n", 2);
    free(fields->bytes);
    if (!line.bytes)
        return no_memory(c);
    for (size_t sent = 0; sent < line.size && c->fd >= 0;) {
        ssize_t size = send(c->fd, line.bytes + sent, line.size - sent, MSG_NOSIGNAL);
        if (size < 0 && errno != EINTR)
            break; /* The agent has perhaps said why: that is read. */
        sent += size > 0 ? (size_t)size : 0;
    }
    free(line.bytes);
    char *said;
    while (next_line(c, -1, &said) == 1) {
        uint64_t of = 0;
        const char *event = field(said, "event"), *error = field(said, "error");
        if (event) {
            if (keep_event(c, event) < 0)
                return -1;
        } else if (number(field(said, "id"), &of) < 0 || of == id) {
            *ok = field(said, "ok");
            if (error)
                return refused(c, error);
            return *ok ? 0 : ended(c, "the agent's answer is not understood");
        }
    }
    return -1;
}

static int begin(cistern *c, struct text *fields, const char *op) {
    if (text_new(fields) < 0)
        return no_memory(c);
    text_put(fields, "\"op\":\"%s\"", op);
    if (c->deadline_ms && strcmp(op, "lock"))
        text_put(fields, ",\"deadline_ms\":%" PRIu64, c->deadline_ms);
    return 0;
}

static void with(struct text *fields, const char *name, const void *data, size_t size) {
    text_put(fields, ",\"%s\":", name);
    text_value(fields, data, size);
}

static int ask_of(cistern *c, const char *op, const char *path, const char **ok) {
    struct text fields;
    if (begin(c, &fields, op) < 0)
        return -1;
    with(&fields, "path", path, strlen(path));
    return ask(c, &fields, ok);
}

static int ask_number(cistern *c, const char *op, const char *name, uint64_t value) {
    struct text fields;
    const char *ok;
    if (begin(c, &fields, op) < 0)
        return -1;
    text_put(&fields, ",\"%s\":%" PRIu64, name, value);
    return ask(c, &fields, &ok);
}

static int connect_to(cistern *c, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return failed(c, "NO_AGENT", 69, "%s: the path of a socket is shorter", path);
    memcpy(address.sun_path, path, strlen(path));
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd >= 0 && connect(c->fd, (struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    int error = errno;
    ended(c, "");
    return failed(c, "NO_AGENT", 69, "no agent answers at %s: %s; is `cistern agent run` running?", path, strerror(error));
}

int cistern_open(const char *socket, cistern **connection) {
    static const char of_system[] = "/var/lib/cistern/agent/control.sock";
    cistern *c = *connection = calloc(1, sizeof *c);
    if (!c)
        return -1;
    c->fd = -1;
    c->end = &c->first;
    char own[256];
    const char *named = socket ? socket : getenv("CISTERN_AGENT"), *base = getenv("XDG_RUNTIME_DIR");
    int found;
    if (named && *named) {
        found = connect_to(c, named);
    } else if (geteuid() == 0) {
        found = connect_to(c, of_system);
    } else {
        struct stat runtime;
        if (base)
            snprintf(own, sizeof own, "%s", base);
        else
            snprintf(own, sizeof own, "/run/user/%u", (unsigned)geteuid());
        if (stat(own, &runtime) == 0) {
            strncat(own, "/cistern/agent.sock", sizeof own - strlen(own) - 1);
        } else {
            const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
            snprintf(own, sizeof own, "%s%s/cistern/agent/control.sock", state ? state : home ? home : "", state ? "" : "/.local/state");
        }
        found = connect_to(c, own) == 0 ? 0 : connect_to(c, of_system);
    }
    struct text hello;
    const char *ok;
    if (found < 0 || begin(c, &hello, "hello") < 0)
        return -1;
    text_put(&hello, ",\"api\":1");
    return ask(c, &hello, &ok);
}

void cistern_close(cistern *c) {
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    while (c->first) {
        struct queued *next = c->first->next;
        free(c->first);
        c->first = next;
    }
    free(c->buffer);
    free(c);
}

const char *cistern_code(const cistern *c) {
    return c ? c->code : "ENOMEM";
}

const char *cistern_message(const cistern *c) {
    return c ? c->message : "no memory is left";
}

int cistern_exit_status(const cistern *c) {
    return c ? c->exit_status : 1;
}

void cistern_set_deadline(cistern *c, uint64_t milliseconds) {
    c->deadline_ms = milliseconds;
}

int cistern_read(cistern *c, const char *path, void **data, size_t *size, uint64_t *version) {
    const char *ok;
    struct text bytes;
    if (ask_of(c, "read", path, &ok) < 0)
        return -1;
    if (text_new(&bytes) < 0)
        return no_memory(c);
    const char *answer = field(ok, "data");
    decode(&bytes, field(answer, "data"));
    if (!bytes.bytes)
        return no_memory(c);
    if (version)
        number(field(field(answer, "attr"), "version"), version);
    *data = bytes.bytes;
    *size = bytes.size;
    return 0;
}

int cistern_write(cistern *c, const char *path, const void *data, size_t size, const uint64_t *if_version,
                  const struct cistern_lock *guard, uint64_t *version) {
    struct text fields;
    const char *ok;
    if (begin(c, &fields, "put") < 0)
        return -1;
    with(&fields, "path", path, strlen(path));
    with(&fields, "data", data, size);
    if (if_version)
        text_put(&fields, ",\"if_version\":%" PRIu64, *if_version);
    if (guard)
        text_put(&fields, ",\"guard\":%" PRIu64, guard->hold);
    if (ask(c, &fields, &ok) < 0)
        return -1;
    if (version)
        number(field(field(ok, "attr"), "version"), version);
    return 0;
}

int cistern_create(cistern *c, const char *path) {
    const char *ok;
    return ask_of(c, "create", path, &ok);
}

int cistern_mkdir(cistern *c, const char *path) {
    const char *ok;
    return ask_of(c, "mkdir", path, &ok);
}

int cistern_remove(cistern *c, const char *path) {
    const char *ok;
    return ask_of(c, "unlink", path, &ok);
}

int cistern_rename(cistern *c, const char *from, const char *to) {
    struct text fields;
    const char *ok;
    if (begin(c, &fields, "rename") < 0)
        return -1;
    with(&fields, "from", from, strlen(from));
    with(&fields, "to", to, strlen(to));
    return ask(c, &fields, &ok);
}

int cistern_lock(cistern *c, const char *path, int64_t wait_ms, struct cistern_lock *lock) {
    struct text fields;
    const char *ok;
    memset(lock, 0, sizeof *lock);
    if (begin(c, &fields, "lock") < 0)
        return -1;
    with(&fields, "path", path, strlen(path));
    if (wait_ms >= 0)
        text_put(&fields, ",\"wait_ms\":%" PRId64, wait_ms);
    text_put(&fields, ",\"events\":true");
    if (ask(c, &fields, &ok) < 0)
        return -1;
    const char *locked = field(ok, "locked");
    number(field(locked, "hold"), &lock->hold);
    number(field(locked, "token"), &lock->token);
    number(field(locked, "object"), &lock->object);
    return lock->hold ? 0 : ended(c, "the agent's answer is not understood");
}

int cistern_unlock(cistern *c, struct cistern_lock *lock) {
    lock->is_lost = 1;
    return ask_number(c, "unlock", "hold", lock->hold);
}

/* Time until the lock is uncertain as was told last, in nanoseconds; 0: over, or not known. */
static uint64_t left_ns(const struct cistern_lock *lock) {
    uint64_t left = UINT64_MAX;
    const clockid_t clocks[2] = {CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME};
    const uint64_t until[2] = {lock->until_raw_ns, lock->until_boot_ns};
    for (int i = 0; i < 2; i++) {
        struct timespec now;
        if (clock_gettime(clocks[i], &now) < 0)
            return 0;
        uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        uint64_t this_left = until[i] > ns ? until[i] - ns : 0;
        left = this_left < left ? this_left : left;
    }
    return left;
}

int cistern_is_valid(cistern *c, struct cistern_lock *lock) {
    if (lock->is_lost || c->fd < 0)
        return 0;
    if (left_ns(lock) > lock->lease_ms * 500000u)
        return 1;
    struct text fields;
    const char *ok;
    if (begin(c, &fields, "hold") < 0)
        return left_ns(lock) > 0;
    text_put(&fields, ",\"hold\":%" PRIu64, lock->hold);
    if (ask(c, &fields, &ok) < 0)
        return c->fd >= 0 && left_ns(lock) > 0; /* What was told before stays true where nothing can be asked. */
    const char *hold = field(ok, "hold"), *state = field(hold, "state"), *until = field(hold, "until");
    int is_certain = state && !strncmp(state, "\"certain\"", 9);
    lock->is_lost = state && !strncmp(state, "\"lost\"", 6);
    lock->until_raw_ns = lock->until_boot_ns = 0;
    number(field(hold, "lease_ms"), &lock->lease_ms);
    int has_until = number(field(until, "clock_monotonic_raw_ns"), &lock->until_raw_ns) == 0
                 && number(field(until, "clock_boottime_ns"), &lock->until_boot_ns) == 0;
    /* Without clocks in common the agent's word is all there is. */
    return is_certain && (!has_until || left_ns(lock) > 0);
}

int cistern_watch(cistern *c, const char *path, uint64_t *object) {
    const char *ok;
    if (ask_of(c, "stat", path, &ok) < 0)
        return -1;
    if (number(field(field(ok, "attr"), "object"), object) < 0)
        return ended(c, "the agent's answer is not understood");
    return ask_number(c, "watch", "object", *object);
}

int cistern_unwatch(cistern *c, uint64_t object) {
    return ask_number(c, "unwatch", "object", object);
}

int cistern_join(cistern *c, const char *path, const void *data, size_t size, uint64_t *object) {
    struct text fields;
    const char *ok;
    if (begin(c, &fields, "join") < 0)
        return -1;
    with(&fields, "path", path, strlen(path));
    with(&fields, "data", data, size);
    if (ask(c, &fields, &ok) < 0)
        return -1;
    return number(field(field(ok, "joined"), "object"), object);
}

int cistern_leave(cistern *c, uint64_t object) {
    return ask_number(c, "leave", "object", object);
}

int cistern_next_event(cistern *c, int timeout_ms, struct cistern_event *event) {
    char *said;
    int read;
    while (!c->first) {
        if ((read = next_line(c, timeout_ms, &said)) != 1)
            return read;
        const char *unasked = field(said, "event");
        if (unasked && keep_event(c, unasked) < 0)
            return -1;
    }
    struct queued *first = c->first;
    *event = first->event;
    c->first = first->next;
    if (!c->first)
        c->end = &c->first;
    free(first);
    return 1;
}

int cistern_fd(const cistern *c) {
    return c->fd;
}

int cistern_call(cistern *c, const char *request, char **answer) {
    struct text fields;
    const char *ok;
    if (text_new(&fields) < 0)
        return no_memory(c);
    text_add(&fields, request, strlen(request));
    if (ask(c, &fields, &ok) < 0)
        return -1;
    if (answer && !(*answer = strndup(ok, (size_t)(skip_value(ok) - ok))))
        return no_memory(c);
    return 0;
}
