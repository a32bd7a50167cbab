// Callbacks that throw, or end their thread: the one that the argument names.
#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "bursar.h"

static uint64_t reclaim(void *, uint64_t) { throw std::runtime_error("from the reclaimer"); }
static uint64_t leave(void *, uint64_t) { pthread_exit(nullptr); }
static uint64_t nothing(void *, uint64_t) { return 0; }
static void hear(void *, int) { throw std::runtime_error("from the listener"); }
static void destroy(void *) { throw std::runtime_error("from the end"); }

int main(int, char **arguments) {
    const char *which = arguments[1];
    bursar_options options = BURSAR_OPTIONS_INIT;
    options.max = 4096;
    bursar_group root;
    bursar_registration registration;
    if (bursar_create(&options, &root, nullptr)) {
        return 1;
    }
    std::puts("begun");
    std::fflush(stdout);
    if (std::strcmp(which, "pressure") == 0) {
        bursar_on_pressure(root, hear, nullptr, nullptr, &registration, nullptr);
        bursar_try_charge(root, 4096, nullptr);
    } else {
        bool ends = std::strcmp(which, "destroy") == 0;
        bursar_reclaim_function function = ends ? nothing : std::strcmp(which, "exit") == 0 ? leave : reclaim;
        bursar_add_reclaimer(root, 0, function, nullptr, ends ? destroy : nullptr, &registration, nullptr);
        bursar_charge(root, 1);
        bursar_try_charge(root, 4096, nullptr);
        bursar_unregister(registration);
    }
    std::puts("not reached");
    return 0;
}
