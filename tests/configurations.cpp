// What rung 14 can be built of, and the table that says which of it is for which shape. The table is
// generated: whatever it says, it must say something for every shape, and something that can be built.
#include "harness/configurations.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace flashladder {
namespace {

constexpr int head_dims[] = {64, 128, 256}, most = INT_MAX;

/// The rows for a head dimension, in their order.
std::vector<Choice> rows(int d, bool causal) {
    std::vector<Choice> found;
    std::ranges::copy_if(choices, std::back_inserter(found),
                         [=](const Choice& row) { return row.d == d && row.causal == causal; });
    return found;
}

TEST_CASE("table of choices: up to more and more keys, to any number in the end, configurations of the right d") {
    std::size_t seen = 0;
    for (const int d : head_dims)
        for (const bool causal : {false, true}) {
            INFO("d ", d, ", causal ", causal);
            const auto of = rows(d, causal);
            seen += of.size();
            REQUIRE(!of.empty());
            CHECK(of.back().n_k == most);
            for (std::size_t i = 0; i < of.size(); ++i) {
                CHECK(of[i].n_k > (i ? of[i - 1].n_k : 0));
                REQUIRE(of[i].configuration >= 0);
                REQUIRE(of[i].configuration < int(configurations.size()));
                CHECK(configurations[std::size_t(of[i].configuration)].d == d);
            }
        }
    CHECK(seen == std::size(choices));  // there are no others
}

TEST_CASE("configuration_for: the first row that has room for the keys") {
    for (const int d : head_dims)
        for (const bool causal : {false, true}) {
            int before = 0;  // keys of the row before
            for (const Choice& row : rows(d, causal)) {
                INFO("d ", d, ", causal ", causal, ", up to ", row.n_k, " keys");
                CHECK(configuration_for(d, causal, before + 1) == row.configuration);
                CHECK(configuration_for(d, causal, row.n_k) == row.configuration);
                before = row.n_k;
            }
        }
    CHECK(configuration_for(80, false, 100) == -1);
    CHECK(configuration_for(0, true, most) == -1);
}

TEST_CASE("is_chosen: what configuration_for gives for some number of keys, and nothing else") {
    for (const bool causal : {false, true}) {
        std::set<int> given;
        for (const Choice& row : choices)
            for (const int n_k : {1, row.n_k - 1, row.n_k, row.n_k == most ? most : row.n_k + 1})
                given.insert(configuration_for(row.d, causal, n_k));
        for (int i = -1; i <= int(configurations.size()); ++i) {
            INFO("configuration ", i, ", causal ", causal);
            CHECK(is_chosen(i, causal) == given.contains(i));
        }
    }
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
}  // namespace flashladder
