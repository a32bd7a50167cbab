// Bursar for C++17: groups, charges, callbacks and grants that end by themselves, and memory resources on a group.
//
//     bursar::Group root = bursar::Group::create();
//     bursar::Group query = root.child("query-7", 64 << 20);
//     bursar::Charge charge = query.charge(4096);       // throws bursar::Error if a limit is in the way
//     bursar::Resource resource(query);                 // a std::pmr::memory_resource: charges what it allocates
//     std::pmr::vector<int> rows(&resource);
//
// It is a header over bursar.h, whose rules hold here: threads, signal handlers, fork. No exception crosses the library: it is thrown here. An
// exception that leaves a callback aborts the process. The header needs exceptions (no -fno-exceptions).
#ifndef BURSAR_HPP
#define BURSAR_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bursar.h"

namespace bursar {

// Why a call failed.
class Error : public std::runtime_error {
public:
    Error(int number, const std::string &text) : std::runtime_error(text), number_(number) {}

    // The number of <cerrno>, positive: ENOMEM if a limit is in the way.
    int number() const noexcept { return number_; }

private:
    int number_;
};

// Why memory was not allocated: the charge for it failed. What allocators throw, so that code that handles std::bad_alloc handles it.
class Refused : public std::bad_alloc {
public:
    explicit Refused(const Error &error) : error_(error) {}

    // The first line of the error's text: it names the group, and the limit in the way.
    const char *what() const noexcept override { return error_.what(); }
    // The number of <cerrno>, positive: ENOMEM if a limit is in the way.
    int number() const noexcept { return error_.number(); }

private:
    // Copies share its text, so that they throw nothing.
    Error error_;
};

namespace detail {

// An error object of the library that frees itself.
class Failure {
public:
    Failure() = default;
    Failure(const Failure &) = delete;
    Failure &operator=(const Failure &) = delete;
    ~Failure() { bursar_error_free(error_); }

    bursar_error **put() noexcept { return &error_; }

    // Throws if `result` is an error.
    void check(int64_t result) const {
        if (result < 0) {
            throw Error(static_cast<int>(-result), text());
        }
    }

    const char *text() const noexcept { return error_ ? bursar_error_text(error_) : "no text"; }

private:
    bursar_error *error_ = nullptr;
};

// Charges what an allocator is about to allocate, or throws Refused.
inline void charge(bursar_group group, uint64_t bytes) {
    Failure failure;
    int result = bursar_try_charge(group, bytes, failure.put());
    if (result < 0) {
        std::string text = failure.text();
        throw Refused(Error(-result, text.substr(0, text.find('\n'))));
    }
}

// A name for C. A NUL inside would end it early.
inline const char *text(const std::string &name) {
    if (name.find('\0') != std::string::npos) {
        throw Error(EINVAL, "a name or path contains a NUL");
    }
    return name.c_str();
}

inline void check(int64_t result, const char *what) {
    if (result < 0) {
        throw Error(static_cast<int>(-result), what);
    }
}

// A handle that releases itself.
class Owned {
public:
    explicit Owned(bursar_group group) noexcept : group(group) {}
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    ~Owned() { bursar_release(group); }

    const bursar_group group;
};

using Handle = std::shared_ptr<const Owned>;

inline Handle own(bursar_group group) {
    try {
        return std::make_shared<const Owned>(group);
    } catch (...) {
        bursar_release(group);
        throw;
    }
}

// A handle that ends by itself. One that was moved from is none.
template <class T, int (*end)(T)> class Ending {
public:
    explicit Ending(T value = T{0}) noexcept : value_(value) {}
    Ending(Ending &&other) noexcept : value_(other.take()) {}
    Ending &operator=(Ending &&other) noexcept {
        Ending taken(std::move(other));
        std::swap(value_, taken.value_);
        return *this;
    }
    ~Ending() {
        if (value_.bits != 0) {
            end(value_);
        }
    }

    T get() const noexcept { return value_; }
    T take() noexcept { return std::exchange(value_, T{0}); }

private:
    T value_;
};

} // namespace detail

// How old numbers may be.
struct Freshness {
    uint32_t kind;
    uint64_t bound;

    // As they were last brought up to date.
    static constexpr Freshness cached() { return {BURSAR_CACHED, 0}; }
    static constexpr Freshness at_most_ns(uint64_t age) { return {BURSAR_AT_MOST_NS, age}; }
    // Usage that is off by at most that many bytes.
    static constexpr Freshness within(uint64_t bytes) { return {BURSAR_WITHIN, bytes}; }
    // They miss no update that returned before the call.
    static constexpr Freshness exact() { return {BURSAR_EXACT, 0}; }
};

using Reading = bursar_reading;
using Limits = bursar_limits;

inline Limits no_limits() { return BURSAR_LIMITS_INIT; }

// A callback that is registered until this ends. A call on another thread may still run then. So let the function own what it uses, for example
// by a std::shared_ptr that it captures: it is destroyed after its last call.
class Registration {
public:
    Registration() = default;
    explicit Registration(bursar_registration registration) noexcept : registration_(registration) {}

private:
    detail::Ending<bursar_registration, bursar_unregister> registration_;
};

class Group;

// Bytes that are charged to a group until this ends. It may end on any thread, and before or after handles of its group. It shares the handle, so
// making and ending one counts an atomic reference. Code that charges small amounts on many threads calls bursar_try_charge and
// bursar_uncharge with Group::get instead.
class Charge {
public:
    Charge() = default;
    Charge(Charge &&other) noexcept : group_(std::move(other.group_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Charge &operator=(Charge &&other) noexcept {
        Charge taken(std::move(other));
        std::swap(group_, taken.group_);
        std::swap(bytes_, taken.bytes_);
        return *this;
    }
    ~Charge();

    uint64_t bytes() const noexcept { return bytes_; }

    // Charges more, or returns what is too much. Throws if a limit is in the way, and changes nothing then.
    void resize(uint64_t bytes);

    // Leaves the bytes charged; return them by Group::uncharge.
    uint64_t forget() noexcept { return std::exchange(bytes_, 0); }

private:
    friend class Group;
    friend class Grant;
    Charge(detail::Handle group, uint64_t bytes) noexcept : group_(std::move(group)), bytes_(bytes) {}

    detail::Handle group_;
    uint64_t bytes_ = 0;
};

// A handle of a group. Copies are handles of the same group, which is released with the last one and the last charge. There are only copies: a
// group that was moved from would be none.
class Group {
public:
    Group(const Group &) = default;
    Group &operator=(const Group &) = default;

    // Makes a tree, and returns its root.
    static Group create(const bursar_options &options = BURSAR_OPTIONS_INIT) {
        detail::Failure failure;
        bursar_group root;
        failure.check(bursar_create(&options, &root, failure.put()));
        return Group(root);
    }

    // Takes over a handle of C.
    explicit Group(bursar_group group) : handle_(detail::own(group)) {}

    Group child(const std::string &name, uint64_t max = BURSAR_MAX) const {
        detail::Failure failure;
        bursar_group child;
        failure.check(bursar_child(get(), detail::text(name), max, &child, failure.put()));
        return Group(child);
    }

    // The group at a path below, if there is one.
    std::optional<Group> find(const std::string &path) const {
        detail::Failure failure;
        bursar_group found;
        int result = bursar_find(get(), detail::text(path), &found, failure.put());
        if (result == -ENOENT) {
            return std::nullopt;
        }
        failure.check(result);
        return Group(found);
    }

    // The handle, for functions of C. It is this object's.
    bursar_group get() const noexcept { return handle_->group; }

    std::string path() const {
        int64_t length = bursar_path(get(), nullptr, 0);
        detail::check(length, "the group's path");
        std::string path(static_cast<std::size_t>(length), '\0');
        bursar_path(get(), path.data(), path.size() + 1);
        return path;
    }

    Limits limits() const {
        Limits limits = BURSAR_LIMITS_INIT;
        detail::check(bursar_get_limits(get(), &limits), "the group's limits");
        return limits;
    }

    void set_limits(const Limits &limits) const {
        detail::Failure failure;
        failure.check(bursar_set_limits(get(), &limits, failure.put()));
    }

    void set_max(uint64_t max) const {
        Limits limits = this->limits();
        limits.max = max;
        set_limits(limits);
    }

    // Removes the group and all below. Bytes stay charged until they are returned.
    void close() const {
        detail::Failure failure;
        failure.check(bursar_close(get(), failure.put()));
    }

    // Charges, or throws.
    Charge charge(uint64_t bytes) const {
        detail::Failure failure;
        failure.check(bursar_try_charge(get(), bytes, failure.put()));
        return Charge(handle_, bytes);
    }

    // Charges, or returns nothing if that fails: by a limit, or because the group was removed.
    std::optional<Charge> try_charge(uint64_t bytes) const {
        if (bursar_try_charge(get(), bytes, nullptr) < 0) {
            return std::nullopt;
        }
        return Charge(handle_, bytes);
    }

    // Charges whatever the limits say, for memory that is in use already.
    Charge charge_anyway(uint64_t bytes) const {
        int64_t charged = bursar_charge(get(), bytes);
        detail::check(charged, "a charge beyond the limits");
        return Charge(handle_, static_cast<uint64_t>(charged));
    }

    // Returns bytes whose charge was forgotten.
    void uncharge(uint64_t bytes) const noexcept { bursar_uncharge(get(), bytes); }

    void add(uint32_t statistic, int64_t delta) const { detail::check(bursar_add(get(), statistic, delta), "a statistic of that number and sign"); }

    // Reads the usage, and as many statistics as there is room for at `values`.
    Reading read(Freshness freshness = Freshness::cached(), bursar_value *values = nullptr, std::size_t count = 0) const {
        detail::Failure failure;
        Reading reading = BURSAR_READING_INIT;
        failure.check(bursar_read(get(), freshness.kind, freshness.bound, &reading, values, count, failure.put()));
        return reading;
    }

    // The group and all below, as the `groups` of docs/live-schema.md.
    std::string snapshot_json(Freshness freshness = Freshness::cached()) const {
        detail::Failure failure;
        char *json;
        failure.check(bursar_snapshot_json(get(), freshness.kind, freshness.bound, &json, failure.put()));
        std::unique_ptr<char, void (*)(char *)> owned(json, bursar_text_free);
        return owned.get();
    }

    // The last refusals of the group's tree, at most 16, the oldest first: a line for each.
    std::string refusals() const {
        detail::Failure failure;
        char *text;
        failure.check(bursar_refusals(get(), &text, failure.put()));
        std::unique_ptr<char, void (*)(char *)> owned(text, bursar_text_free);
        return owned.get();
    }

    // Does periodic work that is due for the tree.
    void tick() const { detail::check(bursar_tick(get()), "the tree's periodic work"); }

    // Calls `reclaim` when bytes are needed: it frees some of the group's, returns them, and tells how many.
    [[nodiscard]] Registration add_reclaimer(std::function<uint64_t(uint64_t target)> reclaim, int order = 0) const {
        using Function = std::function<uint64_t(uint64_t)>;
        detail::Failure failure;
        bursar_registration registration;
        auto owned = std::make_unique<Function>(std::move(reclaim));
        auto call = [](void *data, uint64_t target) { return (*static_cast<Function *>(data))(target); };
        auto destroy = [](void *data) { delete static_cast<Function *>(data); };
        failure.check(bursar_add_reclaimer(get(), order, call, owned.get(), destroy, &registration, failure.put()));
        owned.release();
        return Registration(registration);
    }

    // Calls `tell` with each new level of pressure, BURSAR_PRESSURE_*.
    [[nodiscard]] Registration on_pressure(std::function<void(int level)> tell) const {
        using Function = std::function<void(int)>;
        detail::Failure failure;
        bursar_registration registration;
        auto owned = std::make_unique<Function>(std::move(tell));
        auto call = [](void *data, int level) { (*static_cast<Function *>(data))(level); };
        auto destroy = [](void *data) { delete static_cast<Function *>(data); };
        failure.check(bursar_on_pressure(get(), call, owned.get(), destroy, &registration, failure.put()));
        owned.release();
        return Registration(registration);
    }

private:
    friend class Grant;
    detail::Handle handle_;
};

inline Charge::~Charge() {
    if (bytes_ > 0) {
        bursar_uncharge(group_->group, bytes_);
    }
}

inline void Charge::resize(uint64_t bytes) {
    if (bytes > bytes_) {
        if (!group_) {
            throw Error(EINVAL, "a charge of no group cannot grow");
        }
        detail::Failure failure;
        failure.check(bursar_try_charge(group_->group, bytes - bytes_, failure.put()));
    } else if (bytes < bytes_) {
        bursar_uncharge(group_->group, bytes_ - bytes);
    }
    bytes_ = bytes;
}

// The answer that an engine owes. If it ends without one, others wait until its time is over.
class Answer {
public:
    explicit Answer(bursar_answer answer) noexcept : answer_(answer) {}

    // So many bytes are back.
    void freed(uint64_t bytes) noexcept { bursar_answer_freed(answer_.take(), bytes); }
    void cannot() noexcept { bursar_answer_cannot(answer_.take()); }

private:
    detail::Ending<bursar_answer, bursar_answer_drop> answer_;
};

// A query as the arbiter sees it: see bursar_engine. Calls come on any thread, and on several at a time.
class Engine {
public:
    virtual ~Engine() = default;
    virtual uint64_t reclaimable() { return 0; }
    virtual void ask(uint64_t, Answer answer) { answer.cannot(); }
    virtual void stop(const char *reason) = 0;
};

// The right of a query to run, until this ends.
class Grant {
public:
    const Group &group() const noexcept { return group_; }

    // Charges, and makes the grant larger if nobody waits for that memory; nothing if that fails.
    std::optional<Charge> try_charge(uint64_t bytes) const {
        if (bursar_grant_try_charge(grant_.get(), bytes, nullptr) < 0) {
            return std::nullopt;
        }
        return Charge(group_.handle_, bytes);
    }

    // Charges, and waits for memory in this call. The number of the error says how to go on: see bursar_grant_grow.
    Charge grow(uint64_t bytes, int64_t timeout_ms = -1) const {
        detail::Failure failure;
        failure.check(bursar_grant_grow(grant_.get(), bytes, timeout_ms, failure.put()));
        return Charge(group_.handle_, bytes);
    }

    // Says who is asked to give back memory of this grant, and told to stop.
    void attach(std::shared_ptr<Engine> engine) const {
        using Shared = std::shared_ptr<Engine>;
        detail::Failure failure;
        auto owned = std::make_unique<Shared>(std::move(engine));
        bursar_engine calls = BURSAR_ENGINE_INIT;
        calls.reclaimable = [](void *data) { return (*static_cast<Shared *>(data))->reclaimable(); };
        calls.ask = [](void *data, uint64_t bytes, bursar_answer answer) { (*static_cast<Shared *>(data))->ask(bytes, Answer(answer)); };
        calls.stop = [](void *data, const char *reason) { (*static_cast<Shared *>(data))->stop(reason); };
        calls.destroy = [](void *data) { delete static_cast<Shared *>(data); };
        calls.data = owned.get();
        failure.check(bursar_grant_attach(grant_.get(), &calls, failure.put()));
        owned.release();
    }

private:
    friend class Arbiter;
    using Ending = detail::Ending<bursar_grant, bursar_grant_close>;
    Grant(Ending grant, const Group &group) noexcept : grant_(std::move(grant)), group_(group) {}

    Ending grant_;
    Group group_;
};

// Lets queries of a tree wait instead of failing. Make one for each tree.
class Arbiter {
public:
    explicit Arbiter(const Group &root, const bursar_arbiter_options &options = BURSAR_ARBITER_OPTIONS_INIT) {
        detail::Failure failure;
        bursar_arbiter made;
        failure.check(bursar_arbiter_create(root.get(), &options, &made, failure.put()));
        arbiter_ = Ending(made);
    }

    // Waits until a query may start: see bursar_admit.
    Grant admit(const Group &tenant, const std::string &name, uint64_t least, uint64_t wanted = 0, int score = 0, int64_t patience_ms = -1) const {
        detail::Failure failure;
        bursar_grant grant;
        bursar_group group;
        failure.check(bursar_admit(arbiter_.get(), tenant.get(), detail::text(name), least, wanted, score, patience_ms, &grant, failure.put()));
        Grant::Ending owned(grant);
        detail::check(bursar_grant_group(grant, &group), "the grant's group");
        return Grant(std::move(owned), Group(group));
    }

private:
    using Ending = detail::Ending<bursar_arbiter, bursar_arbiter_close>;
    Ending arbiter_;
};

// A memory resource that charges a group for what it allocates from another one, and throws bursar::Refused, a std::bad_alloc, if that fails. It charges
// the bytes that were asked for: what the other resource rounds up, or keeps, is not charged. Resources are equal if their groups' handles and
// their upstreams are; without RTTI, only to themselves.
class Resource : public std::pmr::memory_resource {
public:
    explicit Resource(const Group &group, std::pmr::memory_resource *upstream = std::pmr::new_delete_resource())
        : group_(group), upstream_(upstream) {}

    const Group &group() const noexcept { return group_; }
    std::pmr::memory_resource *upstream() const noexcept { return upstream_; }

protected:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        detail::charge(group_.get(), bytes);
        try {
            return upstream_->allocate(bytes, alignment);
        } catch (...) {
            bursar_uncharge(group_.get(), bytes);
            throw;
        }
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override {
        upstream_->deallocate(block, bytes, alignment);
        bursar_uncharge(group_.get(), bytes);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#if defined(__cpp_rtti)
        auto same = dynamic_cast<const Resource *>(&other);
        return same && same->group_.get().bits == group_.get().bits && same->upstream_ == upstream_;
#else
        return this == &other;
#endif
    }

private:
    Group group_;
    std::pmr::memory_resource *upstream_;
};

// The same as an allocator for containers without pmr. Copies share the group.
template <class T> class Allocator {
public:
    using value_type = T;

    explicit Allocator(const Group &group) : group_(group) {}
    // A container that was moved from keeps its allocator, so there are only copies.
    Allocator(const Allocator &) = default;
    Allocator &operator=(const Allocator &) = default;
    template <class U> Allocator(const Allocator<U> &other) noexcept : group_(other.group()) {}

    const Group &group() const noexcept { return group_; }

    T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        std::size_t bytes = count * sizeof(T);
        detail::charge(group_.get(), bytes);
        try {
            return std::allocator<T>().allocate(count);
        } catch (...) {
            bursar_uncharge(group_.get(), bytes);
            throw;
        }
    }

    void deallocate(T *block, std::size_t count) noexcept {
        std::allocator<T>().deallocate(block, count);
        bursar_uncharge(group_.get(), count * sizeof(T));
    }

    template <class U> bool operator==(const Allocator<U> &other) const noexcept { return group_.get().bits == other.group().get().bits; }
    template <class U> bool operator!=(const Allocator<U> &other) const noexcept { return !(*this == other); }

private:
    Group group_;
};

} // namespace bursar

#endif
