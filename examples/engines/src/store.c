/* A store on SQLite. All its memory is its group's, and it gives pages of its cache back when others need them. */
#include <bursar.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

struct store {
    bursar_group group;
    bursar_registration reclaimer;
    sqlite3 *database;
};

/* SQLite's memory: charged to the group that the thread is in. */
static void *take(int bytes) { return bursar_malloc((size_t)bytes); }
static void *resize(void *block, int bytes) { return bursar_realloc(block, (size_t)bytes); }
static int size(void *block) { return (int)bursar_malloc_size(block); }
static int round_up(int bytes) { return (bytes + 7) & ~7; }
static int begin(void *data) {
    (void)data;
    return SQLITE_OK;
}
static void end(void *data) { (void)data; }

/* Before anything else of SQLite. */
int store_configure(void) {
    static const sqlite3_mem_methods methods = {take, bursar_free, resize, size, round_up, begin, end, NULL};
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}

/* Runs on the thread that needs memory. SQLite never waits for Bursar, so this may wait for SQLite: for one step of a statement. */
static uint64_t shrink(void *data, uint64_t target) {
    struct store *store = data;
    sqlite3_mutex *mutex = sqlite3_db_mutex(store->database);
    sqlite3_int64 before, after;
    (void)target;
    sqlite3_mutex_enter(mutex);
    before = sqlite3_memory_used();
    sqlite3_db_release_memory(store->database);
    after = sqlite3_memory_used();
    sqlite3_mutex_leave(mutex);
    return before > after ? (uint64_t)(before - after) : 0;
}

static int run(struct store *store, const char *sql) {
    int result;
    if (bursar_enter(store->group, NULL)) {
        return SQLITE_MISUSE;
    }
    result = sqlite3_exec(store->database, sql, NULL, NULL, NULL);
    bursar_leave();
    return result;
}

static void finish(void *data) {
    struct store *store = data;
    sqlite3_close(store->database);
    free(store);
}

/* A call of `shrink` may still run on another thread: `finish` comes after it. */
void store_close(struct store *store) {
    if (bursar_unregister(store->reclaimer)) {
        finish(store);
    }
}

/* From now on the cache gives memory back when others need it. 0, or a negative number of errno.h. Once: each registration would free the store. */
int store_share(struct store *store) {
    if (store->reclaimer.bits) {
        return -EALREADY;
    }
    return bursar_add_reclaimer(store->group, 0, shrink, store, finish, &store->reclaimer, NULL);
}

/* NULL if it cannot be opened. */
struct store *store_open(bursar_group group, const char *path) {
    struct store *store = calloc(1, sizeof *store);
    int result;
    if (!store || bursar_enter(group, NULL)) {
        free(store);
        return NULL;
    }
    store->group = group;
    result = sqlite3_open_v2(path, &store->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL);
    bursar_leave();
    /* A cache of up to 1 GiB: as large as the memory allows. */
    if (result || run(store, "PRAGMA cache_size = -1048576; PRAGMA synchronous = OFF; CREATE TABLE events (id INTEGER PRIMARY KEY, body BLOB)")) {
        finish(store);
        return NULL;
    }
    return store;
}

/* Writes a thousand events of a kilobyte, as one transaction. 0, or SQLite's error. */
int store_write(struct store *store) {
    return run(store, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
                      "INSERT INTO events (body) SELECT randomblob(1000) FROM n");
}
