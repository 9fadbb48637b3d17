// The virtual GPU's memories: which addresses a thread may touch, and what was ever written there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "races.h"

namespace emulator {

constexpr int poison = 0xFF;  // in each byte that was never written: NaN as float, -1 as int

/// One cudaMalloc, or one `__device__` or `__constant__` variable.
struct Allocation {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    int number = 0;  // the how-many-eth of this process, to name it in reports, from 1; 0 of a variable
    bool live = false;
    std::source_location where;
    std::string name;       // of a variable, or as name_allocation() calls it
    bool constant = false;  // a `__constant__` one
    bool has_address = false;  // the host may pass it on: a `__managed__` one, or cudaGetSymbolAddress() has given it
    std::vector<std::uint8_t> marks;  // by byte, while work is counted: DeviceMemory::read_mark, written_mark
    Shadow shadow;

    Allocation(std::uintptr_t begin, std::size_t bytes, int number, bool live, std::source_location where)
        : begin(begin), bytes(bytes), number(number), live(live), where(where) {}
    bool is_variable() const { return number == 0; }
    bool contains(std::uintptr_t address, std::size_t n) const {
        return address >= begin && address + n <= begin + bytes;
    }
};

/// Device memory: one reserved range of addresses. Every allocation starts in a granule of its own and is followed by
/// an empty one, so that an address says at once to which allocation it belongs, and no allocation touches another.
class DeviceMemory {
public:
    static constexpr std::size_t granule = std::size_t(1) << 20;
    static constexpr std::size_t reserved = std::size_t(1) << 37;  // arm64 may have addresses of no more than 39 bits

    static DeviceMemory& instance();

    /// Poisoned with 0xFF (NaN), 256-byte aligned; nullptr where `bytes` exceeds what is left.
    void* allocate(std::size_t bytes, std::source_location where);
    /// False if `pointer` is not the start of a live allocation.
    bool free(void* pointer);
    void free_all();

    bool covers(std::uintptr_t address) const { return address - base_ < reserved; }
    /// The live or freed allocation in whose granules the address lies, or the variable that contains it, or null.
    Allocation* find(std::uintptr_t address) const {
        return covers(address) ? owner_[(address - base_) / granule] : find_variable(address);
    }
    /// A variable of the program that is not only read: what a kernel names itself can be no other than a `__device__` or
    /// a `__constant__` one, for nvcc compiles no kernel that names another. Null if none contains the address.
    Allocation* find_variable(std::uintptr_t address) const;
    /// True if all `n` bytes belong to one live allocation or variable.
    bool valid(const void* pointer, std::size_t n) const;

    std::size_t bytes_in_use() const { return in_use_; }
    /// Most bytes in use at a time since the last restart.
    std::size_t peak_bytes() const { return peak_; }
    void restart_peak() { peak_ = in_use_; }

    static constexpr std::uint8_t read_mark = 1, written_mark = 2;
    /// Notes that bytes of a live allocation were read or written; how many were, since the marks were forgotten.
    void mark(std::uintptr_t address, std::size_t n, std::uint8_t mark);
    std::size_t marked_bytes(std::uint8_t mark) const;
    void forget_marks();
    /// What is near an address that no allocation contains, in words.
    std::string describe(std::uintptr_t address) const;

private:
    DeviceMemory();
    /// The allocation that find() finds, or the next one, if it begins nearer to the address than that one ends: K[-1] lies
    /// in the granules of what was allocated before K.
    const Allocation* nearest(std::uintptr_t address) const;
    std::optional<std::size_t> first_fit(std::size_t from, std::size_t needed) const;
    void release(Allocation& allocation);

    std::uintptr_t base_ = 0;
    std::vector<Allocation*> owner_;  // by granule
    std::size_t cursor_ = 0;          // granules before it were given out already
    std::size_t in_use_ = 0, peak_ = 0;
    std::deque<Allocation> allocations_;  // freed ones too: a late access is told what it hit
    mutable std::map<std::uintptr_t, Allocation> variables_;  // that were accessed, by where they begin
};

/// A range of shared memory of the block that runs now, and which of its bytes were written.
struct SharedWindow {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint8_t* written = nullptr;  // one flag a byte, or `gap`
    static constexpr std::uint8_t gap = 2;    // between two variables
    static constexpr std::uint8_t guard = 3;  // the compiler's own: whether a variable was constructed; poison says yes
    Cell* cells = nullptr;            // while races are looked for

    static constexpr std::size_t granule = 4;  // bytes
    /// A mark a granule: Thread::write_mark of the last thread that stored there; 0 where the async proxy has written.
    std::uint32_t* writers = nullptr;
    [[gnu::always_inline]] void mark(std::size_t offset, std::size_t n, std::uint32_t writer) const {
        for (std::size_t i = offset / granule; i <= (offset + n - 1) / granule; ++i) writers[i] = writer;
    }

    bool covers(std::uintptr_t address) const { return address - begin < bytes; }
};

/// A place in the current block's shared memory in words: "byte 4096 of tile, 4096 bytes of static shared memory".
std::string describe_shared(const SharedWindow& window, std::uintptr_t address);

}  // namespace emulator
