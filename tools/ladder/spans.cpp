#include "spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "files.h"

namespace flashladder {
namespace {

constexpr int warpgroup_warps = 4;

bool waits(const Span& span) { return span.what == "wait" || span.what == "barrier"; }
bool goes_on_alone(const Span& span) { return span.happened > span.end; }
bool is_instant(const Span& span) { return span.what == "arrive" || span.happened <= span.begin; }

/// "consumer 0, warp 4", or for what goes on alone "consumer 0, warp 4: copy"; "warp 4" where warps have no roles.
std::string thread_name(const Timeline& timeline, const std::string& role, const Span& span) {
    return (timeline.kernels[std::size_t(span.launch)].warpgroups ? role + ", " : "") +
           fmt::format("warp {}", span.warp) + (goes_on_alone(span) ? fmt::format(": {}", span.what) : "");
}

}  // namespace

std::vector<Span> spans_of(const std::vector<Moment>& moments) {
    const std::map<std::string, std::string> ends = {{"waited", "wait"}, {"barrier passed", "barrier"}};
    std::vector<Span> spans;
    std::vector<std::size_t> products;  // that this warp has not waited for
    for (std::size_t i = 0; i < moments.size(); ++i) {
        const Moment& m = moments[i];
        const bool same_warp = i > 0 && moments[i - 1].warp == m.warp;
        if (!same_warp) products.clear();
        if (m.what.starts_with("product done")) {
            const std::size_t left = std::min<std::size_t>(m.what == "product done but last", products.size());
            for (; products.size() > left; products.erase(products.begin())) spans[products.front()].happened = m.at;
            continue;
        }
        const auto end = ends.find(m.what);
        if (end != ends.end() && same_warp && moments[i - 1].what == end->second) continue;  // its begin has seen it
        const std::string what = end != ends.end() ? end->second : m.what == "load" ? "copy" : m.what;
        Span span{0, m.warp, what, m.line, m.at, m.at, m.at};
        const bool lasts = (m.what == "wait" || m.what == "barrier") && i + 1 < moments.size();
        if (lasts && moments[i + 1].warp == m.warp) span.end = span.happened = moments[i + 1].at;
        if (m.what == "product") products.push_back(spans.size());
        spans.push_back(span);
    }
    std::ranges::stable_sort(spans, {}, &Span::begin);
    return spans;
}

std::vector<Span> collapse(const std::vector<Span>& spans) {
    std::vector<Span> result;
    std::map<std::pair<int, int>, std::size_t> last;  // of each warp of a launch
    for (const Span& span : spans) {
        const auto [at, is_first] = last.try_emplace({span.launch, span.warp}, result.size());
        if (!is_first) {
            Span& before = result[at->second];
            const bool alike = before.what == span.what && before.line == span.line;
            if (alike && (!waits(span) || before.times == 0)) {
                before.end = std::max(before.end, span.end);
                before.happened = std::max(before.happened, span.happened);
                before.times += span.times;
                continue;
            }
        }
        at->second = result.size();
        result.push_back(span);
    }
    return result;
}

void number_moments(std::vector<Span>& spans) {
    std::map<double, int> numbers;
    for (const Span& span : spans)
        for (const double moment : {span.begin, span.end, span.happened}) numbers[moment];
    int n = 0;
    for (auto& [moment, number] : numbers) number = n++;
    for (Span& span : spans) {
        span.begin = numbers.at(span.begin);
        span.end = numbers.at(span.end) + 1;
        span.happened = numbers.at(span.happened) + 1;
    }
}

Roles roles(const Timeline& timeline) {
    std::map<int, std::set<int>> copying, multiplying;  // the warpgroups of each launch that do
    for (const Span& span : timeline.spans) {
        if (span.what == "copy") copying[span.launch].insert(span.warp / warpgroup_warps);
        if (span.what == "product") multiplying[span.launch].insert(span.warp / warpgroup_warps);
    }
    const auto name = [&](int launch, int warp) -> std::string {
        if (!timeline.kernels[std::size_t(launch)].warpgroups) return "warps";
        const std::set<int>&copies = copying[launch], &products = multiplying[launch];
        const auto only_copies = [&](int w) { return copies.contains(w) && !products.contains(w); };
        const int warpgroup = warp / warpgroup_warps;
        if (only_copies(warpgroup)) return "producer";
        if (products.contains(warpgroup) && std::ranges::any_of(copies, only_copies))
            return fmt::format("consumer {}", std::distance(products.begin(), products.find(warpgroup)));
        return fmt::format("warpgroup {}", warpgroup);
    };
    Roles result;
    for (const Span& span : timeline.spans) {
        std::string& role = result[{span.launch, span.warp}];
        if (role.empty()) role = name(span.launch, span.warp);
    }
    return result;
}

nlohmann::json chrome_trace(const Timeline& timeline) {
    const Roles who = roles(timeline);
    nlohmann::json events = nlohmann::json::array();
    const auto name = [&](const char* kind, std::size_t process, int thread, const std::string& text) {
        events.push_back({{"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}});
    };
    for (std::size_t i = 0; i < timeline.kernels.size(); ++i) {
        const TimelineKernel& kernel = timeline.kernels[i];
        name("process_name", i, 0, fmt::format("{}: block {} of {}", kernel.name, timeline.block, kernel.blocks));
    }
    /// A thread of the trace, up to its last event.
    struct Thread {
        int number;
        double end;
    };
    using Row = std::tuple<int, int, bool, std::string>;  // launch, warp, what goes on alone
    std::map<Row, std::vector<Thread>> rows;
    for (const Span& span : timeline.spans)
        rows[{span.launch, span.warp, goes_on_alone(span), goes_on_alone(span) ? span.what : ""}];
    // Threads are sorted by their numbers, and those that overlapping spans need are behind the first of their row.
    constexpr int most_overlaps = 100;
    int number = 0;
    for (auto& [row, threads] : rows) threads.push_back({most_overlaps * ++number, 0});
    std::set<int> named;
    const double microsecond = timeline.is_time ? 1000 : 1;
    std::map<std::string, std::string> texts;
    for (const Span& span : timeline.spans) {
        auto& threads = rows[{span.launch, span.warp, goes_on_alone(span), goes_on_alone(span) ? span.what : ""}];
        auto thread = std::ranges::find_if(threads, [&](const Thread& t) { return t.end <= span.begin; });
        if (thread == threads.end()) thread = threads.insert(threads.end(), {threads.back().number + 1, 0});
        thread->end = span.happened;
        if (named.insert(thread->number).second)
            name("thread_name", std::size_t(span.launch), thread->number,
                 thread_name(timeline, who.at({span.launch, span.warp}), span));
        const auto [text, is_new] = texts.try_emplace(span.line);
        if (is_new) text->second = source_line(span.line);
        nlohmann::json event = {{"ph", "X"},
                                {"name", span.what},
                                {"cat", span.what},
                                {"pid", span.launch},
                                {"tid", thread->number},
                                {"ts", span.begin / microsecond},
                                {"args",
                                 {{"role", who.at({span.launch, span.warp})},
                                  {"warp", span.warp},
                                  {"line", span.line},
                                  {"source", text->second},
                                  {"times", span.times}}}};
        if (is_instant(span))
            event["ph"] = "i", event["s"] = "t";
        else
            event["dur"] = (span.happened - span.begin) / microsecond;
        events.push_back(std::move(event));
    }
    return {
        {"traceEvents", events}, {"displayTimeUnit", timeline.is_time ? "ns" : "ms"}, {"otherData", timeline.about}};
}

Overlap overlap(const std::vector<Span>& spans) {
    struct Products {
        std::vector<const Span*> spans;
        std::set<int> warps;
    };
    std::map<int, Products> products;  // by launch
    for (const Span& span : spans)
        if (span.what == "product")
            products[span.launch].spans.push_back(&span), products[span.launch].warps.insert(span.warp);
    Overlap result;
    for (const Span& span : spans) {
        if (span.what != "copy") continue;
        result.copies += span.times;
        const auto& [beside, warps] = products[span.launch];
        int meanwhile = 0;
        for (const Span* product : beside)
            if (span.begin < product->begin && product->begin < span.happened) meanwhile += product->times;
        if (meanwhile == 0) continue;
        result.beside_products += span.times;
        result.products += span.times * double(meanwhile) / double(warps.size());
    }
    if (result.copies > 0) result.products /= result.copies;
    return result;
}

Table summary(const Timeline& timeline) {
    struct Sum {
        std::set<int> warps;
        int times = 0;
        double first = 0, last = 0, length = 0;
    };
    const Roles names = roles(timeline);
    std::map<std::tuple<int, std::string, std::string>, Sum> sums;
    for (const Span& span : timeline.spans) {
        Sum& sum = sums[{span.launch, names.at({span.launch, span.warp}), span.what}];
        if (sum.warps.empty()) sum.first = span.begin;
        sum.warps.insert(span.warp);
        sum.times += span.times;
        sum.last = std::max(sum.last, span.happened);
        sum.length += span.happened - span.begin;
    }
    Table table({"kernel", "who", "warps", "what", "times", "from", "to", "a warp, in all"});
    for (const auto& [key, sum] : sums) {
        const auto& [launch, who, what] = key;
        table.add({timeline.kernels[std::size_t(launch)].name, who, fmt::format("{}", sum.warps.size()), what,
                   fmt::format("{}", sum.times), fmt::format("{:.0f}", sum.first), fmt::format("{:.0f}", sum.last),
                   fmt::format("{:.0f}", sum.length / double(sum.warps.size()))});
    }
    return table;
}

}  // namespace flashladder
