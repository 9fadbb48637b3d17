#include "suite.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>
#include <vector>

#include "launch.h"
#include "test_seed.h"

namespace flashladder {

int drawn_length(int tile, int least, int most, std::uint64_t turn) {
    std::mt19937_64 random(test_seed() + turn * 0x9E3779B97F4A7C15u);
    const auto from_to = [&](int from, int to) { return from + static_cast<int>(random() % (to - from + 1)); };
    const int kind = static_cast<int>((test_seed() + turn) % 4), more = kind - 1;
    const int fewest_tiles = (least - more + tile - 1) / tile, most_tiles = (most - more) / tile;
    if (kind == 3 || fewest_tiles > most_tiles) return from_to(least, most);
    return from_to(fewest_tiles, most_tiles) * tile + more;
}

void check_count(const std::string& what, std::uint64_t found, std::uint64_t expected) {
    check_count(what, found, expected, expected);
}

void check_count(const std::string& what, std::uint64_t found, std::uint64_t least, std::uint64_t most) {
    const std::string expected = least == most ? fmt::to_string(least)
                                 : least == 0  ? fmt::format("at most {}", most)
                                               : fmt::format("{} to {}", least, most);
    CHECK_MESSAGE((least <= found && found <= most), fmt::format("{}: found {}, expected {}", what, found, expected));
}

void check_count(const std::string& what, std::uint64_t found, std::uint64_t expected, const std::string& where) {
    check_count(fmt::format("{} ({})", what, where), found, expected);
}

void check_refusal_line(const std::string& line, const std::string& stage, const std::string& part) {
    CHECK_MESSAGE(line.starts_with(stage + ": "), line);
    CHECK_MESSAGE((line.find(part) != std::string::npos), fmt::format("'{}' does not say '{}'", line, part));
    CHECK_MESSAGE((line.find('\n') == std::string::npos), line);
}

void check_same_bits(const Stage& stage, const Data& inputs) {
    const DeviceProblem problem(stage, inputs);
    const DeviceData device = problem.data();
    std::vector<float> before;
    for (const int garbage : {0xFF, 0x7F, 0x01}) {
        if (const std::size_t bytes = stage.scratch_bytes(inputs.problem))
            check_cuda(cudaMemset(device.scratch, garbage, bytes), "scratch");
        for (int times = 0; times < 2; ++times) {
            for (const Tensor& tensor : problem.tensors())
                if (tensor.is_output)
                    check_cuda(cudaMemset(device.tensors.at(tensor.name), 0xFF, tensor.bytes()), "NaN");
            stage.launch(device);
            check_cuda(cudaDeviceSynchronize(), "launch");
            const std::vector<float> O = problem.outputs().tensors.at("O");
            CHECK_MESSAGE((before.empty() || O == before), "O has other bits than before, with scratch full of ", garbage);
            before = O;
        }
    }
}

}  // namespace flashladder
