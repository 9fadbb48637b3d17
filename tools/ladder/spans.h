// A timeline: what the warps of one block did when, as a table and as a Chrome trace.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "table.h"

namespace flashladder {

/// One thing that a warp has done, or several alike in a row. Times are in nanoseconds, or in moments: an order.
struct Span {
    int launch = 0, warp = 0;
    std::string what;  // "load", "copy", "wait", "product", ...
    std::string line;  // "solutions/10-warp-specialization/attention.cu:89"
    double begin = 0, end = 0;
    double happened = 0;  // when what went on without the warp was done; else `end`
    int times = 1;        // 0: nothing came of it, a wait that was given up
};

/// A kernel, and which warps do what in it.
struct TimelineKernel {
    std::string name;
    int blocks = 0;           // of its grid
    bool warpgroups = false;  // its warps are named by warpgroup and by what that does
};

struct Timeline {
    nlohmann::json about;                 // rung, shape, where and when it was recorded, unit
    int block = 0;                        // that this is of
    bool is_time = false;                 // else the times are moments
    std::vector<TimelineKernel> kernels;  // one for each launch
    std::vector<Span> spans;
};

/// What a warp on a GPU has noted: it is about to do something, or has done it.
struct Moment {
    int warp = 0;
    double at = 0;
    std::string what;  // "load", "wait", "waited", "product", "product done", ...: common/ptx/timeline.h
    std::string line;
};

/// The spans between these moments, which are warp by warp, each in its order; in the order in which the spans begin. A
/// load is asked for at its moment, and nobody notes when it arrives. A product lasts to the end of the wait for it. Of
/// two moments of a warp that are closer than the recorder can tell, the first is lost: a wait that has only one end
/// then takes no time, or lasts to the warp's next moment.
std::vector<Span> spans_of(const std::vector<Moment>& moments);

/// Of what a warp did in a row, all of one kind on one source line, a single span: from the first begin to the last
/// end, and how often. A wait that was given up joins the next one; two that came to something remain two, because a
/// span of both would hide what is between them. `spans` are in the order in which they begin, and so is what comes
/// back.
std::vector<Span> collapse(const std::vector<Span>& spans);

/// Numbers all moments of the spans anew, from 0 without gaps. What takes no time takes one moment.
void number_moments(std::vector<Span>& spans);

/// "producer", "consumer 0", "warpgroup 1", "warps": what each warp of a launch does, as its warpgroup's copies and
/// products tell. Consumers are counted from the first.
using Roles = std::map<std::pair<int, int>, std::string>;  // by launch and warp
Roles roles(const Timeline& timeline);

/// Chrome's trace events, which Perfetto opens: a process is the block of a launch, its threads are the warps. What
/// goes on without a warp has threads of its own, so many that those on one never overlap. `args` has role, warp, line,
/// its text, and how often. One moment is a microsecond there.
nlohmann::json chrome_trace(const Timeline& timeline);

/// What copies to shared memory have beside them.
struct Overlap {
    int copies = 0;
    int beside_products = 0;  // of them; a warp of their block has begun a product while they were under way
    double products = 0;      // that a warp has begun meanwhile, of those that multiply, and on average of all copies
};
Overlap overlap(const std::vector<Span>& spans);

/// For each role what it did: how often, from when to when, and for how long, by its warps on average.
Table summary(const Timeline& timeline);

}  // namespace flashladder
