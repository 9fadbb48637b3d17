#include "streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>

#include "emulator.h"
#include "memory.h"
#include "report.h"
#include "runtime_state.h"

struct CUstream_st {
    unsigned number = 0;  // 0: the default stream
    std::string name = "the default stream";  // in reports
    bool non_blocking = false;
    std::uint64_t given = 0;     // pieces of work
    emulator::StreamClock done;  // what is, before the next piece begins
};

namespace emulator {

bool following = false;

namespace {

/// What a stream was given.
struct Work {
    WorkName name;
    unsigned stream;
    std::string stream_name;
    std::uint64_t time;  // the how-many-eth of the stream
    std::vector<const void*> calls;
    Footprint footprint;
};

CUstream_st default_stream;
std::set<CUstream_st*> live;  // those that were made
unsigned streams_so_far = 0;
StreamClock host;                        // what the host has waited for
std::uint64_t host_waits_so_far = 0;     // for all streams
std::deque<std::unique_ptr<Work>> works;  // that the host has not waited for
std::unique_ptr<Work> now;
StreamClock done_before_now;
StreamLog* log_of_streams = nullptr;

CUstream_st& get(cudaStream_t stream) { return stream ? *stream : default_stream; }

void join(StreamClock& clock, const StreamClock& other) {
    for (const auto& [stream, time] : other) {
        std::uint64_t& known = clock[stream];
        known = std::max(known, time);
    }
}
bool knows(const StreamClock& clock, unsigned stream, std::uint64_t time) {
    const auto found = clock.find(stream);
    return found != clock.end() && found->second >= time;
}

/// What is done before a stream does what it is given now. The default stream waits for all others, and they for it.
StreamClock& act(CUstream_st& stream) {
    join(stream.done, host);
    if (&stream == &default_stream) {
        for (const CUstream_st* other : live)
            if (!other->non_blocking) join(stream.done, other->done);
    } else if (!stream.non_blocking) {
        join(stream.done, default_stream.done);
    }
    return stream.done;
}

/// Whether something may go on beside something else.
bool are_concurrent() {
    return live.size() >= 2 || !works.empty() ||
           std::any_of(live.begin(), live.end(), [](const CUstream_st* s) { return s->non_blocking; });
}

void forget_what_the_host_knows() {
    std::erase_if(works, [](const auto& work) { return knows(host, work->stream, work->time); });
}

std::string words_of(const Work& work, bool writes) {
    const std::string name = work.name.call          ? work.name.call
                             : work.name.kernel      ? "kernel " + function_name(work.name.kernel)
                             : work.name.kernel_name ? fmt::format("kernel {}", work.name.kernel_name)
                                                     : "a kernel";
    return fmt::format("{} by {} of {}", writes ? "write" : "read", name, work.stream_name);
}
/// Where it was called, innermost first: the kernel's own file, and what has called that.
std::vector<std::string> lines_of(const Work& work) {
    std::vector<std::string> lines;
    if (work.name.call) lines.push_back(to_string(work.name.where));
    for (const std::string& line : lines_of_calls(work.calls)) {
        if (line.starts_with("common/") || line.starts_with("tests/main")) continue;
        if (lines.empty() || lines.back() != line) lines.push_back(line);
    }
    constexpr std::size_t most = 8;
    if (lines.size() > most) lines.resize(most);
    return lines;
}

std::string report_of(const Work& earlier, const Work& later, const Footprint::Conflict& conflict) {
    const std::vector<std::string> first = lines_of(earlier), second = lines_of(later);
    const auto at = [](const std::vector<std::string>& lines) { return lines.empty() ? "" : " at " + lines[0]; };
    std::string text =
        fmt::format("race: {}{}\n  at         {:#x}: {}\n  not ordered behind {}{}", words_of(later, conflict.writes),
                    at(second), conflict.address, DeviceMemory::instance().describe(conflict.address),
                    words_of(earlier, conflict.other_writes), at(first));
    for (std::size_t i = 1; i < first.size(); ++i) text += "\n    called at  " + first[i];
    text += "\n  missing    an event: cudaEventRecord() behind the earlier one, cudaStreamWaitEvent() before this one";
    if (!second.empty()) text += "\n  source     " + second[0];
    for (std::size_t i = 1; i < second.size(); ++i) text += "\n  called at  " + second[i];
    return text;
}

}  // namespace

// ---- what work touches

void Footprint::set(Bits& bits, std::size_t from, std::size_t to) {
    while (from < to) {
        const std::size_t n = std::min(to - from, 64 - from % 64);
        bits[from / 64] |= (n == 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << n) - 1) << from % 64;
        from += n;
    }
}

void Footprint::add(std::uintptr_t address, std::size_t n, bool writes, bool strong) {
    while (n > 0) {
        const std::uintptr_t page = address / page_bytes;
        if (!last_ || page != last_page_) last_ = &pages_.try_emplace(page, Page{}).first->second, last_page_ = page;
        const std::size_t offset = address % page_bytes, here = std::min(n, page_bytes - offset);
        set(writes ? strong ? last_->strongly_written : last_->written
                   : strong ? last_->strongly_read : last_->read,
            offset, offset + here);
        address += here, n -= here;
    }
}

Footprint::Page Footprint::page_of(std::uintptr_t page, const Range& range) {
    Page result{};
    const std::uintptr_t begin = page * page_bytes, end = begin + page_bytes;
    if (range.begin < end && range.end > begin)
        set(range.writes ? result.written : result.read, std::max(range.begin, begin) - begin,
            std::min(range.end, end) - begin);
    return result;
}

Footprint::Conflict Footprint::conflict(std::uintptr_t address, const Page& page, const Page& other) {
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t others = other.read[i] | other.written[i] | other.strongly_read[i] | other.strongly_written[i];
        const std::uint64_t all = page.read[i] | page.written[i] | page.strongly_read[i] | page.strongly_written[i];
        const std::uint64_t bits = (page.written[i] & others) | (other.written[i] & all) |
                                   (page.strongly_written[i] & other.read[i]) | (page.read[i] & other.strongly_written[i]);
        if (bits == 0) continue;
        const std::uint64_t bit = bits & -bits;
        return {address * page_bytes + 64 * i + static_cast<std::uintptr_t>(__builtin_ctzll(bits)),
                ((page.written[i] | page.strongly_written[i]) & bit) != 0,
                ((other.written[i] | other.strongly_written[i]) & bit) != 0};
    }
    return {};
}

Footprint::Conflict Footprint::conflict_with(const Footprint& other) const {
    const bool swap = other.pages_.size() < pages_.size();
    const auto &fewer = swap ? other.pages_ : pages_, &more = swap ? pages_ : other.pages_;
    Conflict first;
    const auto take = [&](Conflict found, bool swapped) {
        if (found.address == 0 || (first.address != 0 && found.address >= first.address)) return;
        if (swapped) std::swap(found.writes, found.other_writes);
        first = found;
    };
    for (const auto& [page, bits] : fewer)
        if (const auto found = more.find(page); found != more.end()) take(conflict(page, bits, found->second), swap);
    for (const auto& [page, bits] : pages_)
        for (const Range& range : other.ranges_)
            if (range.end > page * page_bytes && range.begin < (page + 1) * page_bytes)
                take(conflict(page, bits, page_of(page, range)), false);
    for (const auto& [page, bits] : other.pages_)
        for (const Range& range : ranges_)
            if (range.end > page * page_bytes && range.begin < (page + 1) * page_bytes)
                take(conflict(page, page_of(page, range), bits), false);
    for (const Range& range : ranges_)
        for (const Range& others : other.ranges_)
            if ((range.writes || others.writes) && range.begin < others.end && others.begin < range.end)
                take({std::max(range.begin, others.begin), range.writes, others.writes}, false);
    return first;
}

void follow(std::uintptr_t address, std::size_t n, bool writes, bool strong) {
    now->footprint.add(address, n, writes, strong);
}

// ---- work

StreamWorkScope::StreamWorkScope(cudaStream_t handle, const WorkName& name) {
    CUstream_st& stream = get(handle);
    done_before_now = act(stream);
    now = std::make_unique<Work>(Work{name, stream.number, stream.name, ++stream.given, {}, {}});
    stream.done[stream.number] = stream.given;
    if (are_concurrent()) now->calls = call_stack();
    if (log_of_streams)
        log_of_streams->works.push_back({name.call ? name.call : name.kernel ? function_name(name.kernel) : "",
                                         !name.call, stream.number, nullptr, nullptr, 0, stream.given,
                                         host_waits_so_far, {done_before_now.begin(), done_before_now.end()}});
}
void StreamWorkScope::is_kernel() { following = are_concurrent(); }

void StreamWorkScope::reads(const void* from, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    if (log_of_streams) log_of_streams->works.back().from = from, log_of_streams->works.back().bytes = bytes;
    if (DeviceMemory::instance().find(address)) now->footprint.add_range(address, bytes, false);
}
void StreamWorkScope::writes(const void* to, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(to);
    if (log_of_streams) log_of_streams->works.back().to = to, log_of_streams->works.back().bytes = bytes;
    if (DeviceMemory::instance().find(address)) now->footprint.add_range(address, bytes, true);
}

cudaError_t StreamWorkScope::end() {
    following = false;
    if (!are_concurrent()) return cudaSuccess;
    forget_what_the_host_knows();
    works.push_back(std::move(now));
    const Work& later = *works.back();
    for (const auto& earlier : works) {
        if (earlier->stream == later.stream || knows(done_before_now, earlier->stream, earlier->time)) continue;
        const Footprint::Conflict conflict = later.footprint.conflict_with(earlier->footprint);
        if (conflict.address == 0) continue;
        set_report(report_of(*earlier, later, conflict));
        works.pop_back();  // once is enough
        if (settings().failed) settings().failed(last_report());
        return kernel_error = reported = set_error(cudaErrorLaunchFailure);
    }
    return cudaSuccess;
}

// ---- order

void stream_waits(cudaStream_t stream, const StreamClock& event) { join(act(get(stream)), event); }
StreamClock recorded(cudaStream_t stream) { return act(get(stream)); }
void host_waits_for(cudaStream_t stream) { host_waits_for(act(get(stream))); }
void host_waits_for(const StreamClock& event) {
    join(host, event);
    if (log_of_streams) ++log_of_streams->host_waits;
    forget_what_the_host_knows();
}
void host_waits() {
    if (log_of_streams) ++log_of_streams->host_waits;
    forget_streams();
}
void forget_streams() {
    // Work has ever larger numbers, so what is known of what is over need not be kept.
    ++host_waits_so_far;
    works.clear();
    host.clear();
    default_stream.done.clear();
    for (CUstream_st* stream : live) stream->done.clear();
}

cudaStream_t new_stream(bool non_blocking) {
    const unsigned number = ++streams_so_far;
    const auto stream = new CUstream_st{number, fmt::format("stream {}", number), non_blocking, 0, {}};
    live.insert(stream);
    return stream;
}
void destroy(cudaStream_t stream) {
    if (live.erase(stream) == 0) return;
    if (!stream->non_blocking) join(default_stream.done, stream->done);
    delete stream;
}

void name_stream(cudaStream_t stream, std::string name) {
    if (stream) stream->name = std::move(name);
}

StreamLog log_streams(const std::function<void()>& calls) {
    StreamLog log;
    const struct Logging {
        explicit Logging(StreamLog& log) { log_of_streams = &log; }
        ~Logging() { log_of_streams = nullptr; }
    } logging(log);
    calls();
    return log;
}

bool StreamLog::ordered(std::size_t earlier, std::size_t later) const {
    const StreamWork &a = works[earlier], &b = works[later];
    if (a.stream == b.stream || a.host_waits < b.host_waits) return true;
    const auto known = std::find_if(b.done_before.begin(), b.done_before.end(),
                                    [&](const auto& entry) { return entry.first == a.stream; });
    return known != b.done_before.end() && known->second >= a.time;
}

}  // namespace emulator
