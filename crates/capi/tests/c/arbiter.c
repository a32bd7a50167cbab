/* Queries as a program in C sees them: admission, waits for memory, engines that are asked and stopped, handles that ended. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bursar.h"

#define CHECK(is_true)                                                                                                 \
    do {                                                                                                               \
        if (!(is_true)) {                                                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is_true);                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const uint64_t MIB = 1 << 20;

static int64_t now_ms(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_ms(int ms) {
    struct timespec rest = {0, ms * 1000000};
    nanosleep(&rest, NULL);
}

static int64_t usage(bursar_group group) {
    bursar_reading reading = BURSAR_READING_INIT;
    CHECK(bursar_read(group, BURSAR_EXACT, 0, &reading, NULL, 0, NULL) == 0);
    return reading.usage.value;
}

/* A tree of 100 MiB with a tenant. */
struct server {
    bursar_group root, acme;
    bursar_arbiter arbiter;
};

static struct server serve(uint64_t ask_max_ms, uint64_t stop_max_ms) {
    bursar_options options = BURSAR_OPTIONS_INIT;
    bursar_arbiter_options times = BURSAR_ARBITER_OPTIONS_INIT;
    struct server server;
    options.max = 100 * MIB;
    times.ask_after_ms = 0;
    times.ask_max_ms = ask_max_ms;
    times.stop_after_ms = 20;
    times.stop_max_ms = stop_max_ms;
    times.tick_ms = 5;
    CHECK(bursar_create(&options, &server.root, NULL) == 0);
    CHECK(bursar_child(server.root, "acme", BURSAR_MAX, &server.acme, NULL) == 0);
    CHECK(bursar_arbiter_create(server.root, &times, &server.arbiter, NULL) == 0);
    return server;
}

static void end(struct server server) {
    CHECK(usage(server.root) == 0 && bursar_arbiter_close(server.arbiter) == 0 && bursar_arbiter_close(server.arbiter) == -EBADF);
    CHECK(bursar_release(server.acme) == 0 && bursar_release(server.root) == 0);
}

/* A query, and how its engine answers. */
struct query {
    struct server server;
    bursar_grant grant;
    bursar_group group;
    const char *name;
    enum { FREES, CANNOT, DROPS } answers;
    atomic_uint_fast64_t held, asked_bytes;
    _Atomic uint64_t answer;
    atomic_int asked, stopped, destroyed, is_over, result;
    char reason[256];
};

static void start(struct query *query, struct server server, const char *name, uint64_t bytes) {
    memset(query, 0, sizeof *query);
    query->server = server;
    query->name = name;
    CHECK(bursar_admit(server.arbiter, server.acme, name, bytes, bytes, 0, 0, &query->grant, NULL) == 0);
    CHECK(bursar_grant_group(query->grant, &query->group) == 0);
    CHECK(bursar_grant_try_charge(query->grant, bytes, NULL) == 0 && usage(query->group) == (int64_t)bytes);
    atomic_store(&query->held, bytes);
}

static uint64_t give_back(struct query *query) {
    uint64_t bytes = atomic_exchange(&query->held, 0);
    CHECK(bursar_uncharge(query->group, bytes) == 0);
    return bytes;
}

static void finish(struct query *query) {
    give_back(query);
    CHECK(bursar_grant_close(query->grant) == 0 && bursar_release(query->group) == 0);
}

static uint64_t reclaimable(void *data) {
    return atomic_load(&((struct query *)data)->held);
}

static void ask(void *data, uint64_t bytes, bursar_answer answer) {
    struct query *query = data;
    atomic_store(&query->asked_bytes, bytes);
    atomic_fetch_add(&query->asked, 1);
    atomic_store(&query->answer, answer.bits);
}

static void stop(void *data, const char *reason) {
    struct query *query = data;
    strncpy(query->reason, reason, sizeof query->reason - 1);
    atomic_fetch_add(&query->stopped, 1);
}

static void destroy(void *data) {
    atomic_fetch_add(&((struct query *)data)->destroyed, 1);
}

/* The thread of a query that has an engine: it answers, and ends when it is stopped or over. */
static void *answer_asks(void *data) {
    struct query *query = data;
    while (!atomic_load(&query->is_over) && !atomic_load(&query->stopped)) {
        bursar_answer answer = {atomic_exchange(&query->answer, 0)};
        if (answer.bits != 0) {
            CHECK((query->answers == FREES    ? bursar_answer_freed(answer, give_back(query))
                   : query->answers == CANNOT ? bursar_answer_cannot(answer)
                                              : bursar_answer_drop(answer)) == 0);
            CHECK(bursar_answer_freed(answer, 1) == -EBADF && bursar_answer_drop(answer) == -EBADF);
        }
        sleep_ms(1);
    }
    CHECK(query->destroyed == 0);
    finish(query);
    return NULL;
}

static void attach(struct query *query) {
    bursar_engine engine = {sizeof engine, reclaimable, ask, stop, destroy, query};
    CHECK(bursar_grant_attach(query->grant, &engine, NULL) == 0);
}

/* One query needs 20 MiB of those that another one holds. Returns the time until it had them. */
static int64_t takes_from(int answers, uint64_t ask_max_ms, struct query *sort) {
    struct server server = serve(ask_max_ms, 10000);
    struct query join;
    pthread_t thread;
    int64_t began;
    start(&join, server, "join", 50 * MIB);
    start(sort, server, "sort", 50 * MIB);
    sort->answers = answers;
    attach(sort);
    CHECK(pthread_create(&thread, NULL, answer_asks, sort) == 0);
    began = now_ms();
    CHECK(bursar_grant_try_charge(join.grant, 20 * MIB, NULL) == -ENOMEM);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, -1, NULL) == 0);
    began = now_ms() - began;
    atomic_store(&sort->is_over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(usage(join.group) == (int64_t)(70 * MIB) && usage(server.root) == (int64_t)(70 * MIB));
    CHECK(sort->asked == 1 && sort->asked_bytes == 20 * MIB && sort->destroyed == 1);
    atomic_fetch_add(&join.held, 20 * MIB);
    finish(&join);
    end(server);
    return began;
}

static void asked(void) {
    struct query sort;
    CHECK(takes_from(FREES, 60000, &sort) < 30000 && sort.stopped == 0);
    /* One that gives nothing is stopped: at once if it says so, and else when its time is over. */
    CHECK(takes_from(CANNOT, 60000, &sort) < 30000 && sort.stopped == 1);
    CHECK(strstr(sort.reason, "/acme/sort was stopped with 50.0 MiB, because /acme/join needed 20.0 MiB more"));
    CHECK(takes_from(DROPS, 300, &sort) >= 300 && sort.stopped == 1);
}

static void *wait_for_start(void *data) {
    struct query *query = data;
    struct server server = query->server;
    atomic_store(&query->result, bursar_admit(server.arbiter, server.acme, query->name, 60 * MIB, 0, 0, -1, &query->grant, NULL));
    return NULL;
}

static void admission(void) {
    struct server server = serve(1000, 1000), other = serve(1000, 1000);
    struct query first, second = {0};
    bursar_grant grant, none = {0};
    bursar_group inside;
    bursar_error *error = NULL;
    pthread_t thread;
    int64_t began = now_ms();
    start(&first, server, "first", 60 * MIB);
    CHECK(bursar_admit(server.arbiter, server.acme, "second", 60 * MIB, 0, 0, 0, &grant, &error) == -ETIMEDOUT && grant.bits == 0);
    CHECK(strstr(bursar_error_text(error), "the limit of / is in the way") && !bursar_error_never_fits(error));
    bursar_error_free(error);
    CHECK(bursar_admit(server.arbiter, server.acme, "second", 60 * MIB, 0, 0, 50, &grant, NULL) == -ETIMEDOUT && now_ms() - began >= 50);
    CHECK(bursar_admit(server.arbiter, server.acme, "second", 101 * MIB, 0, 0, -1, &grant, &error) == -E2BIG);
    CHECK(bursar_error_number(error) == E2BIG && bursar_error_never_fits(error) == 1);
    bursar_error_free(error);
    CHECK(bursar_admit(server.arbiter, server.acme, "first", MIB, 0, 0, 0, &grant, NULL) == -EEXIST);
    CHECK(bursar_admit(server.arbiter, first.group, "inside", MIB, 0, 0, -1, &grant, NULL) == -ENOMEM);
    CHECK(bursar_admit(server.arbiter, server.acme, "less", 2, 1, 0, 0, &grant, NULL) == -EINVAL);
    CHECK(bursar_admit(server.arbiter, server.acme, NULL, 1, 1, 0, 0, &grant, NULL) == -EINVAL);
    CHECK(bursar_admit(server.arbiter, server.acme, "null", 1, 1, 0, 0, NULL, NULL) == -EINVAL);
    CHECK(bursar_admit(server.arbiter, other.acme, "other", 1, 1, 0, 0, &grant, NULL) == -EINVAL);
    CHECK(bursar_admit(server.arbiter, (bursar_group){0}, "none", 1, 1, 0, 0, &grant, NULL) == -EBADF);
    CHECK(bursar_admit((bursar_arbiter){0}, server.acme, "none", 1, 1, 0, 0, &grant, NULL) == -EBADF);
    /* The end of the first one starts the second. */
    second.server = server;
    second.name = "second";
    second.result = 1;
    CHECK(pthread_create(&thread, NULL, wait_for_start, &second) == 0);
    sleep_ms(50);
    CHECK(second.result == 1);
    finish(&first);
    CHECK(pthread_join(thread, NULL) == 0 && second.result == 0);
    /* Its grant grows while nobody waits. */
    CHECK(bursar_grant_group(second.grant, &second.group) == 0 && bursar_grant_try_charge(second.grant, 90 * MIB, NULL) == 0);
    CHECK(bursar_find(server.acme, "second", &inside, NULL) == 0 && usage(inside) == (int64_t)(90 * MIB) && bursar_release(inside) == 0);
    CHECK(bursar_grant_grow(second.grant, 11 * MIB, -1, &error) == -E2BIG && bursar_error_never_fits(error) == 1);
    bursar_error_free(error);
    second.held = 90 * MIB;
    finish(&second);
    /* Handles that have ended, also while later ones live. */
    start(&first, server, "third", MIB);
    CHECK(bursar_grant_close(second.grant) == -EBADF && bursar_grant_close(none) == -EBADF);
    CHECK(bursar_grant_try_charge(second.grant, 1, NULL) == -EBADF && bursar_grant_grow(second.grant, 1, -1, NULL) == -EBADF);
    CHECK(bursar_grant_group(second.grant, &inside) == -EBADF && inside.bits == 0);
    finish(&first);
    end(server);
    end(other);
}

static void *wait_for_memory(void *data) {
    struct query *query = data;
    atomic_store(&query->result, bursar_grant_grow(query->grant, 20 * MIB, -1, NULL));
    if (query->result == -ECANCELED) {
        finish(query);
    }
    return NULL;
}

static void waits(void) {
    struct server server = serve(1000, 10000);
    struct query join, sort;
    pthread_t thread;
    int64_t began = now_ms();
    start(&join, server, "join", 50 * MIB);
    start(&sort, server, "sort", 50 * MIB);
    /* The other runs, and can neither be asked nor be stopped. */
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, 0, NULL) == -ETIMEDOUT);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, 50, NULL) == -ETIMEDOUT && now_ms() - began >= 50);
    /* It waits as well: then it is stopped, because it came later. */
    CHECK(pthread_create(&thread, NULL, wait_for_memory, &sort) == 0);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, -1, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && sort.result == -ECANCELED);
    atomic_fetch_add(&join.held, 20 * MIB);
    /* Nobody else runs, and the rest is charged outside of grants. */
    CHECK(bursar_try_charge(server.acme, 25 * MIB, NULL) == 0);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, -1, NULL) == -EDEADLK);
    CHECK(bursar_uncharge(server.acme, 25 * MIB) == 0);
    finish(&join);
    /* The grant of a query that waits is closed. */
    start(&join, server, "join", 50 * MIB);
    start(&sort, server, "sort", 50 * MIB);
    sort.result = 1;
    CHECK(pthread_create(&thread, NULL, wait_for_memory, &sort) == 0);
    sleep_ms(50);
    CHECK(sort.result == 1);
    /* First, because what it gives back would let the wait end well. */
    CHECK(bursar_grant_close(sort.grant) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && sort.result == -EBADF);
    give_back(&sort);
    CHECK(bursar_release(sort.group) == 0);
    finish(&join);
    end(server);
}

static uint64_t not_called(void *data) {
    (void)data;
    exit(2);
}

static void without_callbacks(void) {
    struct server server = serve(1000, 50);
    bursar_engine engine = BURSAR_ENGINE_INIT;
    bursar_arbiter_options options = BURSAR_ARBITER_OPTIONS_INIT;
    bursar_arbiter arbiter;
    struct query join, sort;
    start(&join, server, "join", 50 * MIB);
    start(&sort, server, "sort", 50 * MIB);
    attach(&sort);
    /* Takes the place of the one before. It cannot be asked, and does not hear that it is stopped. */
    engine.reclaimable = not_called;
    CHECK(bursar_grant_attach(sort.grant, &engine, NULL) == 0 && sort.destroyed == 1);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, -1, NULL) == -EDEADLK);
    CHECK(bursar_grant_grow(sort.grant, 20 * MIB, -1, NULL) == -ECANCELED);
    engine = (bursar_engine)BURSAR_ENGINE_INIT;
    CHECK(bursar_grant_attach(join.grant, &engine, NULL) == 0);
    CHECK(bursar_grant_attach(join.grant, NULL, NULL) == -EINVAL);
    engine.size = 3;
    engine.destroy = destroy;
    engine.data = &join;
    CHECK(bursar_grant_attach(join.grant, &engine, NULL) == -EINVAL);
    engine.size = sizeof engine;
    finish(&sort);
    CHECK(bursar_grant_attach(sort.grant, &engine, NULL) == -EBADF && join.destroyed == 0);
    finish(&join);
    CHECK(bursar_arbiter_create(server.root, &options, NULL, NULL) == -EINVAL);
    CHECK(bursar_arbiter_create((bursar_group){0}, NULL, &arbiter, NULL) == -EBADF && arbiter.bits == 0);
    options.tick_ms = 0;
    CHECK(bursar_arbiter_create(server.root, &options, &arbiter, NULL) == -EINVAL);
    /* An older header. */
    options.size = offsetof(bursar_arbiter_options, tick_ms);
    CHECK(bursar_arbiter_create(server.root, &options, &arbiter, NULL) == 0 && bursar_arbiter_close(arbiter) == 0);
    end(server);
}

/* The arbiter is closed first, and its thread goes on. An answer comes after its grant was closed. */
static void closed_in_any_order(void) {
    struct server server = serve(10000, 10000);
    struct query join, sort;
    bursar_answer answer;
    bursar_grant late;
    start(&join, server, "join", 50 * MIB);
    start(&sort, server, "sort", 50 * MIB);
    attach(&sort);
    CHECK(bursar_arbiter_close(server.arbiter) == 0 && bursar_release(server.acme) == 0 && bursar_release(server.root) == 0);
    CHECK(bursar_admit(server.arbiter, join.group, "late", 1, 1, 0, 0, &late, NULL) == -EBADF && late.bits == 0);
    CHECK(bursar_grant_grow(join.grant, 20 * MIB, 50, NULL) == -ETIMEDOUT && sort.asked == 1 && sort.destroyed == 0);
    finish(&sort);
    answer.bits = sort.answer;
    CHECK(sort.destroyed == 1 && bursar_answer_freed(answer, MIB) == 0 && bursar_answer_freed(answer, MIB) == -EBADF);
    /* The group may be released before its grant is closed. */
    give_back(&join);
    CHECK(usage(join.group) == 0 && bursar_release(join.group) == 0 && bursar_grant_close(join.grant) == 0);
}

/* Threads of this process. */
static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = -2;
    CHECK(tasks != NULL);
    while (readdir(tasks) != NULL) {
        count++;
    }
    CHECK(closedir(tasks) == 0);
    return count;
}

int main(void) {
    /* A test that hangs fails. */
    alarm(300);
    admission();
    asked();
    waits();
    without_callbacks();
    closed_in_any_order();
    /* All arbiters have ended. A thread that was joined may be listed for a moment. */
    while (threads() > 1) {
        sleep_ms(1);
    }
    puts("passed");
    return 0;
}
