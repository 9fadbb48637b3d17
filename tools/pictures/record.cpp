// Prints what the pictures are drawn from, as JSON; with a file, checks that this is what it holds.
//
//   record_pictures > docs/results/pictures.json
//   record_pictures docs/results/pictures.json
//
// The orders of rungs 07 and 10 are those of the real kernels: the linker leads their calls of the emulator (--wrap)
// through functions of this file, which note what thread 0 does, or one thread of each role, and then go on.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "device_functions.h"
#include "emulator/emulator.h"
#include "emulator/ptx_functions.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "kernels.h"

namespace flashladder {
namespace {

using Json = nlohmann::json;

constexpr int d = 64, B_r = 128, B_c = 64, steps = 4;
constexpr std::ptrdiff_t row_bytes = d * 2, tile_bytes = B_c * row_bytes;

/// What thread 0 of rung 07 does, in its order: which tiles it asks for, commits, waits for; what it computes.
class Recorder {
public:
    Recorder(const attention::ForwardArgs& args, int stages) : args_(args), stages_(stages) {}

    void ask(const char* shared, const void* global) {
        if (!Q_smem_) Q_smem_ = shared;  // the first one of thread 0 is the first of Q_i
        if (within(global, args_.Q, B_r)) return note_tile("Q", -1);
        const bool is_K = within(global, args_.K, B_c * steps);
        const auto row =
            (static_cast<const char*>(global) - static_cast<const char*>(is_K ? args_.K : args_.V)) / row_bytes;
        const std::string name = fmt::format("{}{}", is_K ? "K" : "V", row / B_c);
        const int slot = slot_of(shared);
        in_slot_[slot] = name;
        note_tile(name, slot % stages_);
    }
    void commit() { groups_.push_back({}); }
    void wait(int pending) {
        Json tiles = Json::array();
        for (; waited_ + pending + 1 < int(groups_.size()); ++waited_)
            for (const auto& tile : groups_[std::size_t(waited_)]) tiles.push_back(tile);
        if (!tiles.empty()) note({{"wait", tiles}});
    }
    void load(const void* shared) {
        if (static_cast<const char*>(shared) < Q_smem_ + B_r * row_bytes) return;  // Q_i
        const std::string& tile = in_slot_.at(slot_of(shared));
        step_ = tile[1] - '0';
        note({{tile[0] == 'K' ? "S" : "PV", step_}});
    }
    void exponential() { note({{"softmax", step_}}); }

    const Json& events() const { return events_; }

private:
    bool within(const void* p, const void* tensor, int rows) const {
        const auto* begin = static_cast<const char*>(tensor);
        return p >= begin && p < begin + rows * row_bytes;
    }
    int slot_of(const void* shared) const {
        return int((static_cast<const char*>(shared) - Q_smem_ - B_r * row_bytes) / tile_bytes);
    }
    void note_tile(const std::string& name, int slot) {
        if (groups_.empty()) groups_.push_back({});
        if (!groups_.back().insert(name).second) return;
        Json event = {{"ask", name}};
        if (slot >= 0) event["slot"] = slot;
        note(event);
    }
    void note(const Json& event) {
        if (events_.empty() || events_.back() != event) events_.push_back(event);
    }

    attention::ForwardArgs args_;
    int stages_, waited_ = 0, step_ = 0;
    const char* Q_smem_ = nullptr;
    std::vector<std::set<std::string>> groups_;  // the last one is open
    std::map<int, std::string> in_slot_;         // K's slots, then V's
    Json events_ = Json::array();
};

Recorder* recorder = nullptr;

/// The recorder, if it is to hear of this thread.
Recorder* listening() { return recorder && threadIdx.x == 0 ? recorder : nullptr; }

Json record_pipeline(const std::string& stage_name, int stages) {
    attention::AttentionShape shape;
    shape.n_q = B_r, shape.n_k = B_c * steps, shape.head_dim = d, shape.dtype = DType::bf16;
    const attention::Stage& stage = attention::find_stage(stage_name);
    attention::DeviceProblem problem(stage, attention::make_inputs(shape, attention::Values::normal, 1), false);
    Recorder order(problem.args(), stages);
    recorder = &order;
    stage.launch(problem.args());
    recorder = nullptr;
    return {{"stage", stage_name}, {"stages", stages}, {"events", order.events()}};
}

/// What the producer of rung 10 asks for, and what the consumers do, in the order in which it comes about.
class RoleRecorder {
public:
    explicit RoleRecorder(int stages) : stages_(stages) {}

    void ask(const void* shared) {
        const auto* tile = static_cast<const char*>(shared);
        if (!Q_smem_) Q_smem_ = tile;
        const int number = int((tile - Q_smem_) / tile_bytes) - consumers;  // of the slot: K's, then V's
        if (number < 0) return note("producer", {{"ask", "Q"}});
        int& t = number < stages_ ? keys_ : values_;
        const std::string name = fmt::format("{}{}", number < stages_ ? "K" : "V", t++);
        note("producer", {{"ask", name}, {"slot", number % stages_}});
    }
    void product(int consumer, bool of_P) { enter(consumer, of_P ? Phase::PV : Phase::S); }
    void product_done(int consumer) {
        enter(consumer, consumers_[consumer].phase == Phase::S ? Phase::softmax : Phase::none);
    }

    const Json& events() const { return events_; }

    static constexpr int consumers = 2;

private:
    enum class Phase { none, S, softmax, PV };
    struct Consumer {
        Phase phase = Phase::none;
        int step = -1;
    };
    void enter(int consumer, Phase phase) {
        Consumer& c = consumers_[consumer];
        if (c.phase == phase) return;
        const auto name = [](Phase p) { return p == Phase::S ? "S" : p == Phase::PV ? "PV" : "softmax"; };
        const std::string role = fmt::format("consumer {}", consumer);
        if (c.phase != Phase::none) note(role, {{"end", name(c.phase)}, {"step", c.step}});
        if (phase == Phase::S) ++c.step;
        if (phase != Phase::none) note(role, {{"begin", name(phase)}, {"step", c.step}});
        c.phase = phase;
    }
    void note(const std::string& role, Json event) {
        event["role"] = role;
        const bool goes_on = event.contains("begin") && events_.back().contains("end") && events_.back()["role"] == role;
        if (!goes_on) ++now_;  // else both are one moment
        event["at"] = now_;
        events_.push_back(event);
    }

    int stages_, keys_ = 0, values_ = 0, now_ = 0;
    const char* Q_smem_ = nullptr;
    std::map<int, Consumer> consumers_;
    Json events_ = Json::array();
};

RoleRecorder* role_recorder = nullptr;
constexpr int warpgroup = 128;

/// Which consumer this thread speaks for: 0 for the producer's warpgroup, -1 for none.
int speaker() {
    const int thread = int(threadIdx.x);
    return role_recorder && thread % warpgroup == 0 ? thread / warpgroup : -1;
}

constexpr std::uint64_t good_order = 18;  // a seed for which nobody lags for long, so that the picture can be read

Json record_specialization(const std::string& stage_name, int stages, int steps, std::uint64_t seed) {
    attention::AttentionShape shape;
    shape.n_q = 64 * RoleRecorder::consumers, shape.n_k = B_c * steps, shape.head_dim = d, shape.dtype = DType::bf16;
    const attention::Stage& stage = attention::find_stage(stage_name);
    attention::DeviceProblem problem(stage, attention::make_inputs(shape, attention::Values::normal, 1), false);
    RoleRecorder order(stages);
    role_recorder = &order;
    emulator::reseed(seed);
    stage.launch(problem.args());
    role_recorder = nullptr;
    return {{"stage", stage_name}, {"stages", stages}, {"source", "emulator"}, {"events", order.events()}};
}

Json record() {
    const FragmentMap fragments = record_fragments();
    Json banks = Json::array();
    for (const BankMap& map : bank_maps()) banks.push_back({{"layout", map.layout}, {"group", map.group}});
    return {{"fragments", {{"A", fragments.A}, {"B", fragments.B}, {"C", fragments.C}}},
            {"banks", banks},
            {"pipeline", {record_pipeline("07-async-copies/1 stage", 1), record_pipeline("07-async-copies", 2)}},
            {"specialization", {record_specialization("10-warp-specialization", 2, 5, good_order)}}};
}

/// One entry a line, so that a change can be read.
std::string text_of(const Json& recorded) {
    std::ostringstream text;
    text << "{\n \"fragments\": {\n";
    for (const char* matrix : {"A", "B", "C"})
        text << "  \"" << matrix << "\": " << recorded["fragments"][matrix].dump()
             << (*matrix == 'C' ? "\n },\n" : ",\n");
    const auto list = [&](const char* name, const char* end) {
        text << " \"" << name << "\": [\n";
        for (const Json& entry : recorded[name])
            text << "  " << entry.dump() << (&entry == &recorded[name].back() ? "\n ]" : ",\n");
        text << end;
    };
    list("banks", ",\n");
    list("pipeline", ",\n");
    list("specialization", "\n}\n");
    return text.str();
}

}  // namespace
}  // namespace flashladder

// What the linker's --wrap makes of the emulator's functions: __real_ is theirs, __wrap_ is called instead.
#define WRAPPED(name, mangled, ...)                                   \
    void real_##name(__VA_ARGS__) asm("__real__ZN8emulator" mangled); \
    void wrap_##name(__VA_ARGS__) asm("__wrap__ZN8emulator" mangled); \
    void wrap_##name(__VA_ARGS__)

using flashladder::listening, flashladder::role_recorder, flashladder::speaker, emulator::Where;

WRAPPED(cp_async, "8cp_asyncEPvPKviiRKSt15source_location", void* shared, const void* global, int bytes, int valid,
        const Where& where) {
    if (auto* r = listening()) r->ask(static_cast<const char*>(shared), global);
    real_cp_async(shared, global, bytes, valid, where);
}
WRAPPED(commit, "15cp_async_commitERKSt15source_location", const Where& where) {
    if (auto* r = listening()) r->commit();
    real_commit(where);
}
WRAPPED(wait, "13cp_async_waitEiRKSt15source_location", int pending, const Where& where) {
    if (auto* r = listening()) r->wait(pending);
    real_wait(pending, where);
}
WRAPPED(ldmatrix, "8ldmatrixEPjibPKvRKSt15source_location", std::uint32_t* matrices, int n, bool transposed,
        const void* row, const Where& where) {
    if (auto* r = listening()) r->load(row);
    real_ldmatrix(matrices, n, transposed, row, where);
}
WRAPPED(tma_load, "8tma_loadEPvPK11CUtensorMapPmPKiiRKSt15source_location", void* tile, const CUtensorMap* map,
        std::uint64_t* barrier, const int* coordinates, int rank, const Where& where) {
    if (role_recorder) role_recorder->ask(tile);
    real_tma_load(tile, map, barrier, coordinates, rank, where);
}
WRAPPED(wgmma, "5wgmmaEPfRKNS_12ProductShapeEmmPKjRKSt15source_location", float* d, const emulator::ProductShape& shape, std::uint64_t a, std::uint64_t b,
        const std::uint32_t* fragment, const Where& where) {
    if (const int consumer = speaker(); consumer > 0) role_recorder->product(consumer, fragment != nullptr);
    real_wgmma(d, shape, a, b, fragment, where);
}
WRAPPED(wgmma_wait, "10wgmma_waitEiRKSt15source_location", int pending, const Where& where) {
    real_wgmma_wait(pending, where);
    if (const int consumer = speaker(); consumer > 0) role_recorder->product_done(consumer);
}
float real_ex2(float x) asm("__real__ZN8emulator10ex2_approxEf");
float wrap_ex2(float x) asm("__wrap__ZN8emulator10ex2_approxEf");
float wrap_ex2(float x) {
    if (auto* r = listening()) r->exponential();
    return real_ex2(x);
}

int main(int argc, char** argv) {
    const std::string text = flashladder::text_of(flashladder::record());
    if (argc == 1) {
        fmt::print("{}", text);
        return 0;
    }
    std::ifstream file(argv[1]);
    std::ostringstream held;
    held << file.rdbuf();
    if (held.str() == text) return 0;
    fmt::print(stderr, "{} is stale: record_pictures > {}\n", argv[1], argv[1]);
    return 1;
}
