
/*
 * Copyright (C) the vibelock authors
 *
 * A load of one kind of request, over connections that are kept:
 *
 *     load port=<n> [connections=<n>] [requests=<n>] [span=<n>] [base=<n>]
 *          [status=<n>] [stop=1] [limit=<s>]
 *          [rate=<n> pid=<n> [slice=<ms>]]   < request
 *
 * The request is read from the standard input and sent as it is, but for the
 * first "@@@@@@@@@@@@" in it, which becomes base, base + 1 ... base + span - 1
 * and over again, as 12 hex digits.
 *
 * With rate= there is one connection, on which requests are sent at their
 * time; how long an answer took counts from then, sent or not.  pid= is who
 * answers: its processor time from the request to the answer is how long it was
 * busy, with this or with something else.
 *
 * Prints "good <n> other <n>", and with rate= also " longest <us>,<us>... busy
 * <us>,<us>...", the most of both in each slice of the time, 1000 ms by
 * default.  An answer is good when its status is the given one, 200 by default;
 * with stop=1 the first other one ends the load.  The exit code is 0 when all
 * requests were answered, with whatever status.
 */


#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


#define REQUEST_MAX   65536
#define ANSWER_MAX    65536
#define MARK          "@@@@@@@@@@@@"
#define MARK_LEN      12

#define SECOND        1000000000ULL    /* ns */


typedef struct {
    int        fd;
    size_t     len;              /* of the answer, as far as it was read */
    char       answer[ANSWER_MAX];
} connection_t;


static void arguments(int argc, char **argv);
static void read_request(void);
static void load(void);
static void paced(void);
static void connect_to(connection_t *c);
static int next_request(connection_t *c);
static int read_answer(connection_t *c);
static void count(connection_t *c, size_t head);
static void most(uint64_t *most, uint64_t ns);
static void print(const char *name, uint64_t *values, long n);
static void late(void);
static uint64_t now(void);
static uint64_t clock_of(clockid_t clock);
static void fail(const char *what);


static long       port, connections = 1, requests = 1, span = 1, base;
static long       status = 200, stop, limit = 300;
static long       rate, pid, slice = 1000;

static char       request[REQUEST_MAX];
static size_t     request_len;
static char      *mark;

static long       started, answered, good, other;
static uint64_t   deadline;


int
main(int argc, char **argv)
{
    arguments(argc, argv);
    read_request();

    deadline = now() + limit * SECOND;

    if (rate) {
        paced();
    } else {
        load();
        printf("good %ld other %ld\n", good, other);
    }

    return 0;
}


static void
arguments(int argc, char **argv)
{
    int      i, j;
    size_t   len;

    static struct {
        const char  *name;
        long        *value;
    } known[] = {
        { "port=", &port },
        { "connections=", &connections },
        { "requests=", &requests },
        { "span=", &span },
        { "base=", &base },
        { "status=", &status },
        { "stop=", &stop },
        { "limit=", &limit },
        { "rate=", &rate },
        { "pid=", &pid },
        { "slice=", &slice },
        { NULL, NULL }
    };

    for (i = 1; i < argc; i++) {

        for (j = 0; known[j].name; j++) {
            len = strlen(known[j].name);

            if (strncmp(argv[i], known[j].name, len) == 0) {
                *known[j].value = atol(argv[i] + len);
                break;
            }
        }

        if (known[j].name == NULL) {
            fprintf(stderr, "load: no argument \"%s\"\n", argv[i]);
            exit(2);
        }
    }

    if (port < 1 || connections < 1 || requests < 1 || span < 1 || slice < 1) {
        fprintf(stderr, "load: port, connections, requests, span and slice "
                        "are from 1 on\n");
        exit(2);
    }

    if (connections > requests) {
        connections = requests;
    }
}


static void
read_request(void)
{
    ssize_t  n;

    for ( ;; ) {
        n = read(0, request + request_len, REQUEST_MAX - request_len);

        if (n <= 0) {
            break;
        }

        request_len += n;
    }

    mark = memmem(request, request_len, MARK, MARK_LEN);
}


static void
load(void)
{
    int                  epoll, i, n;
    connection_t        *all, *c;
    struct epoll_event   event, events[64];

    all = calloc(connections, sizeof(connection_t));
    if (all == NULL) {
        fail("calloc");
    }

    epoll = epoll_create1(0);

    for (i = 0; i < connections; i++) {
        connect_to(&all[i]);

        event.events = EPOLLIN;
        event.data.ptr = &all[i];
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event);
    }

    for (i = 0; i < connections; i++) {
        next_request(&all[i]);
    }

    while (answered < started) {

        /*
         * It does not sleep: to wake it would be the work of whoever answers,
         * more or less of it as there is more or less to do on this processor.
         */

        n = epoll_wait(epoll, events, 64, 0);

        if (n == 0) {
            sched_yield();
        }

        late();

        for (i = 0; i < n; i++) {
            c = events[i].data.ptr;

            if (read_answer(c)) {
                next_request(c);
            }
        }
    }
}


static void
paced(void)
{
    long              i, n;
    uint64_t          start, due, before, *longest, *busy;
    clockid_t         worker;
    connection_t     *c;
    struct timespec   ts;

    n = (requests * 1000 + rate * slice - 1) / (rate * slice);

    c = calloc(1, sizeof(connection_t));
    longest = calloc(n, sizeof(uint64_t));
    busy = calloc(n, sizeof(uint64_t));

    if (c == NULL || longest == NULL || busy == NULL) {
        fail("calloc");
    }

    errno = clock_getcpuclockid(pid, &worker);
    if (errno) {
        fail("clock_getcpuclockid");
    }

    connect_to(c);

    start = now();

    for ( ;; ) {
        due = start + started * (SECOND / rate);

        ts.tv_sec = due / SECOND;
        ts.tv_nsec = due % SECOND;
        (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);

        before = clock_of(worker);

        if (!next_request(c)) {
            break;
        }

        while (!read_answer(c)) {
            late();
        }

        i = (due - start) / (slice * (SECOND / 1000));

        most(&longest[i], now() - due);
        most(&busy[i], clock_of(worker) - before);
    }

    printf("good %ld other %ld", good, other);
    print("longest", longest, n);
    print("busy", busy, n);
    printf("\n");
}


static void
connect_to(connection_t *c)
{
    int                 on;
    struct sockaddr_in  addr;

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd == -1) {
        fail("socket");
    }

    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_port = htons(port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    if (connect(c->fd, (struct sockaddr *) &addr, sizeof(addr)) == -1) {
        fail("connect");
    }

    on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}


/*
 * 0: there is none left.  A request is so short that the socket takes it.
 */

static int
next_request(connection_t *c)
{
    char  digits[MARK_LEN + 1];

    if (started == requests || (stop && other)) {
        return 0;
    }

    if (mark) {
        snprintf(digits, sizeof(digits), "%012lx", base + started % span);
        memcpy(mark, digits, MARK_LEN);
    }

    started++;

    c->len = 0;

    if (write(c->fd, request, request_len) != (ssize_t) request_len) {
        fail("write");
    }

    return 1;
}


/*
 * 1 when the answer is there.
 */

static int
read_answer(connection_t *c)
{
    char     *end, *length;
    size_t    head;
    ssize_t   n;

    n = read(c->fd, c->answer + c->len, ANSWER_MAX - 1 - c->len);

    if (n == 0) {
        fprintf(stderr, "load: the connection was closed after %ld answers\n",
                answered);
        exit(1);
    }

    if (n == -1) {
        fail("read");
    }

    c->len += n;
    c->answer[c->len] = '\0';

    end = memmem(c->answer, c->len, "\r\n\r\n", 4);
    if (end == NULL) {
        return 0;
    }

    head = end + 4 - c->answer;

    length = strcasestr(c->answer, "\r\nContent-Length: ");

    if (length == NULL || length > end) {
        fprintf(stderr, "load: an answer has no Content-Length\n");
        exit(1);
    }

    head += atol(length + sizeof("\r\nContent-Length: ") - 1);

    if (c->len < head) {
        return 0;
    }

    count(c, head);

    return 1;
}


static void
count(connection_t *c, size_t whole)
{
    if (c->len > whole) {
        fprintf(stderr, "load: there is something behind an answer\n");
        exit(1);
    }

    if (atol(c->answer + sizeof("HTTP/1.1 ") - 1) == status) {
        good++;
    } else {
        other++;
    }

    answered++;
}


static void
most(uint64_t *most, uint64_t ns)
{
    if (ns > *most) {
        *most = ns;
    }
}


static void
print(const char *name, uint64_t *values, long n)
{
    long  i;

    printf(" %s ", name);

    for (i = 0; i < n; i++) {
        printf("%s%lu", i ? "," : "", values[i] / 1000);
    }
}


static void
late(void)
{
    if (now() > deadline) {
        fprintf(stderr, "load: %ld of %ld answers in %ld s\n",
                answered, requests, limit);
        exit(1);
    }
}


static uint64_t
now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}


static uint64_t
clock_of(clockid_t clock)
{
    struct timespec  ts;

    if (clock_gettime(clock, &ts) == -1) {
        fail("clock_gettime");
    }

    return ts.tv_sec * SECOND + ts.tv_nsec;
}


static void
fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}
