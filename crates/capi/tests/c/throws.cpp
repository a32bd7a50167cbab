// A reclaimer that throws.
#include <cstdio>
#include <stdexcept>

#include "bursar.h"

static uint64_t throws(void *, uint64_t) { throw std::runtime_error("from the callback"); }

int main() {
    bursar_options options = BURSAR_OPTIONS_INIT;
    options.max = 4096;
    bursar_group root;
    bursar_registration registration;
    if (bursar_create(&options, &root, nullptr) || bursar_add_reclaimer(root, 0, throws, nullptr, nullptr, &registration, nullptr)) {
        return 1;
    }
    std::puts("begun");
    std::fflush(stdout);
    bursar_try_charge(root, 8192, nullptr);
    std::puts("not reached");
    return 0;
}
