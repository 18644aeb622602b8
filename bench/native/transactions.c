/* Transactions against a broker, in C so that the client is not what is measured.
 *
 *   transactions raw HOST PORT SCRIPTS SEQUENCES PASSES WARMUP COUNT SECONDS RATE
 *   transactions librdkafka LIBRDKAFKA BOOTSTRAP TOPIC PARTITIONS IDS RECORDS SIZE SECONDS PREFIX [name=value]...
 *   transactions interval LIBRDKAFKA BOOTSTRAP TOPIC INTERVAL_MS SECONDS RATE SIZE ID [name=value]...
 *
 * `raw` knows no protocol: a script is a cycle of ready-made requests of one connection, each of a kind (it opens,
 * writes or ends a transaction), with the place of the error codes in its answer. The batches inside get their
 * sequence numbers and checksums here; SEQUENCES keeps the numbers from one run to the next. A call that is told
 * to come back (CONCURRENT_TRANSACTIONS and the like) does after 20 ms, as Kafka's Java producer would. With a RATE
 * above 0 so many transactions begin in a second, and no more.
 * `librdkafka` runs one thread per transactional id. `interval` commits by the clock, as fast as it can (RATE 0) or
 * at a steady rate; then a read_committed consumer takes the time from produce to consume. INTERVAL_MS 0: no
 * transactions. One line of JSON goes to standard output.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BACKOFF_NS 20000000LL
#define SECOND_NS 1000000000LL

static void fail(const char *what, const char *why) {
    fprintf(stderr, "transactions: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void sleep_until(int64_t ns) {
    struct timespec t = {.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

typedef struct {
    int64_t *ns;
    size_t count, capacity;
} times_t;

static void note(times_t *t, int64_t ns) {
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 4096;
        t->ns = realloc(t->ns, t->capacity * sizeof *t->ns);
    }
    t->ns[t->count++] = ns;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *name, times_t *t) {
    if (!t->count) return;
    qsort(t->ns, t->count, sizeof *t->ns, ascending);
    printf(", \"%s_p50_us\": %.1f, \"%s_p99_us\": %.1f", name, t->ns[t->count / 2] / 1e3, name,
           t->ns[t->count * 99 / 100] / 1e3);
}

/* CRC-32C */

static uint32_t crc_table[256];

static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
        crc_table[i] = c;
    }
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_fast(const unsigned char *p, size_t n) {
    uint64_t c = 0xffffffff;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    for (; n; n--, p++) c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

static uint32_t crc32c(const unsigned char *p, size_t n) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) return crc_fast(p, n);
#endif
    uint32_t c = 0xffffffff;
    while (n--) c = crc_table[(c ^ *p++) & 0xff] ^ c >> 8;
    return ~c;
}

/* Raw calls */

enum { OPENS = 0, WRITES = 1, ENDS = 2 };
enum { BATCH_CRC = 17, BATCH_CHECKED = 21, BATCH_SEQUENCE = 53 };

typedef struct {
    uint32_t at, size, slot, records;
} patch_t;

typedef struct {
    uint32_t kind, error_at, error_stride, errors, size, patches;
} step_head_t;

typedef struct {
    step_head_t head;
    patch_t *patch;
    unsigned char *frame;
} step_t;

typedef struct {
    int fd;
    step_t *step;
    uint32_t steps, next;
    long passes;
    size_t have;
    int64_t sent_ns, opened_ns, again_ns;
    unsigned char answer[16384];
} connection_t;

static int32_t *sequence;
static long backed_off;

static char *map_file(const char *path, size_t *size, int shared) {
    int fd = open(path, O_RDWR);
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) fail(path, strerror(errno));
    *size = status.st_size;
    char *bytes = mmap(NULL, *size, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) fail(path, strerror(errno));
    close(fd);
    return bytes;
}

static void transmit(connection_t *c) {
    step_t *s = &c->step[c->next];
    size_t done = 0;
    while (done < s->head.size) {
        ssize_t sent = send(c->fd, s->frame + done, s->head.size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) fail("send", strerror(errno));
        if (sent > 0) done += sent;
    }
    c->have = 0;
}

static void send_step(connection_t *c) {
    step_t *s = &c->step[c->next];
    for (uint32_t i = 0; i < s->head.patches; i++) {
        patch_t *p = &s->patch[i];
        unsigned char *batch = s->frame + p->at;
        uint32_t number = htonl(sequence[p->slot]);
        memcpy(batch + BATCH_SEQUENCE, &number, 4);
        uint32_t checksum = htonl(crc32c(batch + BATCH_CHECKED, p->size - BATCH_CHECKED));
        memcpy(batch + BATCH_CRC, &checksum, 4);
    }
    c->sent_ns = now_ns();
    if (s->head.kind == OPENS) c->opened_ns = c->sent_ns;
    transmit(c);
}

static int receive(connection_t *c) {
    for (;;) {
        ssize_t got = recv(c->fd, c->answer + c->have, sizeof c->answer - c->have, 0);
        if (got < 0 && errno == EAGAIN) return 0;
        if (got <= 0) fail("receive", got ? strerror(errno) : "closed by the broker");
        c->have += got;
        if (c->have < 4) continue;
        uint32_t length;
        memcpy(&length, c->answer, 4);
        length = ntohl(length) + 4;
        if (length > sizeof c->answer || c->have > length) fail("receive", "an answer of the wrong size");
        if (c->have == length) return 1;
    }
}

/* True if the answer was good; else the call is sent again later, or the program ends. */
static int accepted(connection_t *c, int64_t now) {
    step_t *s = &c->step[c->next];
    for (uint32_t i = 0; i < s->head.errors; i++) {
        size_t at = s->head.error_at + (size_t)i * s->head.error_stride;
        if (at + 2 > c->have) fail("receive", "answer too short");
        int code = (int16_t)(c->answer[at] << 8 | c->answer[at + 1]);
        if (code == 51 || code == 14 || code == 15 || code == 16 || code == 19) {
            backed_off++;
            c->again_ns = now + BACKOFF_NS;
            return 0;
        }
        if (code) {
            char text[64];
            snprintf(text, sizeof text, "%d, step of kind %u", code, s->head.kind);
            fail("error code in the answer", text);
        }
    }
    for (uint32_t i = 0; i < s->head.patches; i++) sequence[s->patch[i].slot] += s->patch[i].records;
    return 1;
}

static int run_raw(int count, char **argument) {
    if (count != 9) fail("raw", "needs nine arguments");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argument[1]))};
    if (inet_pton(AF_INET, argument[0], &address.sin_addr) != 1) fail("raw", "bad address");
    size_t size;
    char *at = map_file(argument[2], &size, 0);
    sequence = (int32_t *)map_file(argument[3], &size, 1);
    long passes = atol(argument[4]), warmup = atol(argument[5]), wanted = atol(argument[6]);
    int64_t limit_ns = (int64_t)(atof(argument[7]) * 1e9);
    double rate = atof(argument[8]);
    make_crc_table();
    uint32_t connections;
    memcpy(&connections, at, 4), at += 4;
    int poller = epoll_create1(0), one = 1;
    connection_t *all = calloc(connections, sizeof *all);
    for (uint32_t i = 0; i < connections; i++) {
        connection_t *c = &all[i];
        memcpy(&c->steps, at, 4), at += 4;
        c->step = calloc(c->steps, sizeof *c->step);
        for (uint32_t j = 0; j < c->steps; j++) {
            step_t *s = &c->step[j];
            memcpy(&s->head, at, sizeof s->head), at += sizeof s->head;
            s->patch = (patch_t *)at, at += s->head.patches * sizeof *s->patch;
            s->frame = (unsigned char *)at, at += (s->head.size + 3) & ~3u;
        }
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect", strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        /* One connection blocks in recv: a poll per answer would be part of what is measured. */
        if (connections > 1) {
            fcntl(c->fd, F_SETFL, O_NONBLOCK);
            struct epoll_event interest = {.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &interest);
        }
    }
    times_t commits = {0}, wholes = {0};
    long ended = 0, measured = 0, backed_off_before = 0;
    uint32_t running = connections;
    int64_t started = now_ns(), begin = warmup ? 0 : started, end = 0;
    for (uint32_t i = 0; i < connections; i++) send_step(&all[i]);
    struct epoll_event ready[256];
    while (running) {
        int events = 1;
        if (connections > 1) {
            int64_t now = now_ns(), soonest = now + 10 * SECOND_NS;
            for (uint32_t i = 0; i < connections; i++) {
                connection_t *c = &all[i];
                if (c->again_ns && c->again_ns <= now) c->again_ns = 0, transmit(c);
                if (c->again_ns && c->again_ns < soonest) soonest = c->again_ns;
            }
            events = epoll_wait(poller, ready, 256, (int)((soonest - now + 999999) / 1000000));
            if (!events && soonest - now >= 10 * SECOND_NS) fail("raw", "no answer within 10 s");
        } else if (all->again_ns) {
            sleep_until(all->again_ns);
            all->again_ns = 0, transmit(all);
        }
        for (int i = 0; i < events; i++) {
            connection_t *c = connections > 1 ? ready[i].data.ptr : all;
            if (!receive(c)) continue;
            int64_t now = now_ns();
            if (!accepted(c, now)) continue;
            int ends = c->step[c->next].head.kind == ENDS;
            if (ends) {
                ended++;
                if (begin && !end) {
                    measured++;
                    note(&commits, now - c->sent_ns);
                    note(&wholes, now - c->opened_ns);
                } else if (!begin && ended >= warmup) {
                    begin = now, backed_off_before = backed_off;
                }
            }
            if (begin && !end && ((wanted && measured >= wanted) || now - begin >= limit_ns)) {
                end = now;
                backed_off -= backed_off_before;
                backed_off_before = backed_off;
            }
            if (++c->next == c->steps) c->next = 0, c->passes++;
            /* Nobody stops within a transaction. */
            if ((passes && c->passes == passes) || (end && ends)) {
                running--;
                continue;
            }
            if (rate > 0 && ends) sleep_until(started + (int64_t)(ended / rate * 1e9));
            send_step(c);
        }
    }
    if (!end) end = now_ns(), backed_off_before = backed_off;
    printf("{\"transactions\": %ld, \"seconds\": %.6f, \"backed_off\": %ld", measured, (end - begin) / 1e9,
           backed_off_before);
    print_times("commit", &commits);
    print_times("whole", &wholes);
    printf("}\n");
    return 0;
}

/* librdkafka: the part of its stable ABI that is used here. */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
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
enum { PRODUCER = 0, CONSUMER = 1, MSG_F_COPY = 2, MSG_F_BLOCK = 4, PARTITION_EOF = -191 };

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
static rd_kafka_error_t *(*init_transactions)(rd_kafka_t *, int);
static rd_kafka_error_t *(*begin_transaction)(rd_kafka_t *);
static rd_kafka_error_t *(*commit_transaction)(rd_kafka_t *, int);
static const char *(*error_string)(const rd_kafka_error_t *);

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
    init_transactions = symbol(library, "rd_kafka_init_transactions");
    begin_transaction = symbol(library, "rd_kafka_begin_transaction");
    commit_transaction = symbol(library, "rd_kafka_commit_transaction");
    error_string = symbol(library, "rd_kafka_error_string");
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (conf_set(conf, name, value, error, sizeof error)) fail("setting", error);
}

/* A commit polls for delivery reports. Where nobody asked for any, nothing wakes it, and it looks every 10 ms. */
static void on_delivery(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    (void)kafka, (void)opaque;
    if (message->err) fail("delivery", err2str(message->err));
}

static rd_kafka_t *client(int type, const char *bootstrap, const char *id, int settings, char **setting) {
    char error[512], name[256];
    rd_kafka_conf_t *conf = conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    if (id) set(conf, "transactional.id", id);
    if (type == PRODUCER) conf_set_dr_msg_cb(conf, on_delivery);
    for (int i = 0; i < settings; i++) {
        char *value = strchr(setting[i], '=');
        if (!value) fail("setting", setting[i]);
        snprintf(name, sizeof name, "%.*s", (int)(value - setting[i]), setting[i]);
        set(conf, name, value + 1);
    }
    rd_kafka_t *kafka = kafka_new(type, conf, error, sizeof error);
    if (!kafka) fail("client", error);
    return kafka;
}

static void check(const char *what, rd_kafka_error_t *error) {
    if (error) fail(what, error_string(error));
}

typedef struct {
    pthread_t thread;
    rd_kafka_t *kafka;
    rd_kafka_topic_t *topic;
    int number;
    times_t commits, wholes;
} producer_t;

static int partitions, records_each, size_each, sample_settings;
static char **sample_setting;
static const char *sample_bootstrap, *sample_topic, *sample_prefix;
static _Atomic int64_t clock_begin, clock_end;
static _Atomic int producers_ready;

static void *produce_transactions(void *opaque) {
    producer_t *me = opaque;
    char id[128];
    snprintf(id, sizeof id, "%s-%d", sample_prefix, me->number);
    me->kafka = client(PRODUCER, sample_bootstrap, id, sample_settings, sample_setting);
    me->topic = topic_new(me->kafka, sample_topic, NULL);
    check("init_transactions", init_transactions(me->kafka, 60000));
    char *value = malloc(size_each);
    memset(value, 'x', size_each);
    int32_t next = me->number % partitions;
    int first = 1;
    for (;;) {
        int64_t opened = now_ns();
        if (clock_end && opened >= clock_end) return NULL;
        check("begin_transaction", begin_transaction(me->kafka));
        for (int i = 0; i < records_each; i++) {
            if (produce(me->topic, next, MSG_F_BLOCK, value, size_each, NULL, 0, NULL)) fail("produce", "refused");
            next = (next + 1) % partitions;
        }
        int64_t called = now_ns();
        check("commit_transaction", commit_transaction(me->kafka, 60000));
        int64_t now = now_ns();
        if (clock_begin && now >= clock_begin && now <= clock_end) {
            note(&me->commits, now - called);
            note(&me->wholes, now - opened);
        }
        /* The clock starts once everybody has connected and made a transaction. */
        if (first) first = 0, producers_ready++;
    }
}

static int run_librdkafka(int count, char **argument) {
    if (count < 9) fail("librdkafka", "too few arguments");
    open_librdkafka(argument[0]);
    sample_bootstrap = argument[1], sample_topic = argument[2], sample_prefix = argument[8];
    partitions = atoi(argument[3]), records_each = atoi(argument[5]), size_each = atoi(argument[6]);
    int ids = atoi(argument[4]);
    double seconds = atof(argument[7]);
    sample_settings = count - 9, sample_setting = argument + 9;
    producer_t *all = calloc(ids, sizeof *all);
    for (int i = 0; i < ids; i++) {
        all[i].number = i;
        if (pthread_create(&all[i].thread, NULL, produce_transactions, &all[i])) fail("thread", strerror(errno));
    }
    int64_t deadline = now_ns() + 60 * SECOND_NS;
    while (producers_ready < ids) {
        if (now_ns() > deadline) fail("librdkafka", "not all producers were ready within 60 s");
        usleep(1000);
    }
    int64_t begin = now_ns() + SECOND_NS / 10, end = begin + (int64_t)(seconds * 1e9);
    clock_end = end;
    clock_begin = begin;
    times_t commits = {0}, wholes = {0};
    for (int i = 0; i < ids; i++) {
        pthread_join(all[i].thread, NULL);
        for (size_t j = 0; j < all[i].commits.count; j++) {
            note(&commits, all[i].commits.ns[j]);
            note(&wholes, all[i].wholes.ns[j]);
        }
    }
    printf("{\"transactions\": %zu, \"seconds\": %.6f, \"backed_off\": 0", commits.count, seconds);
    print_times("commit", &commits);
    print_times("whole", &wholes);
    printf("}\n");
    fflush(stdout);
    _exit(0);
}

typedef struct {
    rd_kafka_t *kafka;
    const char *topic;
    _Atomic long wanted;
    long seen;
    times_t latencies;
} reader_t;

static void *read_all(void *opaque) {
    reader_t *me = opaque;
    static rd_kafka_message_t *message[1024];
    rd_kafka_queue_t *queue = queue_new(me->kafka);
    if (consume_start_queue(topic_new(me->kafka, me->topic, NULL), 0, 0, queue)) fail("consume", "cannot start");
    int64_t deadline = now_ns() + 120 * SECOND_NS;
    while (!me->wanted || me->seen < me->wanted) {
        ssize_t got = consume_batch_queue(queue, 1, message, 1024);
        int64_t now = now_ns();
        if (got < 0 || now > deadline) fail("consume", "no progress");
        for (ssize_t i = 0; i < got; i++) {
            if (message[i]->err && message[i]->err != PARTITION_EOF) fail("consume", err2str(message[i]->err));
            if (!message[i]->err) {
                int64_t stamp;
                memcpy(&stamp, message[i]->payload, sizeof stamp);
                note(&me->latencies, now - stamp);
                me->seen++;
            }
            message_destroy(message[i]);
        }
    }
    return NULL;
}

static int run_interval(int count, char **argument) {
    if (count < 8) fail("interval", "too few arguments");
    open_librdkafka(argument[0]);
    int64_t interval = (int64_t)(atof(argument[3]) * 1e6), length = (int64_t)(atof(argument[4]) * 1e9);
    double rate = atof(argument[5]);
    int size = atoi(argument[6]);
    rd_kafka_t *kafka = client(PRODUCER, argument[1], interval ? argument[7] : NULL, count - 8, argument + 8);
    rd_kafka_topic_t *topic = topic_new(kafka, argument[2], NULL);
    char *value = calloc(1, size);
    if (interval) check("init_transactions", init_transactions(kafka, 60000));
    char *reading[] = {"isolation.level=read_committed"};
    reader_t reader = {.topic = argument[2]};
    pthread_t thread;
    if (rate > 0) {
        reader.kafka = client(CONSUMER, argument[1], NULL, 1, reading);
        pthread_create(&thread, NULL, read_all, &reader);
    }
    long sent = 0, ended = 0;
    int64_t begin = now_ns(), now = begin;
    while (now - begin < length) {
        int64_t until = interval ? now + interval : begin + length;
        if (until > begin + length) until = begin + length;
        if (interval) check("begin_transaction", begin_transaction(kafka));
        for (; (now = now_ns()) < until; sent++) {
            if (rate > 0) {
                int64_t due = begin + (int64_t)(sent / rate * 1e9);
                if (due >= until) {
                    sleep_until(until);
                    break;
                }
                if (due > now) sleep_until(due), now = now_ns();
            }
            memcpy(value, &now, sizeof now);
            while (produce(topic, 0, MSG_F_COPY, value, size, NULL, 0, NULL)) {
                if (errno != ENOBUFS) fail("produce", strerror(errno));
                kafka_poll(kafka, 1);
            }
            if (sent % 1024 == 0 || rate > 0) kafka_poll(kafka, 0);
        }
        if (interval) check("commit_transaction", commit_transaction(kafka, 60000)), ended++;
        now = now_ns();
    }
    if (!interval && flush(kafka, 60000)) fail("flush", "not within 60 s");
    int64_t end = now_ns();
    printf("{\"records\": %ld, \"transactions\": %ld, \"seconds\": %.6f", sent, ended, (end - begin) / 1e9);
    if (rate > 0) {
        reader.wanted = sent;
        pthread_join(thread, NULL);
        print_times("latency", &reader.latencies);
    }
    printf("}\n");
    fflush(stdout);
    _exit(0);
}

/* librdkafka's own mock broker with one topic, for as long as this process lives: mock LIBRDKAFKA TOPIC PARTITIONS */
static int run_mock(int count, char **argument) {
    if (count != 3) fail("usage", "mock LIBRDKAFKA TOPIC PARTITIONS");
    open_librdkafka(argument[0]);
    void *library = dlopen(argument[0], RTLD_NOW);
    void *(*cluster_new)(rd_kafka_t *, int) = symbol(library, "rd_kafka_mock_cluster_new");
    int (*topic_create)(void *, const char *, int, int) = symbol(library, "rd_kafka_mock_topic_create");
    const char *(*bootstraps)(void *) = symbol(library, "rd_kafka_mock_cluster_bootstraps");
    char error[512];
    rd_kafka_t *kafka = kafka_new(PRODUCER, conf_new(), error, sizeof error);
    if (!kafka) fail("mock", error);
    void *cluster = cluster_new(kafka, 1);
    if (!cluster) fail("mock", "no cluster");
    int refused = topic_create(cluster, argument[1], atoi(argument[2]), 1);
    if (refused) fail("mock", err2str(refused));
    printf("listening on %s\n", bootstraps(cluster));
    fflush(stdout);
    for (;;) pause();
}

int main(int count, char **argument) {
    if (count > 2 && !strcmp(argument[1], "raw")) return run_raw(count - 2, argument + 2);
    if (count > 2 && !strcmp(argument[1], "librdkafka")) return run_librdkafka(count - 2, argument + 2);
    if (count > 2 && !strcmp(argument[1], "interval")) return run_interval(count - 2, argument + 2);
    if (count > 2 && !strcmp(argument[1], "mock")) return run_mock(count - 2, argument + 2);
    fail("usage", "transactions raw|librdkafka|interval|mock ...");
}
