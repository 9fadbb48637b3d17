// What counted work costs on a card, by the model of the ThunderKittens paper (Spector et al., 2024): the busiest unit
// sets the time, and what nothing else runs beside is added.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor.h"

namespace flashladder {

/// Rates, from the vendor's white papers and the arithmetic throughput table of the CUDA C++ Programming Guide.
struct Card {
    std::string name;
    int multiprocessors;
    double clock_ghz;            // boost: what the vendor's peak rates are given for
    double memory_gb_s;          // device memory
    double l2_bytes;             // in a clock, the whole card
    double tensor_flops;         // in a clock, one multiprocessor: bf16 or f16, accumulated in float
    double fma;                  // instructions of a lane, in a clock, one multiprocessor
    double shared_memory;        // bytes of a multiprocessor
    bool has_wgmma = false;      // without it mma has the whole rate
    double alu = 64, xu = 16;    // as fma
    double l1_bytes = 128, shared_bytes = 128;  // in a clock, one multiprocessor

    double peak_tflops() const { return multiprocessors * tensor_flops * clock_ghz / 1e3; }
};
const std::vector<Card>& cards();
/// Throws std::invalid_argument, with the names that there are.
const Card& find_card(std::string_view name);

/// What one unit has to do, in clocks of the card.
struct Cost {
    std::string unit;
    double clocks;
};

/// Launches come one after the other, each as long as its busiest unit takes: `busiest` is the sum over launches of their
/// maxima, and the clocks of a unit are those of all launches. `setup` is what a launch costs, `sync` what waiting at
/// __syncthreads does where no other block computes meanwhile.
struct ModelledCosts {
    std::vector<Cost> units;  // HBM, L2, L1, shared memory, tensor cores, FMA, ALU, XU
    double busiest = 0, setup = 0, sync = 0;

    double clocks() const { return busiest + setup + sync; }
    /// The unit with most to do.
    const Cost& bound() const;
};

/// `counts`: of StageCounts or a row of counts.json, for a problem of so many `flops`; `copies` such problems run at once,
/// spread evenly over all multiprocessors. What the emulator does not see is put in as the least that attention needs: a multiplication and
/// an addition (FMA) and a maximum (ALU) for each exponential, a conversion for two scores where P has 16 bits, and
/// where no tensor cores are used, a fused multiplication and addition for each of the products.
ModelledCosts model_costs(const Card& card, double flops, DType dtype, const nlohmann::json& counts, double copies);

/// So many problems that the card is full: ten blocks for each multiprocessor.
double copies_that_fill(const Card& card, const nlohmann::json& counts);

}  // namespace flashladder
