// The cost model of `ladder profile`, on counts made up so that each cost can be worked out by hand.
#include "cost_model.h"

#include <doctest/doctest.h>

#include <fstream>

#include "harness/project_root.h"

namespace flashladder {
namespace {

using nlohmann::json;

const Card card{.name = "a card", .multiprocessors = 10, .clock_ghz = 2, .memory_gb_s = 200, .l2_bytes = 400,
                .tensor_flops = 1000, .fma = 100, .shared_memory = 100 << 10, .has_wgmma = true};

json global(double sectors, double requested_bytes) {
    return {{"sectors", sectors}, {"requested_bytes", requested_bytes}};
}
json launch(const json& work, double distinct_bytes = 0) {
    return {{"work", work},          {"distinct_read_bytes", distinct_bytes}, {"distinct_written_bytes", 0},
            {"grid", {2, 3, 1}},     {"block", {1024, 1, 1}},                 {"dynamic_shared_bytes", 0}};
}
json counts(const std::vector<json>& launches) { return {{"launches", launches}}; }

constexpr double flops = 4.0 * 10 * 20 * 8;  // 1600 multiplications in each product
double clocks(const ModelledCosts& costs, const std::string& unit) {
    for (const Cost& cost : costs.units)
        if (cost.unit == unit) return cost.clocks;
    FAIL("no unit ", unit);
    return 0;
}
ModelledCosts of_one(const json& work, double distinct_bytes = 0, DType dtype = DType::bf16) {
    return model_costs(card, flops, dtype, counts({launch(work, distinct_bytes)}), 1);
}

TEST_CASE("each unit's clocks are its work by its rate") {
    CHECK(clocks(of_one(json::object(), 1000), "HBM") == 10);  // 100 bytes a clock
    const json memory = {{"global", {{"read", global(100, 1)}, {"tma_load", global(300, 5120)}}},
                         {"shared", {{"read", {{"wavefronts", 30}}}, {"wgmma_operand", {{"wavefronts", 20}}}}}};
    CHECK(clocks(of_one(memory), "L2") == 32);               // 400 sectors
    CHECK(clocks(of_one(memory), "L1") == 2.5);              // TMA goes around it
    CHECK(clocks(of_one(memory), "shared memory") == 5 + 4);  // 50 wavefronts, and 40 of TMA
    CHECK(clocks(of_one({{"exponentials", 3200}, {"divisions", 1600}}), "XU") == 30);
    CHECK(clocks(of_one({{"exponentials", 6400}}), "ALU") == 15);  // a maximum, and half a conversion
    CHECK(clocks(of_one({{"exponentials", 6400}}, 0, DType::f32), "ALU") == 10);
}

TEST_CASE("what the model takes for the rate of an instruction is what was measured") {
    std::ifstream file(project_root() + "/docs/results/rates.json");
    const Card& h100 = find_card("H100");
    const auto modelled = [&](json work, const char* unit) {
        return 1e6 / clocks(model_costs(h100, flops, DType::bf16, counts({launch(work)}), 1), unit) / h100.multiprocessors;
    };
    int compared = 0;
    const json measured = json::parse(file);
    for (const json& row : measured.at("rows")) {
        const std::string what = row.at("what");
        json work = {{what == "ex2" ? "exponentials" : "matrix_flops", 1e6}};
        if (what.starts_with("wgmma")) work["shared"]["wgmma_operand"]["wavefronts"] = 1;
        if (row.at("unit") != "operations/clock") continue;
        CAPTURE(what);
        CHECK(row.at("rate").get<double>() == doctest::Approx(modelled(work, what == "ex2" ? "XU" : "tensor cores")).epsilon(0.01));
        ++compared;
    }
    CHECK(compared >= 14);
}

TEST_CASE("tensor cores: wgmma has the whole rate, mma two thirds of it; without them products are for the FMA") {
    const json mma = {{"matrix_flops", 30000}, {"exponentials", 1000}};
    json wgmma = mma;
    wgmma["shared"]["wgmma_operand"]["wavefronts"] = 1;
    CHECK(clocks(of_one(wgmma), "tensor cores") == 3);
    CHECK(clocks(of_one(mma), "tensor cores") == doctest::Approx(4.5));
    CHECK(clocks(of_one(mma), "FMA") == 2);
    CHECK(clocks(of_one({{"exponentials", 1000}}), "FMA") == doctest::Approx(2 + 3.2));
    // The products are in the launches without exponentials, if there are several launches.
    const json product = launch(json::object()), softmax = launch({{"exponentials", 1000}});
    const auto three = model_costs(card, flops, DType::f32, counts({product, softmax, product}), 1);
    CHECK(clocks(three, "FMA") == doctest::Approx(2 + 3.2));
    CHECK(three.busiest == doctest::Approx(1.6 + 1000 / 160.0 + 1.6));
}

TEST_CASE("the busiest unit of each launch counts; set-up is once a launch, all else grows with the copies") {
    const json first = launch({{"exponentials", 1600}}, 100), second = launch({{"divisions", 160}}, 9000);
    const auto one = model_costs(card, flops, DType::bf16, counts({first, second}), 1);
    CHECK(one.busiest == 10 + 90);
    CHECK(one.bound().unit == "HBM");
    CHECK(one.setup == 2 * 4000);  // 2 microseconds
    const auto ten = model_costs(card, flops, DType::bf16, counts({first, second}), 10);
    CHECK(ten.busiest == 10 * one.busiest);
    CHECK(ten.setup == one.setup);
    CHECK(ten.clocks() == ten.busiest + ten.setup);
}

TEST_CASE("waiting at a barrier costs where no other block computes") {
    const json work = {{"barriers", 100}};
    json small = launch(work), large = launch(work);
    large["dynamic_shared_bytes"] = 60 << 10;  // no room for another one
    const auto sync = [](const json& l) { return model_costs(card, flops, DType::bf16, counts({l}), 1).sync; };
    CHECK(sync(large) == 100 * 30 / 10);
    CHECK(sync(small) == sync(large) / 2);  // 2048 threads
}

TEST_CASE("a card is full with ten blocks for each multiprocessor; an unknown one is an error that names the others") {
    CHECK(copies_that_fill(card, counts({launch(json::object())})) == 17);  // of 6 blocks
    CHECK(find_card("H100").peak_tflops() == doctest::Approx(989).epsilon(0.001));
    CHECK_THROWS_WITH_AS(find_card("h100"), "no card 'h100'; there are H100, H200, A100", std::invalid_argument);
}

}  // namespace
}  // namespace flashladder
