// Streams: work is done in the order of the calls, but what orders it on a GPU is known: its stream, events, the default
// stream and what the host has waited for. Two pieces of work that none of that orders, of which one writes what the other
// reads or writes, are an error, whatever they have found in memory here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime_api.h"

namespace emulator {

struct Kernel;

/// Of each stream, by number, how many of its pieces of work are known to be done.
using StreamClock = std::map<unsigned, std::uint64_t>;

/// True while a kernel runs beside which other streams may do something. follow() may be called only then.
extern bool following;
/// An access to device memory by the kernel. `strong`: atomic or volatile.
void follow(std::uintptr_t address, std::size_t n, bool writes, bool strong);

/// Which bytes of memory a piece of work has read and written.
class Footprint {
public:
    void add(std::uintptr_t address, std::size_t n, bool writes, bool strong);
    /// All bytes of a copy, as a range.
    void add_range(std::uintptr_t address, std::size_t n, bool writes) { ranges_.push_back({address, address + n, writes}); }

    struct Conflict {
        std::uintptr_t address = 0;  // 0: there is none
        bool writes = false, other_writes = false;
    };
    Conflict conflict_with(const Footprint& other) const;

private:
    static constexpr std::size_t page_bytes = 4096, words = page_bytes / 64;
    using Bits = std::array<std::uint64_t, words>;  // a bit a byte
    struct Page {
        Bits read, written, strongly_read, strongly_written;
    };
    struct Range {
        std::uintptr_t begin, end;
        bool writes;
    };
    static Conflict conflict(std::uintptr_t address, const Page& page, const Page& other);
    static Page page_of(std::uintptr_t page, const Range& range);
    static void set(Bits& bits, std::size_t from, std::size_t to);

    std::unordered_map<std::uintptr_t, Page> pages_;
    std::uintptr_t last_page_ = 0;
    Page* last_ = nullptr;
    std::vector<Range> ranges_;
};

/// What a stream is given, in words: "cudaMemcpyAsync", and where it was called; of a kernel, its address.
struct WorkName {
    const char* call = nullptr;
    const void* kernel = nullptr;
    const char* kernel_name = nullptr;  // where it has no address
    std::source_location where;
};

/// Work of a stream: from here until end(), which says whether it races with what came before.
class StreamWorkScope {
public:
    StreamWorkScope(cudaStream_t stream, const WorkName& name);
    ~StreamWorkScope() { following = false; }
    StreamWorkScope(const StreamWorkScope&) = delete;

    /// Of copies. What is not device memory does not count.
    void reads(const void* from, std::size_t bytes);
    void writes(const void* to, std::size_t bytes);
    void is_kernel();
    /// cudaSuccess, or an error whose report is set.
    cudaError_t end();
};

// What the runtime's functions of these names mean for the order.
void stream_waits(cudaStream_t stream, const StreamClock& event);
StreamClock recorded(cudaStream_t stream);
void host_waits_for(cudaStream_t stream);
void host_waits_for(const StreamClock& event);
/// For all streams.
void host_waits();
cudaStream_t new_stream(bool non_blocking);
void destroy(cudaStream_t stream);
/// As if nothing had happened; streams stay.
void forget_streams();

}  // namespace emulator
