// What is tested of common/lcsf, each with a host function around its kernel: inputs in, result out.
#pragma once

#include <string>
#include <vector>

namespace flashladder {

using Words = std::vector<unsigned>;

constexpr int tile_words = 64;     // of a slot
constexpr int consumer_warps = 3;  // each reads every word of every tile

/// What is left out or done wrongly. All but the first are run on the emulator alone.
enum class Fault {
    none,
    no_wait_for_full,
    no_wait_for_empty,
    released_early,
    released_by_a_lane,
    released_by_two_lanes,
    never_released,
    one_release_expected,
    one_release_too_many_expected,
    producer_at_the_consumers_parity,
    producer_does_not_advance
};

struct RingCase {
    int slots;
    bool by_bulk_load;  // one thread asks for tiles; else a warp stores them, and each lane arrives
    Fault fault;
    /// Tiles go through the ring. Of each lane of each consumer, a sum that depends on the order of tiles.
    Words (*run)(const Words& tiles);

    std::string describe() const {
        return std::to_string(slots) + (slots == 1 ? " slot" : " slots") +
               (by_bulk_load ? ", filled by bulk loads" : ", filled by stores");
    }
};
/// Every number of slots, filled both ways, without a fault; and each fault with two slots, where there is one.
std::vector<RingCase> ring_cases();
std::vector<RingCase> faulty_ring_cases();

/// Where one is after 0, 1, 2, ... advances, n times: slot, parity.
struct Positions {
    int slots;
    std::vector<int> (*of)(int n);  // (n, 2)
};
std::vector<Positions> positions();

}  // namespace flashladder
