// What rung 14 can be built of, and what says which of it is for which shape. The costs are generated: whatever they say,
// they must say something for every shape, and what they choose must be fast where that was measured.
#include "operations/attention/configurations.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "test_seed.h"

namespace flashladder::attention {
namespace {

AttentionShape shape_of(int heads, int n_q, int n_k, int d, bool causal) {
    return {.heads = heads, .kv_heads = heads, .n_q = n_q, .n_k = n_k, .head_dim = d, .causal = causal};
}
/// Of a configuration of 3 x 64 queries and blocks of 64 keys: microseconds that are easy to add up.
const ConfigurationCost cost_of_3_x_64(bool causal) {
    for (int i = 0; i < int(configurations.size()); ++i)
        if (configurations[std::size_t(i)].consumers == 3 && configurations[std::size_t(i)].B_c == 64)
            return {i, causal, 1000, 100, 1};
    throw std::logic_error("no configuration of 3 x 64 keys");
}

/// Each task goes to the multiprocessor that is done first.
double simulated_rounds(std::int64_t large, std::int64_t small, double part, int multiprocessors) {
    std::vector<double> done(std::size_t(multiprocessors), 0.0);
    for (std::int64_t i = 0; i < large + small; ++i) *std::ranges::min_element(done) += i < large ? 1 : part;
    return *std::ranges::max_element(done);
}

TEST_CASE("rounds_of: as long as it takes if whoever is done takes the next task") {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < 500; ++i) {
        const int multiprocessors = 1 + int(random() % 20);
        const auto large = std::int64_t(random() % 70), small = std::int64_t(random() % 70);
        const double part = 0.5 + double(random() % 50) / 100 + 0.001;
        INFO(large, " large ones and ", small, " of ", part, " on ", multiprocessors);
        CHECK(rounds_of(large, small, part, multiprocessors) ==
              doctest::Approx(simulated_rounds(large, small, part, multiprocessors)));
    }
}

TEST_CASE("query_tasks: all units of 64 queries, each once, and no more rounds than of the fewest tasks") {
    std::mt19937_64 random(test_seed());
    int others = 0;
    for (int i = 0; i < 3000; ++i) {
        const Configuration& c = configurations[random() % configurations.size()];
        AttentionShape s = shape_of(1 + int(random() % 40), 1 + int(random() % 9000), 100, c.d, random() % 4 == 0);
        s.batch = 1 + int(random() % 3);
        const int multiprocessors = 1 + int(random() % 140), units = (s.n_q + 63) / 64;
        const int fewest = (units + c.consumers - 1) / c.consumers, heads = s.heads * s.batch;
        const QueryTasks found = query_tasks(c, s, multiprocessors);
        INFO(to_string(c), ", ", heads, " heads, N ", s.n_q, ", ", multiprocessors, " multiprocessors");
        CHECK(found.low >= 0);
        CHECK(found.low <= found.tasks);
        const double of_fewest = (fewest * heads + multiprocessors - 1) / multiprocessors;
        CHECK(found.rounds <= of_fewest);
        if (units >= c.consumers * (c.consumers - 1)) CHECK(found.tasks * c.consumers - found.low == units);
        if (found.late == 0) {
            CHECK(found.tasks == fewest);
            continue;
        }
        ++others;
        CHECK(found.late == found.low);
        CHECK(found.rounds < of_fewest);
        CHECK(found.rounds ==
              doctest::Approx(simulated_rounds((found.tasks - found.low) * heads, found.low * heads,
                                               part_with_one_less(c.consumers), multiprocessors)));
    }
    CHECK(others > 100);
    CHECK(query_tasks(configurations[7], shape_of(32, 2048, 2048, 128, false), 132).low == 4);  // 12 tasks: 2.76 rounds, not 3
}

TEST_CASE("expected_time: not causal: as many tasks one after the other as the busiest multiprocessor has") {
    const ConfigurationCost cost = cost_of_3_x_64(false);
    CHECK(expected_time(cost, shape_of(1, 192, 64, 128, false), 4) == 1000 + 101);
    CHECK(expected_time(cost, shape_of(4, 192, 65, 128, false), 4) == 1000 + 102);
    CHECK(expected_time(cost, shape_of(5, 192, 65, 128, false), 4) == 1000 + 2 * 102);
    CHECK(expected_time(cost, shape_of(1, 193, 640, 128, false), 1) == 1000 + 2 * 110);
    AttentionShape many = shape_of(3, 1920, 64, 128, false);
    many.batch = 2;
    CHECK(expected_time(cost, many, 59) == doctest::Approx(1000 + 1.52 * 101));  // two rounds of low tasks for eleven of them
    CHECK(expected_time(cost, many, 60) == 1000 + 101);
}

TEST_CASE("expected_time: causal: the longest task, or as much as each multiprocessor has if all have the same") {
    const ConfigurationCost cost = cost_of_3_x_64(true);
    CHECK(expected_time(cost, shape_of(1, 1920, 1920, 128, true), 132) == 1000 + 130);
    // Tasks of 3, 6, ..., 30 steps: 16.5 in the mean.
    CHECK(expected_time(cost, shape_of(8, 1920, 1920, 128, true), 4) == doctest::Approx(1000 + 20 * 116.5));
    // Of 13, 16, ... 40: the first task sees 640 + 192 keys.
    CHECK(expected_time(cost, shape_of(8, 1920, 2560, 128, true), 4) == doctest::Approx(1000 + 20 * 126.5));
    // Half of the queries see no key, and take a step; the others 3 to 15.
    CHECK(expected_time(cost, shape_of(8, 1920, 960, 128, true), 4) == doctest::Approx(1000 + 20 * (100 + 0.5 + 0.5 * 9)));
}

TEST_CASE("configuration_for: of the d and mask of the shape, the one that is expected to be the fastest") {
    for (const int d : {64, 128, 256})
        for (const bool causal : {false, true})
            for (const int heads : {1, 8, 200})
                for (const int n : {1, 500, 5000}) {
                    const AttentionShape s = shape_of(heads, n, n + 7, d, causal);
                    const int best = configuration_for(s, 132);
                    INFO("d ", d, ", causal ", causal, ", heads ", heads, ", N ", n);
                    REQUIRE(best >= 0);
                    CHECK(configurations.at(std::size_t(best)).d == d);
                    CHECK(is_chosen(best, causal));
                    double of_best = 0;
                    for (const ConfigurationCost& cost : configuration_costs)
                        if (cost.configuration == best && cost.causal == causal) of_best = expected_time(cost, s, 132);
                    for (const ConfigurationCost& cost : configuration_costs)
                        if (configurations[std::size_t(cost.configuration)].d == d && cost.causal == causal)
                            CHECK(of_best <= expected_time(cost, s, 132));
                }
    CHECK(configuration_for(shape_of(1, 100, 100, 80, false), 132) == -1);
    for (const bool causal : {false, true})  // the most keys that a shape can have
        for (const ConfigurationCost& cost : configuration_costs)
            if (cost.causal == causal) CHECK(expected_time(cost, shape_of(1, 1, INT_MAX, 64, causal), 132) > 1e6);
}

TEST_CASE("costs: of configurations that are there, each once, no time negative, none of those for the lesson alone") {
    std::set<std::pair<int, bool>> seen;
    for (const ConfigurationCost& cost : configuration_costs) {
        REQUIRE(cost.configuration >= 0);
        REQUIRE(cost.configuration < int(configurations.size()));
        CHECK(seen.emplace(cost.configuration, cost.causal).second);
        CHECK(!configurations[std::size_t(cost.configuration)].shown);
        CHECK(cost.launch >= 0);
        CHECK(cost.task >= 0);
        CHECK(cost.step > 0);
        CHECK(is_chosen(cost.configuration, cost.causal));
    }
    CHECK(!is_chosen(-1, false));
}

TEST_CASE("the choice is fast where it was measured: within 1% of the fastest in geometric mean, 8% everywhere") {
    int files = 0;
    for (const char* file : {"tune.json", "tune-h200.json"}) {  // of the cards that were timed
        std::ifstream stream(std::string(RESULTS) + "/" + file);
        if (!stream) continue;
        ++files;
        const auto result = nlohmann::json::parse(stream);
        std::map<std::string, std::map<std::string, double>> times;  // by shape and configuration
        std::map<std::string, AttentionShape> shapes;
        for (const auto& row : result.at("rows")) {
            const auto& of = row.at("shape");
            AttentionShape s = shape_of(of.at("heads"), of.at("n_q"), of.at("n_k"), of.at("head_dim"), of.at("causal"));
            s.batch = of.at("batch");
            shapes[of.dump()] = s;
            times[of.dump()][row.at("configuration")] = row.at("ms");
        }
        double sum = 0;
        for (const auto& [of, ms] : times) {
            const int best = configuration_for(shapes.at(of), result.at("multiprocessors"));
            double fastest = INFINITY;
            for (const auto& [name, of_name] : ms) fastest = std::min(fastest, of_name);
            const double loss = ms.at(to_string(configurations[std::size_t(best)])) / fastest;
            CHECK_MESSAGE(loss < 1.08, std::string(file), ": ", of);
            sum += std::log(loss);
        }
        CHECK(times.size() > 100);
        CHECK_MESSAGE(std::exp(sum / double(times.size())) < 1.01, std::string(file));
    }
    CHECK(files > 0);
}

TEST_CASE("to_string: what a configuration is, in words that no other of its d has") {
    CHECK(to_string(Configuration{.d = 64, .consumers = 3, .B_c = 128, .stages = 4}) ==
          "3 x 128 keys, 4 slots, dynamic, turns");
    CHECK(to_string(Configuration{.d = 128, .consumers = 2, .B_c = 64, .stages = 1, .turns = false}) ==
          "2 x 64 keys, 1 slot, dynamic");
    CHECK(
        to_string(Configuration{.d = 128, .consumers = 2, .B_c = 64, .stages = 2, .schedule = lcsf::Schedule::fixed}) ==
        "2 x 64 keys, 2 slots, fixed, turns");
    CHECK(to_string(
              Configuration{.d = 128, .consumers = 4, .B_c = 64, .stages = 2, .schedule = lcsf::Schedule::one_each}) ==
          "4 x 64 keys, 2 slots, one block each, turns");
    std::set<std::string> names;
    for (const Configuration& c : configurations) names.insert(std::to_string(c.d) + ": " + to_string(c));
    CHECK(names.size() == configurations.size());
}

}  // namespace
}  // namespace flashladder::attention
