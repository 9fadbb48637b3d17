// Launches: blocks of a grid get multiprocessors, as many at a time as have room.
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "crash.h"
#include "machine.h"
#include "multiprocessor.h"
#include "symbols.h"

// What kernels know as blockDim and gridDim: device_functions.h.
uint3 block_extent asm("emulator_block_extent"), grid_extent asm("emulator_grid_extent");

namespace emulator {

Launch* running = nullptr;

namespace {

std::vector<const Cluster*> resident;

std::uint64_t count(dim3 extent) { return std::uint64_t(extent.x) * extent.y * extent.z; }

/// A flag for each byte of static shared memory: 0 in variables, SharedWindow::gap between them. g++ has a guard for an
/// array of a class that has constructors, though none is called.
std::vector<std::uint8_t> flags_of_variables(std::size_t bytes) {
    const std::vector<Symbol>& variables = Symbols::instance().thread_locals;
    std::vector<std::uint8_t> flags(bytes, variables.empty() ? 0 : SharedWindow::gap);
    for (const Symbol& variable : variables)
        std::fill_n(flags.begin() + static_cast<std::ptrdiff_t>(variable.begin), variable.bytes,
                    std::strncmp(variable.name, "_ZGV", 4) == 0 ? SharedWindow::guard : 0);
    return flags;
}

/// The thread-local variables of this program: `__shared__` means `static thread_local`, and a kernel has no others.
SharedWindow thread_local_memory() {
    SharedWindow window;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            const auto here = reinterpret_cast<std::uintptr_t>(&thread_local_memory);
            bool contains_us = false;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                contains_us |= header.p_type == PT_LOAD && here - info->dlpi_addr - header.p_vaddr < header.p_memsz;
            }
            if (!contains_us) return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type != PT_TLS || !info->dlpi_tls_data) continue;
                auto& window = *static_cast<SharedWindow*>(data);
                window.begin = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
                window.bytes = info->dlpi_phdr[i].p_memsz;
            }
            return 1;
        },
        &window);
    return window;
}

/// A cluster that is resident: as many blocks, each on a multiprocessor of its own.
class ResidentCluster {
public:
    ResidentCluster(Launch& launch, const SharedWindow& static_shared, std::unique_ptr<Workspace>* workspaces)
        : launch_(launch) {
        for (unsigned rank = 0; rank < launch.blocks_per_cluster(); ++rank) {
            members_.push_back(std::make_unique<Multiprocessor>(launch, *workspaces[rank], static_shared));
            cluster_.blocks.push_back(&members_.back()->block());
        }
        resident.push_back(&cluster_);
    }
    ~ResidentCluster() { std::erase(resident, &cluster_); }
    ResidentCluster(const ResidentCluster&) = delete;

    void begin(std::uint64_t i) {
        cluster_.arrived = 0;
        cluster_.phase = 0;
        cluster_.waiting.clear();
        cluster_.team = watching ? first_team() + static_cast<std::uint32_t>(i) : 0;
        cluster_.slots = launch_.threads() * static_cast<unsigned>(members_.size());
        for (unsigned rank = 0; rank < members_.size(); ++rank)
            members_[rank]->begin(block_at(i, rank), cluster_, rank * launch_.threads());
        active_.clear();
        for (const auto& member : members_) active_.push_back(member.get());
    }
    void run_slice() {
        const auto turn = active_.begin() + static_cast<std::ptrdiff_t>(active_.size() == 1 ? 0 : draw(active_.size()));
        (*turn)->run_slice();
        if ((*turn)->finished()) active_.erase(turn);
    }
    bool finished() const { return active_.empty(); }

private:
    Launch& launch_;
    Cluster cluster_;
    std::vector<std::unique_ptr<Multiprocessor>> members_;  // by rank
    std::vector<Multiprocessor*> active_;                   // those that still have work
};

}  // namespace

Settings& settings() {
    static Settings settings = [] {
        Settings from_environment;
        const auto is_set = [](const char* name) {
            const char* value = std::getenv(name);
            return value && std::string_view(value) == "1";
        };
        from_environment.races = is_set("LADDER_RACES");
        from_environment.strict_barriers = is_set("LADDER_STRICT_BARRIERS");
        if (const char* number = std::getenv("LADDER_MULTIPROCESSORS")) {
            from_environment.multiprocessors = std::atoi(number);
            if (from_environment.multiprocessors < 1)
                throw std::invalid_argument("LADDER_MULTIPROCESSORS is '" + std::string(number) + "', not a number from 1 on");
        }
        return from_environment;
    }();
    return settings;
}

void reseed(std::uint64_t seed) {
    settings().seed = seed;
    random_order = Random(seed);
}

uint3 block_at(std::uint64_t n, unsigned rank) {
    const dim3 clusters = running->clusters();
    const uint3 place = unflatten(settings().last_block_first ? count(clusters) - 1 - n : n, clusters);
    const dim3 extent = running->cluster;
    const uint3 inside = unflatten(rank, extent);
    return {place.x * extent.x + inside.x, place.y * extent.y + inside.y, place.z * extent.z + inside.z};
}

Thread* find_thread(std::uint32_t team, std::uint32_t slot) {
    for (const Cluster* cluster : resident) {
        if (cluster->team != team) continue;
        Block& block = *cluster->blocks[slot / running->threads()];
        return &block.threads[slot % running->threads()];
    }
    return nullptr;
}

bool is_private_or_constant(std::uintptr_t address) {
    if (address - current->stack_begin < current->stack_end - current->stack_begin) return true;
    if (address - reinterpret_cast<std::uintptr_t>(running->kernel->parameters) < running->kernel->parameter_bytes)
        return true;
    return dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            const auto address = *static_cast<std::uintptr_t*>(data);
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                if (header.p_type == PT_LOAD && address - info->dlpi_addr - header.p_vaddr < header.p_memsz) return 1;
            }
            return 0;
        },
        &address);
}

bool is_passed_by_host(const Allocation& variable) {
    const char* parameters = static_cast<const char*>(running->kernel->parameters);
    for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= running->kernel->parameter_bytes; i += sizeof(std::uintptr_t)) {
        std::uintptr_t pointer;
        std::memcpy(&pointer, parameters + i, sizeof pointer);
        if (variable.contains(pointer, 1)) return true;
    }
    return false;
}

int run_grid(const Kernel& kernel, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, dim3 cluster) {
    static std::vector<std::unique_ptr<Workspace>> workspaces;
    Launch launch(kernel, grid, block, cluster, dynamic_shared_bytes);
    running = &launch;
    reporting = awaiting_store = false;
    forget_unwritten_reads();
    block_extent = {block.x, block.y, block.z};
    grid_extent = {grid.x, grid.y, grid.z};
    const SharedWindow static_shared = thread_local_memory();
    launch.static_flags = flags_of_variables(static_shared.bytes);
    char* host_variables = reinterpret_cast<char*>(static_shared.begin);  // the host side's until the launch is over
    const std::vector<char> saved(host_variables, host_variables + static_shared.bytes);

    if (counting) begin_launch_trace();
    const std::uint64_t clusters = count(launch.clusters());
    watching = settings().races;
    if (watching) begin_watching(clusters);
    const auto fit = std::max(1u, static_cast<unsigned>(settings().multiprocessors) / launch.blocks_per_cluster());
    const auto resident = static_cast<unsigned>(std::min<std::uint64_t>(fit, clusters));
    while (workspaces.size() < resident * launch.blocks_per_cluster())
        workspaces.push_back(std::make_unique<Workspace>());
    std::vector<std::unique_ptr<ResidentCluster>> active;  // those that still have work
    for (unsigned i = 0; i < resident; ++i) {
        active.push_back(
            std::make_unique<ResidentCluster>(launch, static_shared, &workspaces[i * launch.blocks_per_cluster()]));
        active.back()->begin(launch.next_cluster++);
    }
    std::optional<CrashGuard> guard(std::in_place, settings().longest_launch);
    while (!active.empty() && !launch.code) {
        const auto turn = active.begin() + static_cast<std::ptrdiff_t>(random_order.below(active.size()));
        do (*turn)->run_slice();
        while (awaiting_store && !launch.code);
        if (!(*turn)->finished()) continue;
        if (launch.next_cluster < clusters)
            (*turn)->begin(launch.next_cluster++);
        else
            active.erase(turn);
    }
    guard.reset();
    std::copy(saved.begin(), saved.end(), host_variables);
    running = nullptr;
    if (counting && !launch.code) end_launch_trace(kernel, grid, block, dynamic_shared_bytes);
    if (recording) end_launch_recording(kernel, grid, block);
    return launch.code;
}

}  // namespace emulator
