#include "memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "emulator.h"
#include "machine.h"
#include "report.h"
#include "symbols.h"

namespace emulator {
namespace {

constexpr std::size_t alignment = 256;  // what cudaMalloc promises, and no more

std::size_t granules(std::size_t bytes) { return (bytes + alignment) / DeviceMemory::granule + 1; }

}  // namespace

DeviceMemory& DeviceMemory::instance() {
    static DeviceMemory memory;
    return memory;
}

DeviceMemory::DeviceMemory() : owner_(reserved / granule, nullptr) {
    void* range = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    base_ = reinterpret_cast<std::uintptr_t>(range);
}

void* DeviceMemory::allocate(std::size_t bytes, std::source_location where) {
    const std::size_t limit = settings().memory_bytes;
    if (bytes > limit || in_use_ > limit - bytes) return nullptr;
    const std::size_t needed = granules(bytes) + 1;  // and an empty one behind it
    // Behind the cursor first, so that freed addresses stay unused for as long as possible.
    auto first = first_fit(cursor_, needed);
    if (!first) first = first_fit(0, needed);
    if (!first) return nullptr;
    cursor_ = *first + needed;

    const std::uintptr_t start = base_ + *first * granule;
    void* pages = reinterpret_cast<void*>(start);
    if (mprotect(pages, granules(bytes) * granule, PROT_READ | PROT_WRITE) != 0) return nullptr;
    const int number = static_cast<int>(allocations_.size()) + 1;
    Allocation& allocation = allocations_.emplace_back(start + alignment, bytes, number, true, where);
    std::fill_n(owner_.begin() + *first, needed, &allocation);
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return std::memset(reinterpret_cast<void*>(allocation.begin), poison, bytes);
}

std::optional<std::size_t> DeviceMemory::first_fit(std::size_t from, std::size_t needed) const {
    std::size_t run = 0;
    for (std::size_t g = from; g < owner_.size(); ++g) {
        run = owner_[g] && owner_[g]->live ? 0 : run + 1;
        if (run == needed) return g + 1 - needed;
    }
    return std::nullopt;
}

void DeviceMemory::release(Allocation& allocation) {
    allocation.live = false;
    allocation.shadow.clear();
    void* start = reinterpret_cast<void*>(allocation.begin - alignment);
    mmap(start, granules(allocation.bytes) * granule, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool DeviceMemory::free(void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    Allocation* allocation = covers(address) ? owner_[(address - base_) / granule] : nullptr;
    if (!allocation || !allocation->live || allocation->begin != address) return false;
    in_use_ -= allocation->bytes;
    release(*allocation);
    return true;
}

void DeviceMemory::free_all() {
    for (Allocation& allocation : allocations_)
        if (allocation.live) free(reinterpret_cast<void*>(allocation.begin));
}

Allocation* DeviceMemory::find_variable(std::uintptr_t address) const {
    const Symbol* symbol = find_symbol(Symbols::instance().variables, address);
    if (!symbol) return nullptr;
    const Reporting reporting;
    const auto [found, is_new] =
        variables_.try_emplace(symbol->begin, symbol->begin, symbol->bytes, 0, true, std::source_location());
    if (is_new) {
        found->second.name = name_of(*symbol);
        found->second.constant = symbol->section.starts_with("emulator_constant");
        found->second.has_address = symbol->section == "emulator_managed";
    }
    return &found->second;
}

bool DeviceMemory::valid(const void* pointer, std::size_t n) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const Allocation* allocation = find(address);
    return allocation && allocation->live && allocation->contains(address, n);
}

void DeviceMemory::mark(std::uintptr_t address, std::size_t n, std::uint8_t mark) {
    Allocation& allocation = *find(address);
    if (allocation.marks.empty()) allocation.marks.resize(allocation.bytes);
    std::uint8_t* marks = allocation.marks.data() + (address - allocation.begin);
    for (std::size_t i = 0; i < n; ++i) marks[i] |= mark;
}

std::size_t DeviceMemory::marked_bytes(std::uint8_t mark) const {
    std::size_t n = 0;
    const auto add = [&](const Allocation& allocation) {
        n += static_cast<std::size_t>(
            std::count_if(allocation.marks.begin(), allocation.marks.end(), [mark](auto m) { return m & mark; }));
    };
    std::for_each(allocations_.begin(), allocations_.end(), add);
    for (const auto& [begin, variable] : variables_) add(variable);
    return n;
}

void DeviceMemory::forget_marks() {
    for (Allocation& allocation : allocations_) allocation.marks = {};
    for (auto& [begin, variable] : variables_) variable.marks = {};
}

const Allocation* DeviceMemory::nearest(std::uintptr_t address) const {
    const Allocation* before = find(address);
    if (!before || !covers(address) || address < before->begin + before->bytes) return before;
    const std::size_t next = (before->begin - base_) / granule + granules(before->bytes) + 1;  // begins behind an empty one
    const Allocation* after = next < owner_.size() ? owner_[next] : nullptr;
    const bool nearer = after && after->live && after->begin - address < address - (before->begin + before->bytes);
    return nearer ? after : before;
}

std::string DeviceMemory::describe(std::uintptr_t address) const {
    const Allocation* allocation = nearest(address);
    if (!allocation) return "no device allocation is near";
    const auto offset = static_cast<std::ptrdiff_t>(address - allocation->begin);
    if (!allocation->name.empty())
        return fmt::format("byte {} of {}{}, which has {} bytes{}", offset, allocation->is_variable() ? "the variable " : "",
                           allocation->name, allocation->bytes, allocation->live ? "" : " and was freed");
    return fmt::format("byte {} of allocation {}, which has {} bytes{} (allocated at {})", offset, allocation->number,
                       allocation->bytes, allocation->live ? "" : " and was freed", to_string(allocation->where));
}

void name_allocation(const void* allocation, std::string name) {
    DeviceMemory::instance().find(reinterpret_cast<std::uintptr_t>(allocation))->name = std::move(name);
}

std::string describe_shared(const SharedWindow& window, std::uintptr_t address) {
    const auto offset = static_cast<std::ptrdiff_t>(address - window.begin);
    if (&window == &current->block->dynamic_shared)
        return fmt::format("byte {} of the block's {} bytes of dynamic shared memory", offset, window.bytes);
    const Symbol* variable = find_symbol_before(Symbols::instance().thread_locals, address - window.begin);
    if (!variable) return fmt::format("byte {} of static shared memory", offset);
    return fmt::format("byte {} of {}, {} bytes of static shared memory", address - window.begin - variable->begin,
                       name_of(*variable), variable->bytes);
}

}  // namespace emulator
