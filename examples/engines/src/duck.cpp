/* DuckDB with its memory in a group of Bursar. Its C interface has no functions for memory, so this uses its C++ interface. */
#include <bursar.h>
#include <cstdio>
#include <cstdlib>

#include "duckdb.hpp"
#include "duckdb/storage/buffer_manager.hpp"

namespace {

struct Tenant : duckdb::PrivateAllocatorData {
    explicit Tenant(bursar_group group_) : group(group_) {}
    bursar_group group;
};

/* This thread is in DuckDB's own request for memory, or moves blocks to a file. */
thread_local bool is_taking, is_shrinking;

/* A charge that may ask other engines for memory, or wait for it. What it takes to move blocks to a file is never refused. */
bool charge(duckdb::PrivateAllocatorData *data, uint64_t bytes) {
    auto group = static_cast<Tenant *>(data)->group;
    if (is_shrinking) {
        return bursar_charge_nowait(group, bytes) >= 0;
    }
    is_taking = true;
    bool is_charged = bursar_try_charge(group, bytes, nullptr) == 0;
    is_taking = false;
    return is_charged;
}

void uncharge(duckdb::PrivateAllocatorData *data, uint64_t bytes) { bursar_uncharge_nowait(static_cast<Tenant *>(data)->group, bytes); }

/* DuckDB makes an error of a null pointer, and the query ends with it. */
duckdb::data_ptr_t take(duckdb::PrivateAllocatorData *data, duckdb::idx_t bytes) {
    if (!charge(data, bytes)) {
        return nullptr;
    }
    void *block = malloc(bytes);
    if (!block) {
        uncharge(data, bytes);
    }
    return duckdb::data_ptr_t(block);
}

void give(duckdb::PrivateAllocatorData *data, duckdb::data_ptr_t block, duckdb::idx_t bytes) {
    free(block);
    uncharge(data, bytes);
}

duckdb::data_ptr_t resize(duckdb::PrivateAllocatorData *data, duckdb::data_ptr_t block, duckdb::idx_t before, duckdb::idx_t after) {
    if (after > before && !charge(data, after - before)) {
        return nullptr;
    }
    void *moved = realloc(block, after);
    if (!moved && after > before) {
        uncharge(data, after - before);
    } else if (moved && after < before) {
        uncharge(data, before - after);
    }
    return duckdb::data_ptr_t(moved);
}

}  // namespace

struct duck {
    duck(bursar_group group, duckdb::DBConfig &config) : database(nullptr, &config), connection(database) {
        if (bursar_add_reclaimer(group, 0, shrink, this, finish, &reclaimer, nullptr)) {
            throw duckdb::IOException("no reclaimer can be added");
        }
    }

    /* Moves blocks to DuckDB's file until it holds `target` bytes less. Runs on the thread that needs memory: if that is one of DuckDB's, its locks
     * may be taken. */
    static uint64_t shrink(void *data, uint64_t target) {
        if (is_taking) {
            return 0;
        }
        auto &buffers = static_cast<duck *>(data)->database.instance->GetBufferManager();
        auto before = buffers.GetUsedMemory();
        is_shrinking = true;
        try {
            buffers.SetMemoryLimit(before > target ? before - target : 0);
        } catch (...) {
            /* It moved what it could. */
        }
        is_shrinking = false;
        auto after = buffers.GetUsedMemory();
        return before > after ? before - after : 0;
    }

    static void finish(void *data) { delete static_cast<duck *>(data); }

    duckdb::DuckDB database;
    duckdb::Connection connection;
    bursar_registration reclaimer;
};

extern "C" {

/* DuckDB in memory, with a directory for the blocks that it moves out. Null if it cannot be opened. */
duck *duck_open(bursar_group group, const char *directory) {
    try {
        duckdb::DBConfig config;
        config.allocator = duckdb::make_uniq<duckdb::Allocator>(take, give, resize, duckdb::make_uniq<Tenant>(group));
        config.SetOptionByName("temp_directory", duckdb::Value(directory));
        config.SetOptionByName("threads", duckdb::Value::BIGINT(2));
        return new duck(group, config);
    } catch (...) {
        return nullptr;
    }
}

/* The number in the first column of the first row; -1 with a text if the statement fails. DuckDB may take up to `memory` bytes before it moves
 * blocks to its file. */
int64_t duck_run(duck *self, const char *sql, uint64_t memory, char *text, size_t length) {
    try {
        self->database.instance->GetBufferManager().SetMemoryLimit(memory);
        auto result = self->connection.Query(sql);
        if (!result->HasError()) {
            auto chunk = result->Fetch();
            auto value = chunk && chunk->size() > 0 ? chunk->GetValue(0, 0) : duckdb::Value();
            return value.IsNull() ? 0 : value.template GetValue<int64_t>();
        }
        snprintf(text, length, "%s", result->GetError().c_str());
    } catch (const std::exception &error) {
        snprintf(text, length, "%s", error.what());
    }
    return -1;
}

/* A call of `shrink` may still run on another thread: `finish` comes after it. */
void duck_close(duck *self) { bursar_unregister(self->reclaimer); }
}
