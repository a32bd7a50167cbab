/*
 * Bursar: one tree of memory groups for all engines of a process.
 *
 * A group has limits, and counts the bytes of itself and of all groups below. A tree begins with its root (bursar_create). Each part of the
 * program asks its group for bytes before it allocates (bursar_try_charge), and returns as many when it has freed them (bursar_uncharge).
 *
 *     bursar_group root, query;
 *     bursar_error *error = NULL;
 *     if (bursar_create(NULL, &root, &error) || bursar_child(root, "query-7", 64 << 20, &query, &error)) {
 *         fprintf(stderr, "%s\n", bursar_error_text(error));
 *         bursar_error_free(error);
 *         return 1;
 *     }
 *     if (bursar_try_charge(query, 4096, NULL) == 0) {
 *         void *block = malloc(4096);
 *         free(block);
 *         bursar_uncharge(query, 4096);
 *     }
 *     bursar_release(query);
 *     bursar_release(root);
 *
 * RESULTS. A function that returns int returns 0, or a negative number of errno.h. One that returns int64_t returns a count, or a negative number of
 * errno.h. Functions with an `error` also make an error object that has
 * a text for people, if they fail and `error` is not NULL. Free it. Numbers that have the same meaning everywhere:
 *   -EBADF            the handle was released, or is none
 *   -EINVAL           an argument is NULL, or out of its range; -EILSEQ: a text is not UTF-8
 *   -ENOENT           the group was removed; bursar_find: there is none
 *   -ENFILE           the process has 16777216 handles
 *   -ENOTRECOVERABLE  a bug of Bursar; its text is on stderr and in the error
 *
 * HANDLES are numbers. A function that gets a released handle returns -EBADF, if the release returned before the call began: do not release a handle
 * while another thread calls a function with it, which may then charge another group. Releasing a handle returns no bytes, so call bursar_uncharge
 * before the last release. Bytes that are left stay charged to the groups above. A group ends when it has no handle, no registration, no thread
 * that entered it, and no child. bursar_free and bursar_pages_free return their bytes also after that.
 *
 * THREADS. Each function may be called by any thread at any time. pthread_cancel and pthread_exit inside of a function or a callback abort the
 * process.
 *
 * SIGNAL HANDLERS may call the functions whose names end in _nowait, bursar_add and bursar_abi_version. These never wait, take no lock and
 * allocate nothing. A handler may call bursar_malloc and bursar_free only where it may call malloc. If the library was loaded by dlopen, each thread
 * must call one of these functions once before its signal handlers do.
 *
 * FORK. A fork waits for calls of other threads that hold a lock. A child may call all functions, and has the bytes that its parent had. Its first
 * call must be one that may wait, such as bursar_read or bursar_try_charge, and must come before it starts threads. The threads of `ticks` and of
 * arbiters do not exist in the child. If another library registers handlers of forks (pthread_atfork) that take a lock, make the first memory
 * before it does, or hold none of its locks while you call a function here. Otherwise a fork and such a call may wait for each other.
 *
 * UNLOADING. dlclose leaves the shared library in memory. Link a plugin that contains libbursar.a with -Wl,-z,nodelete.
 *
 * CALLBACKS may call every function, and may unregister themselves. Bursar holds no lock during the call, but the thread that charges may hold
 * yours: try your locks, and do not wait for them. A charge in a reclaimer calls no reclaimer. A callback must not leave by an exception: the
 * process aborts with a message. It must not leave by longjmp: that is undefined.
 */
#ifndef BURSAR_H
#define BURSAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a program that was built with an older header would not work. Additions do not change it. */
#define BURSAR_ABI_VERSION 1

/* The version of the library that is loaded. */
uint32_t bursar_abi_version(void);

/* ---- Errors ---- */

typedef struct bursar_error bursar_error;

/* The number of errno.h, positive; 0 for NULL. */
int bursar_error_number(const bursar_error *error);
/* 1 if the request is larger than the limit that refused it: it fits only after the limit is raised, so do not wait, and free nothing for it.
 * Such a request has called no reclaimer. 0 for all other errors and NULL. */
int bursar_error_never_fits(const bursar_error *error);
/* A text in UTF-8 that lives as long as the error; NULL for NULL. A refused charge names the limit, and shows the tree around it, in several
 * lines. */
const char *bursar_error_text(const bursar_error *error);
/* NULL is fine. */
void bursar_error_free(bursar_error *error);

/* ---- Trees and groups ---- */

/* Handle of a group. All zeros is none. */
typedef struct {
    uint64_t bits;
} bursar_group;

/* No limit. */
#define BURSAR_MAX UINT64_MAX

/* A number that each group counts beside its bytes. Groups show the sum of themselves and of all groups below. */
typedef struct {
    const char *name;
    /* 1: it only grows. 0: it goes up and down. */
    int is_counter;
} bursar_statistic;

typedef struct {
    /* sizeof(bursar_options), for headers of other versions. */
    size_t size;
    /* Limit of the root, bytes. */
    uint64_t max;
    /* The most bytes that one CPU may reserve ahead for a group; 0 for the default of 64 MiB. */
    uint64_t stock_max;
    /* 1: a charge above a `high` sleeps, for up to 2 s. 0: it only asks reclaimers. */
    int throttles;
    /* 1: a thread of the library does the periodic work, until the process ends. 0: calls that may wait do it, and bursar_tick does.
     * bursar_malloc never does it. */
    int ticks;
    /* Copied. At most 252, of different names. They live until the process ends, so create few trees. */
    const bursar_statistic *statistics;
    size_t statistics_count;
} bursar_options;

#define BURSAR_OPTIONS_INIT {sizeof(bursar_options), BURSAR_MAX, 0, 0, 0, NULL, 0}

/* Makes a tree. `options` may be NULL. -ENOTSUP: the kernel or the machine lacks what Bursar needs. */
int bursar_create(const bursar_options *options, bursar_group *root, bursar_error **error);

/* Makes a group below another one. -EEXIST, -ENAMETOOLONG (255 bytes), -EMLINK (64 levels), -EINVAL (an empty name, . or .., a slash),
 * -ENOMEM. */
int bursar_child(bursar_group parent, const char *name, uint64_t max, bursar_group *child, bursar_error **error);

/* Makes another handle, of the group at a path below `from`: names with slashes between them. An empty path is `from` itself. */
int bursar_find(bursar_group from, const char *path, bursar_group *found, bursar_error **error);

/* Ends a handle. */
int bursar_release(bursar_group group);

/* Does periodic work that is due for the tree of the group: takes reserved bytes back where a limit is near, calls pressure callbacks, frees unused
 * page memory. For a program whose engines call nothing that may wait. Costs little if nothing is due. */
int bursar_tick(bursar_group group);

/* Removes the group and all below: charges that may be refused fail from now on with -ENOENT, and the names are free. Bytes stay charged.
 * Existing handles stay valid: use them to return the bytes. -EPERM: the root. */
int bursar_close(bursar_group group, bursar_error **error);

typedef struct {
    /* sizeof(bursar_limits). */
    size_t size;
    /* Bytes that reclaim never takes, and bytes that it takes last; 0 for none. */
    uint64_t min, low;
    /* Charges above `high` ask reclaimers. No charge that may be refused goes above `max`. BURSAR_MAX for none. */
    uint64_t high, max;
} bursar_limits;

#define BURSAR_LIMITS_INIT {sizeof(bursar_limits), 0, 0, BURSAR_MAX, BURSAR_MAX}

/* `limits->size` must be set before. */
int bursar_get_limits(bursar_group group, bursar_limits *limits);
/* Limits may change at any time. A `max` below the usage asks reclaimers, and refuses charges until the usage is below it. */
int bursar_set_limits(bursar_group group, const bursar_limits *limits, bursar_error **error);

/* Writes the path with a NUL, or as much of it as there is room for, and returns its length without the NUL. */
int64_t bursar_path(bursar_group group, char *buffer, size_t length);

/* ---- Charging ---- */

/* Charges bytes to the group and all groups above, or nothing. It may wait for other CPUs, and call reclaimers. With `throttles`, a charge above a
 * `high` may sleep. -ENOMEM: a limit is in the way. -EOVERFLOW: more than 2^56 bytes. */
int bursar_try_charge(bursar_group group, uint64_t bytes, bursar_error **error);
/* Charges even above a limit, for memory that is in use already. It may wait, call reclaimers, or sleep (`throttles`). Returns the bytes charged: at
 * most 2^56, and fewer if the tree would have more than 2^62. */
int64_t bursar_charge(bursar_group group, uint64_t bytes);
/* For signal handlers and allocators. -ENOMEM: a limit is in the way, as far as can be told without waiting. -EBUSY: another
 * thread takes reserved bytes back at this moment, or this is a forked child before its first call that may wait; try again later. */
int bursar_try_charge_nowait(bursar_group group, uint64_t bytes);
int64_t bursar_charge_nowait(bursar_group group, uint64_t bytes);

/* Returns bytes that were charged to this group, in any pieces, on any thread. bursar_uncharge may call pressure callbacks on this thread: do not
 * hold a lock that they take. Returning more than was charged is a bug of the program: the usage
 * stops at 0, and bursar_read tells how much it was. (A library with debug assertions returns -ENOTRECOVERABLE.) */
int bursar_uncharge(bursar_group group, uint64_t bytes);
int bursar_uncharge_nowait(bursar_group group, uint64_t bytes);

/* Adds to a statistic, by its place in bursar_options. */
int bursar_add(bursar_group group, uint32_t statistic, int64_t delta);

/* ---- The heap ---- */

/* Enters a group: later calls of bursar_malloc on this thread charge it. Groups nest, and bursar_leave leaves the last one.
 * bursar_enter: -EINVAL if the thread is about to end. bursar_leave: -EINVAL if the thread entered no group. */
int bursar_enter(bursar_group group, bursar_error **error);
int bursar_leave(void);

/* As malloc and its kin: blocks aligned to 16 bytes, for use by an engine that takes functions for its memory. A block is charged to the group that
 * the thread is in, by the bytes that it really takes, and returned to that group by whoever frees it. A limit refuses no block: the usage may
 * exceed it, and then bursar_try_charge fails. A block that grows or shrinks stays its group's. NULL: the system has no memory. */
void *bursar_malloc(size_t size);
void *bursar_calloc(size_t count, size_t size);
void *bursar_realloc(void *block, size_t size);
void bursar_free(void *block);
/* The bytes that were asked for; 0 for NULL. */
size_t bursar_malloc_size(const void *block);

/* ---- Pages ---- */

/* Allocates 4 KiB << `order`, aligned to its size, from the tree's page memory, and charges the group. `order` is at most 10. Without `is_zeroed` the
 * bytes are those of an earlier user of the same group, or zero. -ENOMEM: a limit is in the way, or the page memory is used up. */
int bursar_pages_alloc(bursar_group group, uint32_t order, int is_zeroed, void **pages, bursar_error **error);
/* Frees such pages, by a handle of any group of the tree. -EINVAL: the address is in no page of the tree, was freed already, or is inside of a block;
 * the text tells which. */
int bursar_pages_free(bursar_group group, void *pages, bursar_error **error);

/* ---- Reading ---- */

/* How old numbers may be. */
enum {
    /* As they were last brought up to date. */
    BURSAR_CACHED = 0,
    /* They miss no update older than `bound` nanoseconds. */
    BURSAR_AT_MOST_NS = 1,
    /* Usage that is off by at most `bound` bytes on either side. */
    BURSAR_WITHIN = 2,
    /* They miss no update that returned before the call. */
    BURSAR_EXACT = 3
};

/* A number, and the range that holds the true one: INT64_MIN and INT64_MAX if unknown. */
typedef struct {
    int64_t value, lo, hi;
} bursar_value;

typedef struct {
    /* sizeof(bursar_reading). */
    size_t size;
    /* Bytes of the group and of all groups below. */
    bursar_value usage;
    /* Highest usage so far, including bytes that CPUs had reserved ahead. */
    uint64_t peak;
    /* How old the numbers are. */
    uint64_t age_ns;
    /* Bytes that were returned and had not been charged. */
    uint64_t over_returned;
} bursar_reading;

#define BURSAR_READING_INIT {sizeof(bursar_reading), {0, 0, 0}, 0, 0, 0}

/* Reads the usage, and the first `count` statistics into `values`, as of one moment. `reading->size` must be set before. -EAGAIN: the numbers
 * are older than asked for; they were written all the same. */
int bursar_read(bursar_group group, uint32_t freshness, uint64_t bound, bursar_reading *reading, bursar_value *values, size_t count,
                bursar_error **error);

/* The group and all below as a JSON list: the `groups` of docs/live-schema.md. Free the text with bursar_text_free. -EAGAIN: the numbers are older
 * than asked for, and `*json` is NULL. */
int bursar_snapshot_json(bursar_group group, uint32_t freshness, uint64_t bound, char **json, bursar_error **error);
/* The last refusals of the group's tree, at most 16, the oldest first: for each a line with its age and the first line of its error's text. Refusals
 * by one limit within 100 ms are one line. Free the text with bursar_text_free. */
int bursar_refusals(bursar_group group, char **text, bursar_error **error);
/* NULL is fine. */
void bursar_text_free(char *text);

/* ---- Callbacks ---- */

/* Handle of a registration. All zeros is none. It keeps its group. */
typedef struct {
    uint64_t bits;
} bursar_registration;

/* Frees bytes of the group's, returns them, and tells how many. `target` is how many are wanted, at least 1. It runs on the thread whose charge
 * needs them, and on several threads at a time. */
typedef uint64_t (*bursar_reclaim_function)(void *data, uint64_t target);
/* Called when the group's level of pressure changes, BURSAR_PRESSURE_*, on the thread that found the change; possibly before bursar_on_pressure
 * returns. Calls come one at a time. */
typedef void (*bursar_pressure_function)(void *data, int level);
/* Ends `data`: called once, when no call runs and none will come. May be NULL. */
typedef void (*bursar_destroy_function)(void *data);

enum {
    BURSAR_PRESSURE_NONE = 0,
    /* Caches should not grow. */
    BURSAR_PRESSURE_LOW = 1,
    /* Memory that is cheap to free should be freed. */
    BURSAR_PRESSURE_HIGH = 2,
    /* Charges are about to be refused. */
    BURSAR_PRESSURE_CRITICAL = 3
};

/* Reclaimers of a lower `order` are asked first. If these functions fail, `data` is still the caller's, and `destroy` is not called. */
int bursar_add_reclaimer(bursar_group group, int order, bursar_reclaim_function function, void *data, bursar_destroy_function destroy,
                         bursar_registration *registration, bursar_error **error);
int bursar_on_pressure(bursar_group group, bursar_pressure_function function, void *data, bursar_destroy_function destroy,
                       bursar_registration *registration, bursar_error **error);

/* Ends a registration. A call on another thread may still run, so free `data` only in `destroy`. */
int bursar_unregister(bursar_registration registration);

/* ---- Queries: admission, and memory while they run ---- */

/* Limits refuse. An arbiter lets queries wait instead: before they start (bursar_admit), and while they run (bursar_grant_grow). It asks other
 * queries to give memory back, and stops one if that is not enough. docs/guides/attach-an-engine.md has the rules. */

/* Handle of an arbiter. All zeros is none. */
typedef struct {
    uint64_t bits;
} bursar_arbiter;

/* Handle of a grant: the right of a query to run, with a group of its own. All zeros is none. */
typedef struct {
    uint64_t bits;
} bursar_grant;

/* Handle of the answer that an engine owes. All zeros is none. */
typedef struct {
    uint64_t bits;
} bursar_answer;

typedef struct {
    /* sizeof(bursar_arbiter_options). */
    size_t size;
    /* After this wait of one query, others are asked to give memory back. They have `ask_max_ms` to answer. */
    uint64_t ask_after_ms, ask_max_ms;
    /* After this wait of one query, another is stopped. It has `stop_max_ms` to return its bytes and close its grant. */
    uint64_t stop_after_ms, stop_max_ms;
    /* Period of the arbiter's thread, which looks at these times; at least 1. */
    uint64_t tick_ms;
} bursar_arbiter_options;

#define BURSAR_ARBITER_OPTIONS_INIT {sizeof(bursar_arbiter_options), 100, 1000, 100, 1000, 10}

/* Makes the arbiter of a tree, and starts its thread. `root` is any group of the tree. Make one for each tree: two know nothing of each other's
 * promises. `options` may be NULL. A system that starts no thread gives its own number, such as -EAGAIN. */
int bursar_arbiter_create(bursar_group root, const bursar_arbiter_options *options, bursar_arbiter *arbiter, bursar_error **error);
/* Ends the handle. Asks that wait and grants are as before. The thread ends with the last of them, and the call that ends it waits for a callback
 * that the thread runs. So hold no lock that your callbacks take. */
int bursar_arbiter_close(bursar_arbiter arbiter);

/* Waits until a query may start. Its group is a new one, called `name`, below `group`. `least` are bytes without which it cannot run; 0 for a
 * quarter of the lowest limit above. With `wanted` bytes it runs best; 0 for no wish. Higher scores come first among asks for the same group.
 * `patience_ms` is the longest wait: 0 for none, negative for one without end. -ETIMEDOUT: the patience is over. -E2BIG: `least` is more than
 * a limit. -EEXIST: `name` is taken. -ENOMEM: `group` is inside of a grant that has too little left. */
int bursar_admit(bursar_arbiter arbiter, bursar_group group, const char *name, uint64_t least, uint64_t wanted, int score, int64_t patience_ms,
                 bursar_grant *grant, bursar_error **error);
/* Makes a handle of the grant's group. Return the grant's charges by it (bursar_uncharge), and release it. */
int bursar_grant_group(bursar_grant grant, bursar_group *group);
/* Ends a grant: closes its group, and lets others start. A wait of the grant's fails with -EBADF. Bytes that are still charged count until they
 * return. The engine is destroyed, after calls that run. What bursar_arbiter_close says of locks holds here. */
int bursar_grant_close(bursar_grant grant);

/* Charges the grant's group, and makes the grant larger if nobody waits for that memory. Never waits. Errors are those of bursar_try_charge, which
 * costs less and stays within the grant. */
int bursar_grant_try_charge(bursar_grant grant, uint64_t bytes, bursar_error **error);
/* Charges the grant's group, and waits in this call while the memory is not there. So a query pauses here: its thread waits, and nothing else
 * resumes it. `timeout_ms`: 0 for one look, negative for no end. The numbers say how to go on:
 *   -ECANCELED  the query was stopped so that others can go on: return its bytes, close its grant, and run it again later
 *   -EDEADLK    nobody who holds memory can yield: go on with less, or end
 *   -E2BIG      a limit is smaller than what the query would have: waiting is in vain
 *   -ETIMEDOUT  the memory was not there in time: try again, or go on with less
 *   -EBADF      the grant was closed meanwhile
 *   -ENOMEM     a limit inside of the grant, a grant around it, or one that was lowered meanwhile, is in the way */
int bursar_grant_grow(bursar_grant grant, uint64_t bytes, int64_t timeout_ms, bursar_error **error);

/* Bytes that the query could give back if it were asked now. */
typedef uint64_t (*bursar_reclaimable_function)(void *data);
/* Asks the query to give back `bytes` or more. Note the answer, let a thread of the query return the bytes, and then answer from there. */
typedef void (*bursar_ask_function)(void *data, uint64_t bytes, bursar_answer answer);
/* Tells the query to end: to return its bytes, and to close its grant. The reason is a text for people that lives during the call. */
typedef void (*bursar_stop_function)(void *data, const char *reason);

/* A query as the arbiter sees it. The functions run on any thread, and on several at a time. They must return soon, and must not wait for memory.
 * What CALLBACKS says above holds for them. */
typedef struct {
    /* sizeof(bursar_engine). */
    size_t size;
    /* If one of these two is NULL, the query is never asked. */
    bursar_reclaimable_function reclaimable;
    bursar_ask_function ask;
    /* NULL: only its waits tell the query that it was stopped. */
    bursar_stop_function stop;
    /* May be NULL. */
    bursar_destroy_function destroy;
    void *data;
} bursar_engine;

#define BURSAR_ENGINE_INIT {sizeof(bursar_engine), NULL, NULL, NULL, NULL, NULL}

/* Says who is asked to give back memory of this grant, and told to stop. It takes the place of the engine before, which is destroyed. The structure
 * is copied. If this fails, `data` is still the caller's. Without an engine, a query is stopped only while it waits for memory. */
int bursar_grant_attach(bursar_grant grant, const bursar_engine *engine, bursar_error **error);

/* End an answer's handle; each answer needs one of these. Freed: so many bytes are back. Cannot: none, and the query is not asked again before it
 * has grown. Drop: no answer, so others wait until `ask_max_ms` is over. An answer that comes too late, or after the grant was closed, is fine. */
int bursar_answer_freed(bursar_answer answer, uint64_t bytes);
int bursar_answer_cannot(bursar_answer answer);
int bursar_answer_drop(bursar_answer answer);

#ifdef __cplusplus
}
#endif

#endif
