// TMA: boxes of a tensor, and runs of bytes, between device and shared memory. A load arrives in parts; a store reads
// shared memory first, and writes later.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "barrier.h"
#include "calls.h"
#include "cuda_runtime.h"
#include "memory.h"
#include "ptx_functions.h"
#include "tensor_map.h"

namespace emulator {
namespace {

constexpr std::size_t most_parts = 4;

using Coordinates = std::array<int, max_rank>;

/// One row of a box: what of it lies in the tensor, and where.
struct BoxRow {
    char* global = nullptr;            // of the first byte that does
    std::uint32_t begin = 0, end = 0;  // bytes of the row
};

BoxRow find_row(const TensorMap& map, const Coordinates& origin, std::uint32_t row) {
    std::uint64_t address = map.address;
    for (std::size_t i = 1; i < map.rank; ++i) {
        const std::int64_t index = std::int64_t(origin[i]) + row % map.box[i];
        row /= map.box[i];
        if (index < 0 || index > std::int64_t(map.last[i])) return {};
        address += static_cast<std::uint64_t>(index) * map.strides[i - 1];
    }
    const std::int64_t first = std::max<std::int64_t>(origin[0], 0);
    const std::int64_t behind =
        std::min<std::int64_t>(std::int64_t(origin[0]) + map.box[0], std::int64_t(map.last[0]) + 1);
    if (first >= behind) return {};
    const std::int64_t bytes = map.element_bytes;
    return {reinterpret_cast<char*>(address) + first * bytes, static_cast<std::uint32_t>((first - origin[0]) * bytes),
            static_cast<std::uint32_t>((behind - origin[0]) * bytes)};
}

/// Calls visit(place in the tile, place in the row, bytes) for the pieces of a row that lie together in shared memory.
template <class Visit>
void for_each_chunk(const TensorMap& map, std::uint32_t row, std::uint32_t begin, std::uint32_t end, Visit visit) {
    while (begin < end) {
        const std::uint32_t chunk = begin / chunk_bytes, next = std::min(end, (chunk + 1) * chunk_bytes);
        visit(map.place(row, chunk) + begin % chunk_bytes, begin, next - begin);
        begin = next;
    }
}

void load_rows(const TensorMap& map, const Coordinates& origin, char* tile, std::uint32_t first, std::uint32_t behind,
               const Operand& operand) {
    std::array<char, 256 * 8> values;  // the largest box has 256 elements of 8 bytes in a row
    for (std::uint32_t i = first; i < behind; ++i) {
        const BoxRow row = find_row(map, origin, i);
        std::memset(values.data(), 0, map.row_bytes());
        if (row.begin < row.end) {
            check_device_read(row.global, row.end - row.begin, operand);
            std::memcpy(values.data() + row.begin, row.global, row.end - row.begin);
        }
        for_each_chunk(map, i, 0, map.row_bytes(), [&](std::uint32_t place, std::uint32_t from, std::uint32_t n) {
            std::memcpy(tile + place, values.data() + from, n);
            note_async_write(tile + place, n, operand);
        });
    }
}

/// What a store has read of one row.
struct StoredRow {
    char* global;
    std::vector<char> bytes;
};

std::vector<StoredRow> read_tile(const TensorMap& map, const Coordinates& origin, const char* tile,
                                 const Operand& operand) {
    std::vector<StoredRow> rows;
    for (std::uint32_t i = 0; i < map.rows(); ++i) {
        const BoxRow row = find_row(map, origin, i);
        if (row.begin >= row.end) continue;
        std::vector<char> bytes(row.end - row.begin);
        for_each_chunk(map, i, row.begin, row.end, [&](std::uint32_t place, std::uint32_t from, std::uint32_t n) {
            check_async_read(tile + place, n, operand);
            std::memcpy(bytes.data() + (from - row.begin), tile + place, n);
        });
        rows.push_back({row.global, std::move(bytes)});
    }
    return rows;
}

void write(const StoredRow& row, Reduction reduction, const Operand& operand) {
    const bool atomic = reduction == Reduction::add && !settings().ordered_adds;
    check_device_write(row.global, row.bytes.size(), atomic, operand);
    if (reduction == Reduction::none) {
        std::memcpy(row.global, row.bytes.data(), row.bytes.size());
        return;
    }
    for (std::size_t i = 0; i < row.bytes.size(); i += sizeof(float)) {
        float sum, more;
        std::memcpy(&sum, row.global + i, sizeof sum);
        std::memcpy(&more, row.bytes.data() + i, sizeof more);
        sum += more;
        std::memcpy(row.global + i, &sum, sizeof sum);
    }
}

/// Joins the thread's open group of bulk stores: `read` happens at one moment, what it returns is written at another.
void add_store(const Operand& operand, Reduction reduction, std::function<std::vector<StoredRow>()> read) {
    Thread& thread = *current;
    const std::uint64_t number = thread.bulk_stores.open();
    CopyGroup& group = thread.bulk_stores[number];
    ++group.unread;
    ++group.unwritten;
    AsyncQueue& queue = thread.block->async;
    const Note noted = recording ? note(Doing::store, operand.where) : not_noted;
    Actor reader, writer;
    if (watching) {
        reader = asynchronous(thread, thread.order.store_reads, number + 1);
        writer = asynchronous(thread, thread.order.store_writes, number + 1);
    }
    queue.add({operand.instruction, current, operand.where, true, [=, &thread, &queue, read = std::move(read)] {
                   const ActingAs acting(reader);
                   const std::vector<StoredRow> rows = read();
                   const Access kind = reduction == Reduction::none ? Access::tma_store : Access::tma_reduce;
                   for (const StoredRow& row : rows)
                       if (counting) trace_copy(kind, row.global, row.bytes.size(), operand.where);
                   --thread.bulk_stores[number].unread;
                   look_again(thread, thread.bulk_stores);
                   queue.go_on({operand.instruction, &thread, operand.where, false, [=, &thread] {
                                    const ActingAs acting(writer);
                                    for (const StoredRow& row : rows) write(row, reduction, operand);
                                    if (recording) note_happened(noted);
                                    --thread.bulk_stores[number].unwritten;
                                    look_again(thread, thread.bulk_stores);
                                }});
               }});
}

enum class Direction { load, store };

/// Of a tile: its map and its places in shared memory and in the tensor, checked. What is refused of coordinates was
/// found on an H100, which answers with an illegal instruction.
TensorMap check_tile(const CUtensorMap* map, const void* tile, const int* coordinates, int rank, Direction direction,
                     const Operand& operand) {
    const TensorMap decoded = decode(*map, operand);
    if (decoded.rank != rank)
        fail(cudaErrorIllegalInstruction, operand.where, [&] {
            return fmt::format("wrong rank: {} with {} coordinates, for a tensor map of rank {}", operand.instruction,
                               rank, decoded.rank);
        });
    find_shared(tile, decoded.shared_bytes(), 1, operand);
    if (shared_address(tile) % decoded.alignment() != 0)
        fail(cudaErrorMisalignedAddress, operand.where, [&] {
            return fmt::format(
                "misaligned: {} of a tile at shared address {:#x}: no multiple of {}, where the pattern of its "
                "swizzle begins",
                operand.instruction, shared_address(tile), decoded.alignment());
        });
    if (direction == Direction::load && !DeviceMemory::instance().valid(reinterpret_cast<const void*>(decoded.address), 1))
        fail(cudaErrorIllegalAddress, operand.where, [&] {
            return fmt::format("out of bounds: {} by a tensor map that begins at {:#x}, where there is no memory: a GPU looks "
                               "there, whatever the box",
                               operand.instruction, decoded.address);
        });
    const bool negative = direction == Direction::store && *std::min_element(coordinates, coordinates + rank) < 0;
    if (negative || coordinates[0] * decoded.element_bytes % static_cast<int>(chunk_bytes) != 0)
        fail(cudaErrorIllegalInstruction, operand.where, [&] {
            return fmt::format(
                "wrong coordinates: {} at ({}): {}", operand.instruction,
                fmt::join(coordinates, coordinates + rank, ", "),
                negative ? "a store may not begin before the tensor" : "the first one is no multiple of 16 bytes");
        });
    return decoded;
}

Coordinates copy_coordinates(const int* coordinates, int rank) {
    Coordinates copy{};
    std::copy_n(coordinates, rank, copy.begin());
    return copy;
}

/// A run of bytes: size and places, checked.
void check_run(const void* shared, const void* global, unsigned bytes, const Operand& operand) {
    if (bytes % chunk_bytes != 0)
        fail(cudaErrorMisalignedAddress, operand.where, [&] {
            return fmt::format("misaligned: {} of {} bytes, which is no multiple of 16", operand.instruction, bytes);
        });
    find_shared(shared, bytes, chunk_bytes, operand);
    check_device_access(global, bytes, chunk_bytes, operand);
}

/// The work of a load, whatever number of blocks it is for.
void trace_load(const TensorMap& map, const Coordinates& origin, const Operand& operand) {
    for (std::uint32_t i = 0; i < map.rows(); ++i) {
        const BoxRow row = find_row(map, origin, i);
        trace_copy(Access::tma_load, row.global, row.end - row.begin, operand.where);
    }
}

/// Calls add(first, behind) for some parts that make up n.
template <class Add>
void in_parts(std::uint32_t n, Add add) {
    const auto parts = static_cast<std::uint32_t>(1 + draw(std::min<std::size_t>(n, most_parts)));
    for (std::uint32_t part = 0; part < parts; ++part) add(n * part / parts, n * (part + 1) / parts);
}

/// A load whose tile and barrier are those of `block`, in whose time it happens.
void add_load(Block& block, const TensorMap& map, const Coordinates& origin, void* tile, std::uint64_t* barrier,
              const Operand& operand) {
    const Clock clock = watching ? release(*current).clock() : Clock();
    const Note noted = recording ? note_access(Doing::copy, find_row(map, origin, 0).global, operand.where) : not_noted;
    in_parts(map.rows(), [&](std::uint32_t first, std::uint32_t behind) {
        if (counting) trace_departure(block, (behind - first) * map.row_bytes());
        block.async.add({operand.instruction, &block.threads[current->rank], operand.where, true, [=, &block] {
                             if (counting) trace_arrival(block, (behind - first) * map.row_bytes());
                             if (recording) note_happened(noted);
                             const Actor load = load_actor(barrier, clock);
                             const ActingAs acting(load);
                             load_rows(map, origin, static_cast<char*>(tile), first, behind, operand);
                             complete_transaction(barrier, (behind - first) * map.row_bytes(), operand);
                         }});
    });
}

}  // namespace

void tma_load(void* tile, const CUtensorMap* map, std::uint64_t* barrier, const int* coordinates, int rank,
              const Where& where) {
    const Operand operand{"tma_load", with_calls(where)};
    const TensorMap decoded = check_tile(map, tile, coordinates, rank, Direction::load, operand);
    check_async_barrier(barrier, *current->block, operand);
    const Coordinates origin = copy_coordinates(coordinates, rank);
    if (counting) trace_load(decoded, origin, operand);
    add_load(*current->block, decoded, origin, tile, barrier, operand);
    perturb();
}

void tma_load_multicast(void* tile, const CUtensorMap* map, std::uint64_t* barrier, const int* coordinates, int rank,
                        unsigned blocks, const Where& where) {
    const Operand operand{"tma_load_multicast", with_calls(where)};
    const TensorMap decoded = check_tile(map, tile, coordinates, rank, Direction::load, operand);
    const Coordinates origin = copy_coordinates(coordinates, rank);
    if (counting) trace_load(decoded, origin, operand);
    for (unsigned i = 0; blocks >> i != 0; ++i) {
        if (!(blocks >> i & 1)) continue;
        Block& block = other_block(i, operand.instruction, operand.where);
        auto* signal = static_cast<std::uint64_t*>(corresponding(barrier, block, operand.where));
        check_async_barrier(signal, block, operand);
        add_load(block, decoded, origin, corresponding(tile, block, operand.where), signal, operand);
    }
    perturb();
}

void tma_store(const CUtensorMap* map, const void* tile, const int* coordinates, int rank, Reduction reduction,
               const Where& where) {
    const Operand operand{reduction == Reduction::none ? "tma_store" : "tma_reduce_add", with_calls(where)};
    const TensorMap decoded = check_tile(map, tile, coordinates, rank, Direction::store, operand);
    if (reduction == Reduction::add && decoded.element_bytes != sizeof(float))
        fail(cudaErrorIllegalInstruction, where, [&] {
            return fmt::format("wrong type: tma_reduce_add adds floats, and the map has elements of {} bytes",
                               decoded.element_bytes);
        });
    const Coordinates origin = copy_coordinates(coordinates, rank);
    add_store(operand, reduction, [=] { return read_tile(decoded, origin, static_cast<const char*>(tile), operand); });
    perturb();
}

void bulk_load(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, const Where& where) {
    const Operand operand{"bulk_load", with_calls(where)};
    check_run(shared, global, bytes, operand);
    if (bytes == 0) return;  // nothing to copy, nothing to signal
    check_async_barrier(barrier, *current->block, operand);
    if (counting) trace_copy(Access::tma_load, global, bytes, where);
    Block& block = *current->block;
    const Clock clock = watching ? release(*current).clock() : Clock();
    const Note noted = recording ? note_access(Doing::copy, global, where) : not_noted;
    in_parts(bytes / chunk_bytes, [&](std::uint32_t first, std::uint32_t behind) {
        char* to = static_cast<char*>(shared) + first * chunk_bytes;
        const char* from = static_cast<const char*>(global) + first * chunk_bytes;
        const std::uint32_t n = (behind - first) * chunk_bytes;
        if (counting) trace_departure(block, n);
        block.async.add({operand.instruction, current, operand.where, true, [=, &block] {
                             if (counting) trace_arrival(block, n);
                             if (recording) note_happened(noted);
                             const Actor load = load_actor(barrier, clock);
                             const ActingAs acting(load);
                             check_device_read(from, n, operand);
                             std::memcpy(to, from, n);
                             note_async_write(to, n, operand);
                             complete_transaction(barrier, n, operand);
                         }});
    });
    perturb();
}

void bulk_store(void* global, const void* shared, unsigned bytes, Reduction reduction, const Where& where) {
    const Operand operand{reduction == Reduction::none ? "bulk_store" : "bulk_reduce_add", with_calls(where)};
    check_run(shared, global, bytes, operand);
    if (bytes == 0) return;
    add_store(operand, reduction, [=]() -> std::vector<StoredRow> {
        check_async_read(shared, bytes, operand);
        const char* from = static_cast<const char*>(shared);
        return {{static_cast<char*>(global), {from, from + bytes}}};
    });
    perturb();
}

void bulk_commit(const Where&) { current->bulk_stores.commit(); }

void bulk_wait(int pending, bool only_read, const Where& where) {
    const NotedWait noted(Doing::wait, where);
    wait_for_groups(current->bulk_stores, static_cast<std::uint64_t>(pending), only_read,
                    only_read ? "bulk_wait_read" : "bulk_wait", where);
    if (!watching) return;
    const std::uint64_t read = current->bulk_stores.before(static_cast<std::uint64_t>(pending));
    acquire_slot(*current, current->order.store_reads, read);
    if (!only_read) acquire_slot(*current, current->order.store_writes, read);
}

void prefetch_tensor_map(const CUtensorMap* map, const Where& where) { decode(*map, {"prefetch_tensor_map", where}); }

}  // namespace emulator
