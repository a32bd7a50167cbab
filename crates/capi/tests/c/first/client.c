/* A program of the first version: compiled with the header of that version, which lies beside it, and run with today's library. Neither changes any
 * more, until BURSAR_ABI_VERSION does. */
#include "bursar.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

/* What the first version promised about layouts. */
_Static_assert(sizeof(bursar_group) == 8 && sizeof(bursar_registration) == 8, "handles");
_Static_assert(sizeof(bursar_options) == 48 && sizeof(bursar_limits) == 40 && sizeof(bursar_reading) == 56, "structures");
_Static_assert(sizeof(bursar_value) == 24 && sizeof(bursar_statistic) == 16, "values");

struct cache {
    bursar_group group;
    uint64_t bytes;
    int destroyed, level;
};

static uint64_t shrink(void *data, uint64_t target) {
    struct cache *cache = data;
    uint64_t freed = cache->bytes;
    (void)target;
    cache->bytes = 0;
    CHECK(bursar_uncharge(cache->group, freed) == 0);
    return freed;
}

static void hear(void *data, int level) { ((struct cache *)data)->level = level; }

static void destroyed(void *data) { ((struct cache *)data)->destroyed++; }

static void *on_a_thread(void *data) {
    bursar_group group = *(bursar_group *)data;
    void *block;
    CHECK(bursar_enter(group, NULL) == 0);
    CHECK((block = bursar_malloc(1000)) != NULL && (block = bursar_realloc(block, 2000)) != NULL);
    CHECK(bursar_malloc_size(block) == 2000);
    bursar_free(block);
    block = bursar_calloc(10, 10);
    CHECK(block != NULL && ((char *)block)[99] == 0);
    bursar_free(block);
    CHECK(bursar_leave() == 0);
    return NULL;
}

int main(void) {
    static const bursar_statistic statistics[] = {{"rows", 1}, {"open", 0}};
    bursar_options options = BURSAR_OPTIONS_INIT;
    bursar_limits limits = BURSAR_LIMITS_INIT;
    bursar_reading reading = BURSAR_READING_INIT;
    bursar_registration reclaimer, listener;
    bursar_group root, query, found;
    bursar_error *error = NULL;
    bursar_value values[2];
    struct cache cache = {{0}, 0, 0, -1};
    pthread_t thread;
    char path[32], *json;
    void *pages;

    CHECK(bursar_abi_version() == BURSAR_ABI_VERSION);
    options.max = 32 << 20;
    options.statistics = statistics;
    options.statistics_count = 2;
    CHECK(bursar_create(&options, &root, &error) == 0);
    CHECK(bursar_child(root, "query", 16 << 20, &query, &error) == 0);
    CHECK(bursar_child(root, "cache", BURSAR_MAX, &cache.group, &error) == 0);
    CHECK(bursar_find(root, "query", &found, &error) == 0 && bursar_release(found) == 0);
    CHECK(bursar_path(query, path, sizeof path) == 6 && strcmp(path, "/query") == 0);
    CHECK(bursar_get_limits(query, &limits) == 0 && limits.max == 16 << 20);
    limits.high = 12 << 20;
    CHECK(bursar_set_limits(query, &limits, &error) == 0);

    CHECK(bursar_try_charge(query, 1 << 20, &error) == 0 && bursar_try_charge_nowait(query, 4096) == 0);
    CHECK(bursar_charge(query, 4096) == 4096 && bursar_charge_nowait(query, 4096) == 4096);
    CHECK(bursar_add(query, 0, 7) == 0 && bursar_add(query, 1, -1) == 0);
    CHECK(bursar_read(root, BURSAR_EXACT, 0, &reading, values, 2, &error) == 0);
    CHECK(reading.usage.value == (1 << 20) + 3 * 4096 && reading.usage.lo == reading.usage.hi);
    CHECK(values[0].value == 7 && values[1].value == -1 && reading.over_returned == 0);
    CHECK(bursar_snapshot_json(root, BURSAR_CACHED, 0, &json, &error) == 0 && strstr(json, "/query") != NULL);
    bursar_text_free(json);
    CHECK(bursar_uncharge(query, (1 << 20) + 4096) == 0 && bursar_uncharge_nowait(query, 2 * 4096) == 0);

    CHECK(bursar_add_reclaimer(cache.group, 0, shrink, &cache, destroyed, &reclaimer, &error) == 0);
    CHECK(bursar_on_pressure(root, hear, &cache, destroyed, &listener, &error) == 0);
    cache.bytes = 28 << 20;
    CHECK(bursar_try_charge(cache.group, cache.bytes, &error) == 0);
    CHECK(bursar_try_charge(query, 10 << 20, &error) == 0 && cache.bytes == 0);
    CHECK(bursar_uncharge(query, 10 << 20) == 0);
    CHECK(bursar_unregister(reclaimer) == 0 && bursar_unregister(listener) == 0 && cache.destroyed == 2);

    CHECK(bursar_pages_alloc(query, 1, 1, &pages, &error) == 0 && bursar_pages_free(query, pages, &error) == 0);
    CHECK(pthread_create(&thread, NULL, on_a_thread, &query) == 0 && pthread_join(thread, NULL) == 0);

    CHECK(bursar_try_charge(query, 64 << 20, &error) == -ENOMEM && bursar_error_number(error) == ENOMEM);
    CHECK(strstr(bursar_error_text(error), "query") != NULL);
    bursar_error_free(error);
    CHECK(bursar_close(query, NULL) == 0 && bursar_find(root, "query", &found, NULL) == -ENOENT);
    CHECK(bursar_release(query) == 0 && bursar_release(query) == -EBADF);
    CHECK(bursar_release(cache.group) == 0 && bursar_release(root) == 0);
    puts("passed");
    return 0;
}
