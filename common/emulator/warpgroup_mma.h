// wgmma: the products that a warpgroup has under way.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ptx_functions.h"
#include "races.h"
#include "report.h"
#include "trace.h"

namespace emulator {

struct Block;
struct Thread;

constexpr int warpgroup_warps = 4, warpgroup_rows = 64, product_k = 16, widest_product = 256;
constexpr int warpgroup_threads = 128;

/// The sums that some threads hold in registers, in the tensor core's keeping while products for them are under way. So
/// long the registers themselves hold a NaN that nobody else writes, so that who reads or writes them early is seen.
struct Accumulator {
    int n = 0;
    int products = 0;                                   // not done yet
    std::array<float*, warpgroup_threads> registers{};  // null for a warp that has not brought them yet
    std::vector<float> sums;                            // (warpgroup_rows, n)
};

using Fragment = std::array<std::uint32_t, 4>;

/// One wgmma of a warpgroup.
struct Product {
    ProductShape shape;
    std::uint64_t a = 0, b = 0;  // descriptors
    Place where;
    Accumulator* accumulator = nullptr;
    int warps = 0;  // that have issued it
    std::array<const std::uint32_t*, warpgroup_threads> fragment_registers{};
    std::array<Fragment, warpgroup_threads> fragments;
    // Who reads what lies in shared memory: all warps all of it, as the PTX ISA does not say which reads what.
    Actor reader;
    std::array<Note, warpgroup_warps> noted = {not_noted, not_noted, not_noted, not_noted};
};

/// What a warp has done, in numbers of products.
struct WarpProgress {
    std::uint64_t issued = 0;
    std::uint64_t waited = 0;  // for all up to here
    std::vector<std::uint64_t> groups;  // `issued` at each commit
    bool fenced = false;
    std::uint64_t issued_at_wait = 0;  // at the last one
    int pending_at_wait = 0;           // groups that it has left under way

    /// True of a product that is in no group, though the warp has waited since it was issued.
    bool waited_in_vain(std::uint64_t number) const {
        return number < issued_at_wait && number >= (groups.empty() ? 0 : groups.back());
    }
};

struct Warpgroup {
    std::deque<Product> under_way;  // the oldest first
    std::uint64_t done = 0;
    std::vector<std::unique_ptr<Accumulator>> accumulators;  // those that have products under way
    std::array<WarpProgress, warpgroup_warps> warps;
    std::vector<Thread*> waiting;
    std::uint32_t slot = 0;  // of its products; 0 if there were none
};

/// Registers of a thread that the tensor core has, from the issue of a product to the wait for it.
struct LentRegisters {
    std::uintptr_t begin;
    std::size_t bytes;
    bool is_A;              // which the thread may still read
    std::uint64_t product;  // the last one that uses them
    Place where;            // that was issued
};
/// The current thread accesses memory that is its own: while races are looked for, an error if that was lent.
void check_lent(std::uintptr_t address, std::size_t n, bool writes, const Place& where);

/// Does what the product says to its accumulator; reads shared memory of the current block.
void multiply(const Product& product);
/// True from the issue of a product, by the thread's warp, to the wait for it, whenever it is done in between.
bool has_products_under_way(const Thread& thread);
/// Before a thread returns: it is an error if one of its products is under way.
void check_products_done(const Thread& thread);

}  // namespace emulator
