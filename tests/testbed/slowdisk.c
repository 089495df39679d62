/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slowdisk: an nbdkit plugin that behaves like one disk which many clients
 * share and which never interrupts a request that it has begun.
 *
 * Requests are served in order of arrival by `channels` servers (1 by default:
 * a disk with one arm; more: an SSD). With one server:
 *
 *     start  = max(arrival, server free)      finish = start + service
 *     server free = finish
 *
 * All times are absolute deadlines on CLOCK_MONOTONIC, computed at arrival, so
 * that late wake-ups of a client's thread do not make the disk slower: with a
 * service time of 5 ms, n queued requests take n * 5 ms, not one microsecond
 * more. The caller sleeps until `finish` and is answered then.
 *
 * How long `service` is: see model.h.
 *
 * Flushes are counted and logged but cost no time: nothing is cached here.
 *
 * Clients are told apart by the name of the NBD export that they ask for;
 * every name leads to the same disk. log=FILE gets one Record per request,
 * written at arrival, when all its times are known; a reader may read the file
 * at any moment. data-log=FILE gets the data of each write, in the same order:
 * from both, every state can be made that a loss of power may leave. With
 * image=FILE the disk's content is that file, and outlives this process.
 */
#define _GNU_SOURCE
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum {
    NS_PER_S = 1000000000,
    CHANNELS_MAX = 64,
    NAME_BYTES = 16,
    NS_PER_US = 1000,
};

typedef enum Operation { OP_READ, OP_WRITE, OP_FLUSH } Operation;

/* The log's format; disk.py holds the same one as a numpy type. */
typedef struct Record {
    char client[NAME_BYTES]; /* padded with zeros */
    uint32_t operation;
    uint32_t bytes;
    uint64_t offset;
    int64_t arrival_ns;
    int64_t start_ns;
    int64_t finish_ns;
} Record;

typedef struct Times {
    int64_t arrival_ns, start_ns, finish_ns;
} Times;

typedef struct Client {
    char name[NAME_BYTES];
} Client;

static Model model = {
    .size_bytes = (int64_t)1 << 30,
    .service_us = 5000,
    .overhead_us = 100,
    .seek_min_us = 800,
    .seek_max_us = 16000,
    .seed = 1,
};
static bool rate_is_set;
static int64_t channels = 1;
static int64_t spin_us = 300;
static const char *log_path, *data_log_path, *image_path;

static uint8_t *data;
static int log_fd = -1, data_log_fd = -1;

/* Guards all below: one decision at a time, in order of arrival. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t free_ns[CHANNELS_MAX];
static Position position;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

/*
 * Sleeps, and looks at the clock for the last part: a processor of a virtual
 * host may need 200 us to wake up, more when it was idle for longer. Without
 * this, a disk that has little to do would be slower than a busy one.
 */
static void sleep_until(int64_t deadline_ns)
{
    int64_t wake_ns = deadline_ns - spin_us * NS_PER_US;
    struct timespec wake = {
        .tv_sec = wake_ns / NS_PER_S,
        .tv_nsec = wake_ns % NS_PER_S,
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) ==
           EINTR) {
    }
    while (now_ns() < deadline_ns) {
    }
}

/* The server that is free first. */
static int64_t *first_free(void)
{
    int64_t *first = &free_ns[0];

    for (int64_t i = 1; i < channels; i++) {
        if (free_ns[i] < *first) {
            first = &free_ns[i];
        }
    }
    return first;
}

static void write_record(const Client *client, Operation operation,
                         uint32_t bytes, uint64_t offset, Times times)
{
    Record record = {
        .operation = operation, .bytes = bytes, .offset = offset,
        .arrival_ns = times.arrival_ns, .start_ns = times.start_ns,
        .finish_ns = times.finish_ns,
    };

    memcpy(record.client, client->name, NAME_BYTES);
    if (log_fd >= 0 &&
        write(log_fd, &record, sizeof(record)) != sizeof(record)) {
        nbdkit_error("log=%s: %m", log_path);
        close(log_fd);
        log_fd = -1;
    }
}

/* One write() a request: whoever reads while we run sees whole ones. */
static void write_data(const void *buffer, uint32_t bytes)
{
    if (buffer && data_log_fd >= 0 &&
        write(data_log_fd, buffer, bytes) != (ssize_t)bytes) {
        nbdkit_error("data-log=%s: %m", data_log_path);
        close(data_log_fd);
        data_log_fd = -1;
    }
}

/*
 * Take the request's place in the queue; returns when it will be finished.
 * buffer: the data of a write, else NULL.
 */
static int64_t admit(const Client *client, Operation operation, uint32_t bytes,
                     uint64_t offset, const void *buffer)
{
    Times times;
    int64_t *server;

    pthread_mutex_lock(&lock);
    server = first_free();
    times.arrival_ns = now_ns();
    times.start_ns = times.arrival_ns > *server ? times.arrival_ns : *server;
    times.finish_ns = times.start_ns + model_service_ns(&model, position,
                                                        offset, bytes);
    *server = times.finish_ns;
    position.head = offset + bytes;
    position.served++;
    write_data(buffer, bytes);
    write_record(client, operation, bytes, offset, times);
    pthread_mutex_unlock(&lock);
    return times.finish_ns;
}

static void *disk_open(int readonly)
{
    Client *client = calloc(1, sizeof(*client));
    const char *name = nbdkit_export_name();

    (void)readonly;
    if (!client || !name) {
        nbdkit_error("no memory for a client, or no export name");
        free(client);
        return NULL;
    }
    /* A full name needs no terminator: the log's field has a fixed width. */
    memcpy(client->name, name, strnlen(name, NAME_BYTES));
    return client;
}

static void disk_close(void *handle)
{
    free(handle);
}

static int64_t disk_get_size(void *handle)
{
    (void)handle;
    return model.size_bytes;
}

static int disk_can_multi_conn(void *handle)
{
    (void)handle;
    return 1;
}

static int disk_pread(void *handle, void *buffer, uint32_t count,
                      uint64_t offset, uint32_t flags)
{
    (void)flags;
    sleep_until(admit(handle, OP_READ, count, offset, NULL));
    memcpy(buffer, data + offset, count);
    return 0;
}

static int disk_pwrite(void *handle, const void *buffer, uint32_t count,
                       uint64_t offset, uint32_t flags)
{
    (void)flags;
    sleep_until(admit(handle, OP_WRITE, count, offset, buffer));
    memcpy(data + offset, buffer, count);
    return 0;
}

static int disk_flush(void *handle, uint32_t flags)
{
    int64_t now = now_ns();
    Times times = { now, now, now };

    (void)flags;
    pthread_mutex_lock(&lock);
    write_record(handle, OP_FLUSH, 0, 0, times);
    pthread_mutex_unlock(&lock);
    return 0;
}

static const struct {
    const char *key;
    int64_t *value;
    int64_t least, most;
} numbers[] = {
    { "service-us", &model.service_us, 0, 60000000 },
    { "overhead-us", &model.overhead_us, 0, 60000000 },
    { "seek-min-us", &model.seek_min_us, 0, 60000000 },
    { "seek-max-us", &model.seek_max_us, 0, 60000000 },
    { "channels", &channels, 1, CHANNELS_MAX },
    { "spin-us", &spin_us, 0, 10000 },
    { "seed", &model.seed, 0, INT64_MAX },
};

/* Absolute: nbdkit may have changed its working directory when they are opened. */
static const struct {
    const char *key;
    const char **path;
} files[] = {
    { "log", &log_path },
    { "data-log", &data_log_path },
    { "image", &image_path },
};

static int config_number(size_t i, const char *text)
{
    int64_t value;

    if (nbdkit_parse_int64_t(numbers[i].key, text, &value) != 0) {
        return -1;
    }
    if (value < numbers[i].least || value > numbers[i].most) {
        nbdkit_error("%s=%s: use a number from %" PRId64 " to %" PRId64,
                     numbers[i].key, text, numbers[i].least, numbers[i].most);
        return -1;
    }
    *numbers[i].value = value;
    return 0;
}

static int config_bytes(const char *text, int64_t *value)
{
    *value = nbdkit_parse_size(text);
    return *value < 0 ? -1 : 0;
}

/* One of two words; *second tells which. */
static int config_word(const char *key, const char *text, const char *a,
                       const char *b, bool *second)
{
    if (strcmp(text, a) != 0 && strcmp(text, b) != 0) {
        nbdkit_error("%s=%s: use %s or %s", key, text, a, b);
        return -1;
    }
    *second = strcmp(text, b) == 0;
    return 0;
}

static int disk_config(const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            return config_number(i, value);
        }
    }
    if (strcmp(key, "size") == 0) {
        return config_bytes(value, &model.size_bytes);
    }
    if (strcmp(key, "rate") == 0) {
        rate_is_set = true;
        return config_bytes(value, &model.rate_bytes);
    }
    if (strcmp(key, "model") == 0) {
        return config_word(key, value, "fixed", "seek", &model.is_seek);
    }
    if (strcmp(key, "rotation") == 0) {
        return config_word(key, value, "random", "half", &model.rotation_is_half);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (strcmp(key, files[i].key) == 0) {
            *files[i].path = value;
            return 0;
        }
    }
    nbdkit_error("%s: unknown parameter; see nbdkit --help of this plugin",
                 key);
    return -1;
}

static int disk_config_complete(void)
{
    if (model.size_bytes <= 0) {
        nbdkit_error("size=%" PRId64 ": use a size above 0", model.size_bytes);
        return -1;
    }
    if (model.seek_max_us < model.seek_min_us) {
        nbdkit_error("seek-max-us=%" PRId64 ": below seek-min-us=%" PRId64,
                     model.seek_max_us, model.seek_min_us);
        return -1;
    }
    if (model.is_seek && !rate_is_set) {
        model.rate_bytes = 150000000;
    }
    return 0;
}

/* Pages that nobody wrote stay the kernel's zero page: a sparse disk. */
static int map_data(void)
{
    int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    if (image_path) {
        flags = MAP_SHARED;
        fd = open(image_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, model.size_bytes) != 0) {
            nbdkit_error("image=%s: %m", image_path);
            return -1;
        }
    }
    data = mmap(NULL, model.size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (data == MAP_FAILED) {
        nbdkit_error("size=%" PRId64 ": %m", model.size_bytes);
        return -1;
    }
    return 0;
}

static int open_log(const char *key, const char *path, int *fd)
{
    if (path) {
        *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (*fd < 0) {
            nbdkit_error("%s=%s: %m", key, path);
            return -1;
        }
    }
    return 0;
}

static int disk_get_ready(void)
{
    return map_data() == 0 && open_log("log", log_path, &log_fd) == 0 &&
           open_log("data-log", data_log_path, &data_log_fd) == 0 ? 0 : -1;
}

#define CONFIG_HELP \
    "size=BYTES        size of the disk (1G), in memory, sparse\n" \
    "model=fixed|seek  how long a request takes (fixed)\n" \
    "service-us=N      fixed: service time (5000)\n" \
    "rate=BYTES        media rate per second, 0: no cost (seek: 150000000)\n" \
    "overhead-us=N     seek: every request (100)\n" \
    "seek-min-us=N     seek: to the next track (800)\n" \
    "seek-max-us=N     seek: full stroke (16000)\n" \
    "rotation=random|half  seek: wait for the sector (random)\n" \
    "channels=N        requests served at a time (1)\n" \
    "seed=N            of the rotation (1)\n" \
    "spin-us=N         awake for so long before each answer (300)\n" \
    "log=FILE          one binary record per request\n" \
    "data-log=FILE     the data of each write, in the order of the log\n" \
    "image=FILE        the disk's content (none: memory)"

static struct nbdkit_plugin plugin = {
    .name = "slowdisk",
    .description = "one shared disk that never preempts a request",
    .config = disk_config,
    .config_complete = disk_config_complete,
    .config_help = CONFIG_HELP,
    .get_ready = disk_get_ready,
    .open = disk_open,
    .close = disk_close,
    .get_size = disk_get_size,
    .can_multi_conn = disk_can_multi_conn,
    .pread = disk_pread,
    .pwrite = disk_pwrite,
    .flush = disk_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
