#include "activity.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "counters.h"
#include "machine.h"
#include "report.h"
#include "trace.h"

namespace emulator {

bool recording = false;
bool all_is_late = false;

namespace {

/// What a lane has done.
struct Entry {
    unsigned warp, lane;
    Doing what;
    Place place;
    std::uint64_t begin, end, happened;
    bool counts;  // false until what takes a while is over
    const void* tensor = nullptr;
    const void* barrier = nullptr;
    std::uint64_t pending = 0;
};

struct Recorder {
    std::uint64_t block = 0, now = 0;
    std::vector<Entry> entries;  // of this launch
    std::vector<LaunchActivity> launches;
};
Recorder recorder;

/// An instruction, as far as its line can be told from others without asking.
using ActivityPlace = std::tuple<unsigned, Doing, const void*, const char*, unsigned>;
ActivityPlace site_of(const Entry& e) { return {e.warp, e.what, e.place.pc, e.place.line.file_name(), e.place.line.line()}; }

bool in_chosen_block(const Thread& thread) {
    const uint3 at = thread.block->index;
    const dim3 extent = gridDim;
    return at.x + std::uint64_t(extent.x) * (at.y + std::uint64_t(extent.y) * at.z) == recorder.block;
}

}  // namespace

Note note(Doing what, const Place& where) { return note_of_lane(current->lane(), what, where); }

Note note_of_lane(unsigned lane, Doing what, const Place& where) {
    if (!in_chosen_block(*current)) return not_noted;
    const std::uint64_t now = ++recorder.now;
    recorder.entries.push_back({current->warp(), lane, what, where, now, now, now, true});
    return recorder.entries.size() - 1;
}

Note note_access(Doing what, const void* tensor, const Place& where) {
    const Note noted = note(what, where);
    if (noted != not_noted) recorder.entries[noted].tensor = tensor;
    return noted;
}

Note note_barrier(Note note, const void* barrier) {
    if (note != not_noted) recorder.entries[note].barrier = barrier;
    return note;
}

Note note_wgmma(std::uint64_t pending, const Place& where) {
    const Note noted = note_of_lane(0, Doing::product, where);
    if (noted != not_noted) recorder.entries[noted].pending = pending;
    return noted;
}

Note note_begin(Doing what, const Place& where) {
    const Note begun = note(what, where);
    if (begun != not_noted) recorder.entries[begun].counts = false;
    return begun;
}

void note_end(Note note) {
    if (note == not_noted) return;
    Entry& entry = recorder.entries[note];
    entry.end = entry.happened = ++recorder.now;
    entry.counts = true;
}

void note_happened(Note note) {
    if (note != not_noted) recorder.entries[note].happened = ++recorder.now;
}

void end_launch_recording(const Kernel& kernel, dim3 grid, dim3 block) {
    LaunchActivity launch{name_of(kernel), grid, block, {}};
    std::map<ActivityPlace, unsigned> speakers;
    for (const Entry& e : recorder.entries) {
        const auto [at, is_new] = speakers.try_emplace(site_of(e), e.lane);
        if (!is_new) at->second = std::min(at->second, e.lane);
    }
    std::erase_if(recorder.entries, [&](const Entry& e) { return speakers.at(site_of(e)) != e.lane; });
    std::map<const void*, std::string> lines;
    for (const Entry& e : recorder.entries)
        if (e.place.pc) lines[e.place.pc];
    std::vector<const void*> pcs;
    for (const auto& [pc, line] : lines) pcs.push_back(pc);
    const std::vector<std::string> names = lines_of(pcs);
    for (std::size_t i = 0; i < pcs.size(); ++i) lines[pcs[i]] = names[i];
    for (const Entry& e : recorder.entries)
        launch.activities.push_back({e.warp, e.what, e.place.pc ? lines[e.place.pc] : to_string(e.place.line), e.begin,
                                     e.end, e.happened, e.counts, e.tensor, e.barrier, e.pending});
    recorder.entries.clear();
    recorder.launches.push_back(std::move(launch));
}

std::vector<LaunchActivity> record_activity(std::uint64_t block, const std::function<void()>& run, bool late) {
    struct Scope {
        bool before = std::exchange(recording, true), late_before = all_is_late;
        ~Scope() { recording = before, all_is_late = late_before; }
    } scope;
    all_is_late = late;
    recorder = {};
    recorder.block = block;
    count_work(run);
    return std::exchange(recorder.launches, {});
}

}  // namespace emulator
