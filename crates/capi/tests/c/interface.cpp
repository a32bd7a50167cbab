// The interface as a program in C++ sees it: what ends by itself, errors, containers on a group, callbacks.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bursar.hpp"

#define CHECK(is_true)                                                                                                 \
    do {                                                                                                               \
        if (!(is_true)) {                                                                                              \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is_true);                                         \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

using bursar::Freshness;

static const uint64_t MIB = 1 << 20;

static uint64_t usage(const bursar::Group &group) { return static_cast<uint64_t>(group.read(Freshness::exact()).usage.value); }

template <class F> static int number_of(F fails) {
    try {
        fails();
    } catch (const bursar::Error &error) {
        CHECK(*error.what() != 0);
        return error.number();
    }
    return 0;
}

// The text of the exception, as code that knows nothing of Bursar catches it.
template <class F> static std::string text_of_bad_alloc(F fails) {
    try {
        fails();
    } catch (const std::bad_alloc &error) {
        return error.what();
    }
    return "not refused";
}

static void charges() {
    bursar::Group root = bursar::Group::create();
    bursar::Charge kept;
    {
        bursar::Group query = root.child("query", 8 * MIB);
        CHECK(query.path() == "/query" && query.limits().max == 8 * MIB);
        bursar::Charge charge = query.charge(4 * MIB);
        CHECK(number_of([&] { query.charge(5 * MIB); }) == ENOMEM && !query.try_charge(5 * MIB));
        CHECK(number_of([&] { charge.resize(9 * MIB); }) == ENOMEM && charge.bytes() == 4 * MIB);
        charge.resize(6 * MIB);
        charge.resize(1 * MIB);
        CHECK(usage(root) == MIB);
        query.set_max(16 * MIB);
        CHECK(query.charge_anyway(20 * MIB).bytes() == 20 * MIB);
        CHECK(query.try_charge(MIB)->forget() == MIB && usage(query) == 2 * MIB);
        query.uncharge(MIB);
        kept = query.charge(MIB);
        // Ends what it had.
        kept = std::move(charge);
        CHECK(charge.bytes() == 0 && kept.bytes() == MIB && usage(query) == MIB);
        CHECK(number_of([&] { root.child(std::string("a\0b", 3)); }) == EINVAL);
        bursar::Group moved = std::move(query);
        CHECK(moved.path() == "/query" && query.path() == "/query");
        CHECK(number_of([&] { root.child("query"); }) == EEXIST && !root.find("other") && root.find("query"));
        CHECK(number_of([&] { root.close(); }) == EPERM);
    }
    // The handles of its group are gone.
    CHECK(usage(root) == MIB);
    kept.resize(2 * MIB);
    kept = bursar::Charge();
    CHECK(usage(root) == 0 && !root.find("query"));
    CHECK(number_of([&] { kept.resize(1); }) == EINVAL);
}

static void containers() {
    bursar::Group root = bursar::Group::create();
    bursar::Group rows = root.child("rows", MIB);
    {
        bursar::Resource resource(rows), same(rows);
        CHECK(resource == same && !(resource == *std::pmr::new_delete_resource()));
        std::pmr::vector<uint64_t> numbers(&resource);
        numbers.resize(1000);
        CHECK(usage(rows) == 8000);
        std::string refusal = text_of_bad_alloc([&] { numbers.reserve(131000); });
        CHECK(refusal == "cannot charge 1023 KiB to /rows: /rows uses 7.81 KiB of 1.00 MiB");
        CHECK(numbers.size() == 1000 && usage(rows) == 8000);
        std::vector<int, bursar::Allocator<int>> plain{bursar::Allocator<int>(rows)};
        refusal = text_of_bad_alloc([&] { plain.reserve(262000); });
        CHECK(refusal == "cannot charge 1023 KiB to /rows: /rows uses 7.81 KiB of 1.00 MiB");
        try {
            numbers.reserve(131000);
            CHECK(false);
        } catch (const bursar::Refused &refused) {
            CHECK(refused.number() == ENOMEM);
        }
        std::string kept = root.refusals();
        CHECK(kept.find(" s ago: cannot charge 1023 KiB to /rows") != std::string::npos && kept.back() == '\n');
        using Pairs = std::map<int, int, std::less<int>, bursar::Allocator<std::pair<const int, int>>>;
        Pairs pairs{bursar::Allocator<std::pair<const int, int>>(rows)};
        for (int at = 0; at < 100; at++) {
            pairs[at] = at;
        }
        CHECK(usage(rows) > 8000 + 100 * sizeof(std::pair<const int, int>));
        Pairs moved = std::move(pairs);
        CHECK(moved.at(99) == 99);
        pairs[1] = 1;
        std::vector<int, bursar::Allocator<int>> one{bursar::Allocator<int>(rows)}, other = std::move(one);
        one.push_back(1);
    }
    CHECK(usage(rows) == 0);
    rows.close();
    bursar::Resource removed(rows);
    CHECK(text_of_bad_alloc([&] { static_cast<void>(removed.allocate(8)); }) == "cannot charge /rows: it was removed");
}

static void callbacks() {
    bursar_options options = BURSAR_OPTIONS_INIT;
    options.max = 8 * MIB;
    bursar::Group root = bursar::Group::create(options);
    bursar::Group cache = root.child("cache");
    std::vector<bursar::Charge> entries;
    int level = -1;
    {
        auto shrink = [&](uint64_t target) {
            uint64_t freed = 0;
            while (freed < target && !entries.empty()) {
                freed += entries.back().bytes();
                entries.pop_back();
            }
            return freed;
        };
        bursar::Registration reclaimer = cache.add_reclaimer(shrink);
        bursar::Registration watcher = root.on_pressure([&](int now) { level = now; });
        for (int at = 0; at < 100; at++) {
            entries.reserve(100);
            entries.push_back(cache.charge(MIB));
        }
        CHECK(entries.size() == 8 && level == BURSAR_PRESSURE_CRITICAL);
        bursar::Charge query = root.child("query").charge(5 * MIB);
        CHECK(entries.size() <= 3);
        entries.clear();
    }
    CHECK(level == BURSAR_PRESSURE_NONE && usage(root) == 0);
    // Nobody is asked any more.
    entries.push_back(cache.charge(8 * MIB));
    CHECK(!root.try_charge(MIB));
}

static void threads() {
    bursar::Group group = bursar::Group::create().child("threads");
    std::vector<std::thread> running;
    for (int at = 0; at < 4; at++) {
        running.emplace_back([group] {
            for (int turn = 0; turn < 5000; turn++) {
                bursar::Charge charge = group.charge(64);
                charge.resize(128);
            }
        });
    }
    for (std::thread &thread : running) {
        thread.join();
    }
    CHECK(usage(group) == 0 && group.snapshot_json().front() == '[');
}

// A sort that gives back all when it is asked.
struct Sort : bursar::Engine {
    std::mutex lock;
    bursar::Charge rows;
    std::optional<bursar::Answer> asked;
    bool is_stopped = false;

    uint64_t reclaimable() override {
        std::lock_guard<std::mutex> held(lock);
        return rows.bytes();
    }
    void ask(uint64_t, bursar::Answer answer) override {
        std::lock_guard<std::mutex> held(lock);
        asked = std::move(answer);
    }
    void stop(const char *) override { is_stopped = true; }
    // On the sort's own thread.
    void give_back() {
        for (;; std::this_thread::yield()) {
            std::lock_guard<std::mutex> held(lock);
            if (asked) {
                uint64_t bytes = rows.bytes();
                rows = bursar::Charge();
                asked->freed(bytes);
                return;
            }
        }
    }
};

static void arbiters() {
    bursar_options options = BURSAR_OPTIONS_INIT;
    options.max = 100 * MIB;
    bursar::Group root = bursar::Group::create(options);
    bursar::Group tenant = root.child("acme");
    auto sort = std::make_shared<Sort>();
    {
        bursar::Arbiter arbiter(root);
        bursar::Grant join = arbiter.admit(tenant, "join", 50 * MIB, 50 * MIB);
        bursar::Grant second = arbiter.admit(tenant, "sort", 50 * MIB), sorting = std::move(second);
        CHECK(number_of([&] { arbiter.admit(tenant, "late", MIB, 0, 0, 0); }) == ETIMEDOUT && sorting.group().path() == "/acme/sort");
        CHECK(number_of([&] { second.grow(1); }) == EBADF && number_of([&] { second.attach(sort); }) == EBADF);
        bursar::Charge table = join.grow(50 * MIB);
        sort->rows = std::move(*sorting.try_charge(50 * MIB));
        sorting.attach(sort);
        CHECK(sort.use_count() == 2 && !join.try_charge(20 * MIB));
        std::thread running([sort] { sort->give_back(); });
        bursar::Charge more = join.grow(20 * MIB);
        running.join();
        CHECK(!sort->is_stopped && usage(root) == 70 * MIB);
        CHECK(number_of([&] { join.grow(31 * MIB); }) == E2BIG);
    }
    CHECK(sort.use_count() == 1 && usage(root) == 0);
}

int main() {
    charges();
    containers();
    callbacks();
    arbiters();
    threads();
    std::puts("passed");
}
