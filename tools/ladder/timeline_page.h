// What a page shows of a timeline.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

namespace flashladder {

/// Of a trace, as chrome_trace() makes it: {unit, kinds, places, rows, spans, left_out}. A row is a warp, or what goes
/// on without it, whose lanes never overlap; where several warps have one role, those of the first alone, as
/// tools/pictures/draw_timeline.py draws them. A span is [row, lane, kind, begin, length, place, times], of which kind
/// and place are indices; a length below 0 is an instant. At most so many spans, the first; what is left out is said in
/// words.
nlohmann::json timeline_page(const nlohmann::json& trace, std::size_t most = 20000);

}  // namespace flashladder
