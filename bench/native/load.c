/* The load the benchmark puts on a broker, in C so that the client is not what is measured.
 *
 *   load produce LIBRDKAFKA BOOTSTRAP TOPIC RECORDS PAYLOADS [name=value]...
 *   load consume LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS RECORDS [name=value]...
 *   load request HOST PORT REQUESTS ERROR_OFFSET CONNECTIONS WARMUP COUNT SECONDS
 *
 * librdkafka is opened at run time: the one inside the confluent-kafka wheel serves, and no header
 * package is needed. `request` knows no protocol: it cycles through ready-made, length-prefixed
 * requests with one in flight per connection, and checks the two bytes at ERROR_OFFSET of each answer.
 * One line of JSON goes to standard output.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The part of librdkafka's stable ABI that is used here. */
typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;
enum { PRODUCER = 0, CONSUMER = 1, MSG_F_BLOCK = 4, PARTITION_EOF = -191 };
#define PARTITION_UA ((int32_t)-1)

static rd_kafka_conf_t *(*conf_new)(void);
static int (*conf_set)(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
static void (*conf_set_dr_msg_cb)(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
static rd_kafka_t *(*kafka_new)(int, rd_kafka_conf_t *, char *, size_t);
static rd_kafka_topic_t *(*topic_new)(rd_kafka_t *, const char *, void *);
static int (*produce)(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*flush)(rd_kafka_t *, int);
static int (*kafka_poll)(rd_kafka_t *, int);
static rd_kafka_queue_t *(*queue_new)(rd_kafka_t *);
static int (*consume_start_queue)(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
static ssize_t (*consume_batch_queue)(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
static void (*message_destroy)(rd_kafka_message_t *);
static const char *(*err2str)(int);
static const char *(*version_str)(void);

static void fail(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fail("librdkafka", dlerror());
    return found;
}

static void open_librdkafka(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) fail("librdkafka", dlerror());
    conf_new = symbol(library, "rd_kafka_conf_new");
    conf_set = symbol(library, "rd_kafka_conf_set");
    conf_set_dr_msg_cb = symbol(library, "rd_kafka_conf_set_dr_msg_cb");
    kafka_new = symbol(library, "rd_kafka_new");
    topic_new = symbol(library, "rd_kafka_topic_new");
    produce = symbol(library, "rd_kafka_produce");
    flush = symbol(library, "rd_kafka_flush");
    kafka_poll = symbol(library, "rd_kafka_poll");
    queue_new = symbol(library, "rd_kafka_queue_new");
    consume_start_queue = symbol(library, "rd_kafka_consume_start_queue");
    consume_batch_queue = symbol(library, "rd_kafka_consume_batch_queue");
    message_destroy = symbol(library, "rd_kafka_message_destroy");
    err2str = symbol(library, "rd_kafka_err2str");
    version_str = symbol(library, "rd_kafka_version_str");
}

static char *read_whole(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) fail(path, strerror(errno));
    char *bytes = malloc(status.st_size + 1);
    size_t have = 0;
    while (have < (size_t)status.st_size) {
        ssize_t got = read(fd, bytes + have, status.st_size - have);
        if (got <= 0) fail(path, "cannot read");
        have += got;
    }
    close(fd);
    *size = have;
    return bytes;
}

static rd_kafka_t *client(int type, const char *bootstrap, int settings, char **setting,
                          void (*on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *)) {
    char error[512];
    rd_kafka_conf_t *conf = conf_new();
    if (conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error)) fail("setting", error);
    for (int i = 0; i < settings; i++) {
        char *value = strchr(setting[i], '=');
        if (!value) fail("setting", setting[i]);
        *value++ = 0;
        if (conf_set(conf, setting[i], value, error, sizeof error)) fail("setting", error);
    }
    if (on_delivery) conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *kafka = kafka_new(type, conf, error, sizeof error);
    if (!kafka) fail("client", error);
    return kafka;
}

static long failed_deliveries;
static int delivery_error;

static void on_failed_delivery(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    (void)kafka, (void)opaque;
    if (message->err) failed_deliveries++, delivery_error = message->err;
}

static int run_produce(int count, char **argument) {
    if (count < 5) fail("produce", "too few arguments");
    open_librdkafka(argument[0]);
    long records = atol(argument[3]);
    size_t size, payloads = 0, capacity = 1024;
    char *bytes = read_whole(argument[4], &size);
    char **payload = malloc(capacity * sizeof *payload);
    size_t *length = malloc(capacity * sizeof *length);
    for (char *line = bytes; line < bytes + size;) {
        char *end = memchr(line, '\n', bytes + size - line);
        if (!end) end = bytes + size;
        if (payloads == capacity) {
            capacity *= 2;
            payload = realloc(payload, capacity * sizeof *payload);
            length = realloc(length, capacity * sizeof *length);
        }
        payload[payloads] = line;
        length[payloads++] = end - line;
        line = end + 1;
    }
    if (!payloads) fail("produce", "no payloads");
    rd_kafka_t *kafka = client(PRODUCER, argument[1], count - 5, argument + 5, on_failed_delivery);
    rd_kafka_topic_t *topic = topic_new(kafka, argument[2], NULL);
    /* One record first, so that the clock does not see the connection being made. */
    if (produce(topic, 0, MSG_F_BLOCK, payload[0], length[0], NULL, 0, NULL)) fail("produce", "refused");
    if (flush(kafka, 30000)) fail("produce", "the first record was not answered within 30 s");
    int64_t begin = now_ns();
    size_t next = 0;
    for (long i = 1; i < records; i++) {
        if (produce(topic, PARTITION_UA, MSG_F_BLOCK, payload[next], length[next], NULL, 0, NULL))
            fail("produce", strerror(errno));
        if (++next == payloads) next = 0;
    }
    if (flush(kafka, 120000)) fail("produce", "not flushed within 120 s");
    int64_t end = now_ns();
    while (kafka_poll(kafka, 0)) {}
    if (failed_deliveries) fail("delivery", err2str(delivery_error));
    printf("{\"records\": %ld, \"seconds\": %.6f, \"librdkafka\": \"%s\"}\n", records - 1, (end - begin) / 1e9,
           version_str());
    fflush(stdout);
    _exit(0);
}

static int run_consume(int count, char **argument) {
    if (count < 5) fail("consume", "too few arguments");
    open_librdkafka(argument[0]);
    int partitions = atoi(argument[3]);
    long records = atol(argument[4]), seen = 0, first_seen = 0;
    rd_kafka_t *kafka = client(CONSUMER, argument[1], count - 5, argument + 5, NULL);
    rd_kafka_topic_t *topic = topic_new(kafka, argument[2], NULL);
    rd_kafka_queue_t *queue = queue_new(kafka);
    for (int p = 0; p < partitions; p++)
        if (consume_start_queue(topic, p, 0, queue)) fail("consume", "cannot start");
    static rd_kafka_message_t *message[4096];
    int64_t begin = 0, deadline = now_ns() + 120000000000LL;
    unsigned long bytes = 0, first_bytes = 0;
    while (seen < records) {
        /* Not more than are left: the call waits its whole timeout for a full batch. */
        size_t left = records - seen < 4096 ? records - seen : 4096;
        ssize_t got = consume_batch_queue(queue, 1000, message, left);
        if (got < 0 || now_ns() > deadline) fail("consume", "no progress");
        for (ssize_t i = 0; i < got; i++) {
            if (message[i]->err && message[i]->err != PARTITION_EOF) fail("consume", err2str(message[i]->err));
            if (!message[i]->err) seen++, bytes += message[i]->len;
            message_destroy(message[i]);
        }
        /* The clock starts when data flows: what precedes is connecting and looking up offsets. */
        if (!begin && seen) begin = now_ns(), first_seen = seen, first_bytes = bytes;
    }
    int64_t end = now_ns();
    printf("{\"records\": %ld, \"bytes\": %lu, \"seconds\": %.6f, \"librdkafka\": \"%s\"}\n", seen - first_seen,
           bytes - first_bytes, (end - begin) / 1e9, version_str());
    fflush(stdout);
    _exit(0);
}

typedef struct {
    int fd;
    size_t next, have, need;
    int64_t sent_ns;
    unsigned char answer[65536];
} connection_t;

static char **request;
static size_t *request_size, requests, error_offset;

static void send_next(connection_t *c) {
    size_t size = request_size[c->next];
    c->sent_ns = now_ns();
    size_t done = 0;
    while (done < size) {
        ssize_t sent = send(c->fd, request[c->next] + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) fail("send", strerror(errno));
        if (sent > 0) done += sent;
    }
    if (++c->next == requests) c->next = 0;
    c->have = 0, c->need = 4;
}

/* True once a whole answer is there. */
static int receive(connection_t *c) {
    for (;;) {
        ssize_t got = recv(c->fd, c->answer + c->have, sizeof c->answer - c->have, 0);
        if (got < 0 && errno == EAGAIN) return 0;
        if (got <= 0) fail("receive", got ? strerror(errno) : "closed by the broker");
        c->have += got;
        if (c->have >= 4) {
            uint32_t length;
            memcpy(&length, c->answer, 4);
            c->need = 4 + ntohl(length);
            if (c->need > sizeof c->answer) fail("receive", "answer too long");
        }
        if (c->have > c->need) fail("receive", "more than one answer");
        if (c->have == c->need) {
            if (c->need < error_offset + 2) fail("receive", "answer too short");
            if (c->answer[error_offset] || c->answer[error_offset + 1]) {
                char code[32];
                snprintf(code, sizeof code, "%d",
                         (int16_t)(c->answer[error_offset] << 8 | c->answer[error_offset + 1]));
                fail("error code in the answer", code);
            }
            return 1;
        }
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int run_request(int count, char **argument) {
    if (count != 8) fail("request", "needs eight arguments");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argument[1]))};
    if (inet_pton(AF_INET, argument[0], &address.sin_addr) != 1) fail("request", "bad address");
    size_t size, capacity = 64;
    char *bytes = read_whole(argument[2], &size);
    request = malloc(capacity * sizeof *request);
    request_size = malloc(capacity * sizeof *request_size);
    for (size_t at = 0; at + 4 <= size;) {
        uint32_t length;
        memcpy(&length, bytes + at, 4);
        if (requests == capacity) {
            capacity *= 2;
            request = realloc(request, capacity * sizeof *request);
            request_size = realloc(request_size, capacity * sizeof *request_size);
        }
        request[requests] = bytes + at;
        request_size[requests++] = 4 + ntohl(length);
        at += 4 + ntohl(length);
    }
    if (!requests) fail("request", "no requests");
    error_offset = atol(argument[3]);
    int connections = atoi(argument[4]);
    long warmup = atol(argument[5]), wanted = atol(argument[6]);
    int64_t limit_ns = (int64_t)(atof(argument[7]) * 1e9);
    int poller = epoll_create1(0), one = 1;
    connection_t *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        connection_t *c = &all[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        c->next = (size_t)i * requests / connections;
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect", strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        /* One connection blocks in recv: a poll per answer would be part of what is measured. */
        if (connections > 1) {
            fcntl(c->fd, F_SETFL, O_NONBLOCK);
            struct epoll_event interest = {.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &interest);
        }
    }
    int64_t *latency = malloc((wanted + 1) * sizeof *latency);
    long seen = 0, measured = 0;
    int64_t begin = warmup ? 0 : now_ns(), end = 0, started = now_ns();
    for (int i = 0; i < connections; i++) send_next(&all[i]);
    struct epoll_event ready[256];
    while (!end) {
        int events = 1;
        if (connections > 1) events = epoll_wait(poller, ready, 256, 10000);
        if (events <= 0) fail("request", "no answer within 10 s");
        for (int i = 0; i < events && !end; i++) {
            connection_t *c = connections > 1 ? ready[i].data.ptr : all;
            if (!receive(c)) continue;
            int64_t now = now_ns();
            seen++;
            if (begin) {
                latency[measured++] = now - c->sent_ns;
                if (measured == wanted || now - begin >= limit_ns) end = now;
            } else if (seen >= warmup || now - started >= limit_ns) {
                begin = now;
            }
            if (!end) send_next(c);
        }
    }
    qsort(latency, measured, sizeof *latency, ascending);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f}\n",
           measured, (end - begin) / 1e9, latency[measured / 2] / 1e3, latency[measured * 9 / 10] / 1e3,
           latency[measured * 99 / 100] / 1e3, latency[measured * 999 / 1000] / 1e3, latency[measured - 1] / 1e3);
    return 0;
}

int main(int count, char **argument) {
    if (count > 2 && !strcmp(argument[1], "produce")) return run_produce(count - 2, argument + 2);
    if (count > 2 && !strcmp(argument[1], "consume")) return run_consume(count - 2, argument + 2);
    if (count > 2 && !strcmp(argument[1], "request")) return run_request(count - 2, argument + 2);
    fail("usage", "load produce|consume|request ...");
}
