/* Two tenants in one tree: a cache that gives memory back, and queries that need it. Prints the tree's numbers after each step. */
#include <bursar.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t MIB = 1 << 20;

/* The first tenant's cache: blocks of 1 MiB. */
struct cache {
    bursar_group group;
    void *blocks[48];
    int count;
};

static void fail(const char *step, bursar_error *error) {
    fprintf(stderr, "%s: %s\n", step, bursar_error_text(error));
    bursar_error_free(error);
    exit(1);
}

static uint64_t shrink(void *data, uint64_t target) {
    struct cache *cache = data;
    uint64_t freed = 0;
    while (freed < target && cache->count > 0) {
        free(cache->blocks[--cache->count]);
        bursar_uncharge(cache->group, MIB);
        freed += MIB;
    }
    return freed;
}

static void show(const char *step, bursar_group root) {
    static const char *const paths[] = {"", "shop", "shop/cache", "reports"};
    printf("%s\n", step);
    for (int at = 0; at < 4; at++) {
        bursar_group group;
        bursar_limits limits = BURSAR_LIMITS_INIT;
        bursar_reading reading = BURSAR_READING_INIT;
        char path[256];
        bursar_error *error = NULL;
        if (bursar_find(root, paths[at], &group, &error) || bursar_read(group, BURSAR_EXACT, 0, &reading, NULL, 0, &error)) {
            fail("show", error);
        }
        bursar_get_limits(group, &limits);
        bursar_path(group, path, sizeof path);
        printf("  %-12s %3lld MiB", path, (long long)(reading.usage.value / (int64_t)MIB));
        if (limits.max != BURSAR_MAX) {
            printf(" of %llu", (unsigned long long)(limits.max / MIB));
        }
        printf("\n");
        bursar_release(group);
    }
}

int main(void) {
    bursar_options options = BURSAR_OPTIONS_INIT;
    bursar_group root, shop, reports;
    bursar_registration reclaimer;
    bursar_error *error = NULL;
    struct cache cache = {{0}, {NULL}, 0};
    options.max = 64 * MIB;
    if (bursar_create(&options, &root, &error) || bursar_child(root, "shop", 56 * MIB, &shop, &error) ||
        bursar_child(shop, "cache", BURSAR_MAX, &cache.group, &error) || bursar_child(root, "reports", 32 * MIB, &reports, &error) ||
        bursar_add_reclaimer(cache.group, 0, shrink, &cache, NULL, &reclaimer, &error)) {
        fail("the tree", error);
    }
    while (cache.count < 48 && bursar_try_charge(cache.group, MIB, NULL) == 0) {
        cache.blocks[cache.count++] = malloc(MIB);
    }
    show("The shop's cache has filled:", root);

    if (bursar_try_charge(reports, 30 * MIB, &error)) {
        fail("a report", error);
    }
    show("\nA report needs 30 MiB, and the cache has given way:", root);

    if (bursar_try_charge(reports, 30 * MIB, &error) == 0) {
        fprintf(stderr, "a second report was let in\n");
        return 1;
    }
    printf("\nA second report is refused:\n%s\n", bursar_error_text(error));
    bursar_error_free(error);

    bursar_uncharge(reports, 30 * MIB);
    bursar_unregister(reclaimer);
    shrink(&cache, UINT64_MAX);
    bursar_release(cache.group);
    bursar_release(reports);
    bursar_release(shop);
    bursar_release(root);
    return 0;
}
