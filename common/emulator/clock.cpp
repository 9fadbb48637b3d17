#include "clock.h"

#include <algorithm>

namespace emulator {

Clock::Clock(std::uint32_t team) : known_(new Known{team}) {}

/// To be changed: a copy, if others share it.
Clock::Known& Clock::own() {
    if (known_->references > 1) *this = Clock(new Known{known_->team, 1, known_->times, known_->others});
    return *known_;
}

void Clock::raise_all(Known& known, const std::vector<Tick>& times) {
    if (known.times.size() < times.size()) known.times.resize(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) known.times[i].time = std::max(known.times[i].time, times[i].time);
}

void Clock::raise(std::uint32_t slot, std::uint32_t time) {
    if (knows(known_->team, slot, time)) return;
    Known& known = own();
    if (known.times.size() <= slot) known.times.resize(slot + 1);
    known.times[slot].time = time;
}

/// What is known of a team, or null.
const Clock* Clock::find(std::uint32_t team) const {
    if (!known_ || known_->team == team) return known_ ? this : nullptr;
    const auto found = std::find_if(known_->others.begin(), known_->others.end(),
                                    [team](const Clock& other) { return other.known_->team == team; });
    return found == known_->others.end() ? nullptr : &*found;
}

bool Clock::knows_of_others(std::uint32_t team, std::uint32_t slot, std::uint32_t time) const {
    const Clock* clock = find(team);
    return clock && clock->knows(team, slot, time);
}

bool Clock::covers(const Clock& other) const {
    if (!other.known_) return true;
    const Clock* mine = find(other.known_->team);
    if (!mine) return false;
    const auto& have = mine->known_->times;
    const auto& wanted = other.known_->times;
    if (have.size() < wanted.size()) return false;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        if (have[i].time < wanted[i].time) return false;
    return true;
}

Clock Clock::without_others() const {
    if (known_->others.empty()) return *this;
    return Clock(new Known{known_->team, 1, known_->times, {}});
}

void Clock::meet(const Clock& other) {
    if (same(other)) return;
    Known& known = own();
    known.others.clear();
    known.times.resize(std::min(known.times.size(), other.known_->times.size()));
    for (std::size_t i = 0; i < known.times.size(); ++i)
        known.times[i].time = std::min(known.times[i].time, other.known_->times[i].time);
}

void Clock::join(const Clock& other) {
    if (!other.known_ || same(other)) return;
    if (!known_) {
        *this = other;
        return;
    }
    const auto join_team = [this](const Clock& team) {
        if (covers(team)) return;
        Known& known = own();
        if (known.team == team.known_->team) return raise_all(known, team.known_->times);
        const auto found = std::find_if(known.others.begin(), known.others.end(),
                                        [&](const Clock& other) { return other.known_->team == team.known_->team; });
        if (found == known.others.end())
            known.others.push_back(team.without_others());
        else
            raise_all(found->own(), team.known_->times);
    };
    join_team(other);
    for (const Clock& team : other.known_->others) join_team(team);
}

}  // namespace emulator
