// docs/see/pipeline
#include "pipeline.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "../test_seed.h"
#include "cost_model.h"
#include "emulator/activity.h"
#include "emulator/emulator.h"
#include "files.h"
#include "harness/project_root.h"
#include "operations/attention/counts.h"
#include "operations/attention/inputs.h"
#include "operations/attention/run.h"
#include "vectors.h"

namespace flashladder {
namespace {

using Json = nlohmann::json;

constexpr const char* names[] = {"wait K", "wait V", "turn", "S", "softmax", "PV", "slot K", "slot V", "K", "V"};

Json json_of(const std::vector<Event>& events) {
    Json all = Json::array();
    for (const Event& e : events) all.push_back({names[int(e.what)], e.step, e.from, e.to});
    return all;
}

Json query_of(const Plan& p) {
    constexpr const char* as[] = {"10", "12", "07"};
    return {{"kind", "timeline"}, {"as", as[int(p.steps_as)]}, {"consumers", p.consumers}, {"stages", p.stages},
            {"turns", p.turns}, {"within", p.within}, {"persistent", p.persistent}, {"tasks", p.tasks},
            {"steps", p.steps}, {"latency", p.latency}, {"pace", p.pace}, {"S", p.S}, {"softmax", p.softmax},
            {"PV", p.PV}};
}

/// Clocks a step, from the middle of all steps to the last one: the end of consumer 0's softmax.
Json steady(const Timeline& timeline) {
    std::vector<int> ends;
    for (const Event& e : timeline.consumers.front())
        if (e.what == Did::softmax) ends.push_back(e.to);
    const std::size_t middle = ends.size() / 2;
    if (ends.size() < 2) return {};
    return double(ends.back() - ends[middle - 1]) / double(ends.size() - middle);
}

void add_timeline(Vectors& vectors, const Plan& plan) {
    const Timeline timeline = run_pipeline(plan);
    Json consumers = Json::array(), products = Json::array();
    for (const auto& events : timeline.consumers) consumers.push_back(json_of(events));
    for (const Product& p : timeline.products)
        products.push_back({p.consumer, p.is_PV ? "PV" : "S", p.step, p.first, p.end});
    vectors.add(query_of(plan), {{"consumers", consumers}, {"loader", json_of(timeline.loader)},
                                 {"products", products}, {"steady", steady(timeline)}});
}

// ---- the order in which rungs do things

using emulator::Doing;

/// Of an activity in words: "wait K", "S", ...; "" if the page says nothing of it.
std::string word_of(const emulator::Activity& activity, const attention::DeviceProblem& problem) {
    const std::string text = source_line(activity.line);
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    const auto is_in = [&](const DeviceBuffer& tensor) {
        const auto* at = static_cast<const char*>(activity.tensor);
        return at && at >= tensor.data() && at < static_cast<const char*>(tensor.data()) + tensor.bytes();
    };
    const std::string tensor = says("K_") ? "K" : says("V_") ? "V" : "";
    switch (activity.what) {
        case Doing::copy: return is_in(problem.K) ? "ask K" : is_in(problem.V) ? "ask V" : "";
        case Doing::wait:
            if (says("wgmma_wait")) return "done";
            if (tensor.empty()) return "";  // cp.async waits for groups, whatever they are
            return (says("empty") ? "slot " : "wait ") + tensor;
        case Doing::arrive:
            if (says("named_barrier_arrive")) return "pass";
            return tensor.empty() || says("full") ? "" : "give back " + tensor;
        case Doing::barrier: return says("ping_pong") ? "turn" : "";
        case Doing::product: return says("Major::mn") || says("[x / 8") ? "PV" : says("l.fragment") ? "" : "S";
        case Doing::exponential: return "softmax";
        default: return "";
    }
}

/// What a warp does, each thing once however many instructions it takes, and numbered: "wait K0", "S0", ...
Json program_of(const emulator::LaunchActivity& launch, unsigned warp, const attention::DeviceProblem& problem) {
    Json program = Json::array();
    std::map<std::string, int> times;
    std::string last;
    for (const emulator::Activity& a : launch.activities) {
        if (a.warp != warp || !a.counts) continue;
        const std::string word = word_of(a, problem);
        if (word.empty() || (word == last && word != "done")) continue;
        last = word;
        const bool numbered = word != "done" && word != "softmax" && word != "turn" && word != "pass";
        const int n = times[word]++;
        program.push_back(numbered ? word + std::to_string(n) : word);
    }
    return program;
}

struct RungAsIs {
    const char* stage;
    const char* as;
    int d, consumers, B_c, stages;
    bool turns = false, within = false, persistent = true;
};
const RungAsIs rungs[] = {
    {"07-async-copies", "07", 64, 1, 64, 2},          {"07-async-copies/1 stage", "07", 64, 1, 64, 1},
    {"07-async-copies/3 stages", "07", 64, 1, 64, 3}, {"07-async-copies/6 stages", "07", 64, 1, 64, 6},
    {"10-warp-specialization", "10", 64, 2, 64, 2},   {"10-warp-specialization", "10", 128, 3, 128, 2},
    {"10-warp-specialization/1 stage", "10", 128, 3, 128, 1},
    {"10-warp-specialization/4 stages", "10", 64, 2, 64, 4},
    {"11-persistent-grid", "10", 128, 3, 128, 2},
    {"12-overlap", "12", 64, 3, 128, 4, true, true},  {"12-overlap", "12", 128, 2, 128, 2, true, true},
    {"12-overlap/no overlap", "12", 128, 2, 128, 2, false, false},
    {"12-overlap/ping-pong", "12", 128, 2, 128, 2, true, false},
    {"12-overlap/intra", "12", 64, 3, 128, 4, false, true},
};

attention::Inputs inputs_of(const RungAsIs& rung, int tasks, int steps) {
    attention::AttentionShape shape;
    const bool has_roles = rung.as[0] == '1';
    shape.heads = shape.kv_heads = tasks, shape.head_dim = rung.d, shape.dtype = DType::bf16;
    shape.n_q = has_roles ? 64 * rung.consumers : 128, shape.n_k = rung.B_c * steps;
    return attention::make_inputs(shape, attention::Values::normal, test_seed());
}

void add_program(Vectors& vectors, const RungAsIs& rung, int tasks, int steps) {
    const attention::Stage& stage = attention::find_stage(rung.stage);
    const bool has_roles = rung.as[0] == '1';
    const attention::DeviceProblem problem(stage, inputs_of(rung, tasks, steps), false);
    const int before = std::exchange(emulator::settings().multiprocessors, 1);  // one block has all tasks
    const auto launches = emulator::record_activity(0, [&] { stage.launch(problem.args()); }, true);
    emulator::settings().multiprocessors = before;
    const auto& launch = launches.back();
    Json consumers = Json::array(), loader = Json::array();
    if (has_roles) loader = program_of(launch, 0, problem);
    for (int c = 0; c < rung.consumers; ++c)
        consumers.push_back(program_of(launch, has_roles ? unsigned(4 + 4 * c) : 0, problem));
    vectors.add({{"kind", "program"}, {"as", rung.as}, {"consumers", rung.consumers}, {"stages", rung.stages},
                 {"turns", rung.turns}, {"within", rung.within}, {"tasks", tasks}, {"steps", steps}, {"waits", has_roles}},
                {{"consumers", consumers}, {"loader", loader}});
    if (!has_roles) return;
    // What is begun together is waited for together, unless the softmax may run under the older product.
    const auto work = emulator::count_work([&] { stage.launch(problem.args()); }).total();
    CHECK((work.overlapped_exponentials > 0) == (rung.within && steps > 1));
}

/// Rung 07 with its waits: the picture of lesson 07 knows what is in the groups that are waited for.
void add_recorded_programs(Vectors& vectors) {
    for (const Json& recorded : Json::parse(read_file(project_root() + "/docs/results/pictures.json")).at("pipeline")) {
        Json program = Json::array();
        int steps = 0;
        for (const Json& event : recorded.at("events"))
            for (const auto& [what, of] : event.items()) {
                if (what == "ask" && of != "Q") program.push_back("ask " + of.get<std::string>());
                if (what == "wait") program.push_back("wait " + of.at(0).get<std::string>());
                if (what == "S" || what == "PV") program.push_back(what + std::to_string(of.get<int>()));
                if (what == "softmax") program.push_back("softmax"), ++steps;
            }
        vectors.add({{"kind", "program"}, {"as", "07"}, {"consumers", 1}, {"stages", recorded.at("stages")},
                     {"turns", false}, {"within", false}, {"tasks", 1}, {"steps", steps}},
                    {{"consumers", {program}}, {"loader", Json::array()}});
    }
}

// ---- what it costs, by the model

void add_bound(Vectors& vectors, const Plan& p) {
    const Card& card = find_card("H100");
    const double multiprocessors = card.multiprocessors;
    const double products = p.consumers * (p.S + p.PV), exponentials = p.consumers * p.softmax, loads = 2 * p.pace;
    const Json work = {{"matrix_flops", products * multiprocessors * card.tensor_flops},
                       {"exponentials", exponentials * multiprocessors * card.xu},
                       {"shared", {{"wgmma_operand", {{"wavefronts", 1}}}}},
                       {"global", {{"tma_load", {{"sectors", loads * card.l2_bytes / 32}, {"requested_bytes", 0}}}}}};
    const Json counts = {{"launches", {{{"work", work}, {"distinct_read_bytes", 0}, {"distinct_written_bytes", 0},
                                        {"block", {128, 1, 1}}}}}};
    const ModelledCosts costs = model_costs(card, 0, DType::bf16, counts, 1);
    const std::map<std::string, const char*> units = {{"L2", "loads"}, {"tensor cores", "tensor"}, {"XU", "exponentials"}};
    std::vector<double> sorted = {products, exponentials, loads};
    std::ranges::sort(sorted);
    if (sorted[1] == sorted[2]) return;  // either may be named
    vectors.add({{"kind", "bound"}, {"consumers", p.consumers}, {"S", p.S}, {"softmax", p.softmax}, {"PV", p.PV},
                 {"pace", p.pace}},
                {{"unit", units.at(costs.bound().unit)}, {"clocks", costs.bound().clocks}});
}

/// Clocks of a multiprocessor for one step more, by the counted work of the rung.
void add_rates(Vectors& vectors, const RungAsIs& rung) {
    const Card& card = find_card("H100");
    std::map<std::string, double> clocks;
    for (const int steps : {2, 3}) {
        const auto inputs = inputs_of(rung, 1, steps);
        const Json counts = to_json(attention::count_stage(attention::find_stage(rung.stage), inputs));
        for (const auto& [unit, n] : model_costs(card, 0, DType::bf16, counts, card.multiprocessors).units)
            clocks[unit] += steps == 3 ? n : -n;
    }
    vectors.add({{"kind", "rates"}, {"rung", rung.as}, {"d", rung.d}},
                {{"products", clocks.at("tensor cores") / rung.consumers},
                 {"softmax", clocks.at("XU") / rung.consumers},
                 {"pace", clocks.at("L2") / 2}});
}

TEST_CASE("see: pipeline") {
    Vectors vectors("pipeline");
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int least, int most) { return least + int(random() % std::uint64_t(most - least + 1)); };
    for (int k = 0; k < 600; ++k) {
        Plan plan{draw(1, 3), draw(1, 6)};
        plan.steps_as = Steps(k % 3);
        if (plan.steps_as == Steps::own_loads) plan.consumers = 1;
        if (plan.steps_as == Steps::together) plan.turns = plan.consumers > 1 && draw(0, 1), plan.within = draw(0, 1);
        plan.persistent = plan.steps_as != Steps::own_loads && draw(0, 1);
        plan.tasks = draw(1, 3), plan.steps = draw(1, 5), plan.latency = draw(1, 12), plan.pace = draw(0, 4);
        plan.S = draw(1, 6), plan.softmax = draw(1, 8), plan.PV = draw(1, 6);
        add_timeline(vectors, plan);
        if (k % 3 == 0) add_bound(vectors, plan);
    }
    for (const RungAsIs& rung : rungs) {
        CAPTURE(rung.stage);
        const bool persistent = rung.stage[1] != '0' && rung.stage[0] == '1';
        for (const int steps : {1, 2, 5}) add_program(vectors, rung, persistent ? draw(1, 3) : 1, steps);
    }
    add_recorded_programs(vectors);
    for (const char* as : {"07", "10", "12"})
        for (const int d : {64, 128}) {
            const std::string name = as;
            RungAsIs of_d = *std::ranges::find_if(rungs, [&](const RungAsIs& r) {
                return r.as == name && (r.d == d || name == "07");
            });
            of_d.d = d;
            add_rates(vectors, of_d);
        }
}

}  // namespace
}  // namespace flashladder
