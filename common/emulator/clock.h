// Vector clocks: what an actor knows to have happened, for the race detector.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace emulator {

/// The blocks of a cluster make a team, numbered over all launches. All that acts in it has a slot of the team and a
/// time of its own: threads; the loads that a barrier waits for; the copies of a thread; the products of a warpgroup.
/// A clock says up to which time everything in each slot is known to have happened. Those who know the same share one:
/// behind a barrier, a block has one clock.
class Clock {
public:
    Clock() = default;  // knows nothing
    explicit Clock(std::uint32_t team);
    Clock(const Clock& other) : known_(other.known_) {
        if (known_) ++known_->references;
    }
    Clock(Clock&& other) noexcept : known_(std::exchange(other.known_, nullptr)) {}
    Clock& operator=(Clock other) {
        std::swap(known_, other.known_);
        return *this;
    }
    ~Clock() {
        if (known_ && --known_->references == 0) delete known_;
    }

    bool knows(std::uint32_t team, std::uint32_t slot, std::uint32_t time) const {
        if (known_ && known_->team == team) return slot < known_->times.size() && known_->times[slot].time >= time;
        return knows_of_others(team, slot, time);
    }
    /// Knows of this slot up to this time from now on.
    void raise(std::uint32_t slot, std::uint32_t time);
    /// Knows what the other one knows, too.
    void join(const Clock& other);
    /// Knows only what the other one knows, too. Of other teams, nothing.
    void meet(const Clock& other);
    bool same(const Clock& other) const { return known_ == other.known_; }
    /// True if nothing of `other` would be new. Looks at its own team only.
    bool covers(const Clock& other) const;

private:
    struct Tick {
        std::uint32_t time = 0;
    };
    struct Known {
        std::uint32_t team;
        std::uint32_t references = 1;
        std::vector<Tick> times = {};    // by slot
        std::vector<Clock> others = {};  // of other teams, each with nothing but its own
    };
    explicit Clock(Known* known) : known_(known) {}
    bool knows_of_others(std::uint32_t team, std::uint32_t slot, std::uint32_t time) const;
    const Clock* find(std::uint32_t team) const;
    Known& own();
    Clock without_others() const;
    static void raise_all(Known& known, const std::vector<Tick>& times);

    Known* known_ = nullptr;  // changed only while nobody shares it
};

}  // namespace emulator
