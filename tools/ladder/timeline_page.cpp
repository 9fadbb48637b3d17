#include "timeline_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace flashladder {
namespace {

using nlohmann::json;

constexpr std::size_t most_warps = 4;  // where warps have no roles

/// The index of a value in a list, at whose end it is put where it is not there.
std::size_t index_in(json& list, std::map<std::string, std::size_t>& known, const std::string& key, const json& value) {
    const auto [at, is_new] = known.try_emplace(key, list.size());
    if (is_new) list.push_back(value);
    return at->second;
}

/// Nanoseconds of microseconds, thousandths of moments.
double rounded(double time) { return std::round(time * 1000) / 1000; }

}  // namespace

nlohmann::json timeline_page(const json& trace, std::size_t most) {
    const json& about = trace.at("otherData");
    using Thread = std::pair<int, int>;       // process and thread
    using Who = std::pair<int, std::string>;  // process and role
    // By name: braces around two values of JSON may be a list as well.
    const auto thread_of = [](const json& event) {
        return Thread(event.at("pid").get<int>(), event.at("tid").get<int>());
    };
    std::map<int, std::string> kernels;
    std::map<Thread, std::string> names;
    std::map<Who, std::set<int>> warps;
    std::vector<const json*> events;
    const auto role_of = [](const json& event) { return event.at("args").at("role").get<std::string>(); };
    for (const json& event : trace.at("traceEvents")) {
        const int process = event.at("pid");
        if (event.at("ph") != "M") {
            events.push_back(&event);
            warps[{process, role_of(event)}].insert(event.at("args").at("warp").get<int>());
            continue;
        }
        const std::string name = event.at("args").at("name");
        if (event.at("name") == "process_name")
            kernels[process] = name.substr(0, name.find(':'));
        else
            names[thread_of(event)] = name;
    }

    std::set<std::string> few;  // in words
    std::map<Who, std::set<int>> shown;
    for (const auto& [who, all] : warps) {
        const std::size_t n = std::min(all.size(), who.second == "warps" ? most_warps : 1);
        shown[who] = {all.begin(), std::next(all.begin(), std::ptrdiff_t(n))};
        const std::string words = n == all.size()         ? ""
                                  : who.second == "warps" ? fmt::format("{} of {} warps are drawn.", n, all.size())
                                                          : "Of each role one warp is drawn.";
        if (!words.empty()) few.insert(words);
    }
    json left_out = few;
    std::erase_if(events, [&](const json* event) {
        return !shown.at(Who(event->at("pid").get<int>(), role_of(*event)))
                    .contains(event->at("args").at("warp").get<int>());
    });
    if (events.size() > most) {
        left_out.push_back(
            fmt::format("Of {} intervals these are the first {}: --trace FILE has them all.", events.size(), most));
        events.resize(most);
    }

    // Rows from above, by process and thread; the threads of one name are its lanes.
    json rows = json::array();
    std::map<Thread, std::pair<std::size_t, int>> places_of_threads;  // row and lane
    std::set<Thread> there;
    for (const json* event : events) there.insert(thread_of(*event));
    std::map<std::string, std::size_t> known_rows;
    for (const Thread& thread : there) {
        const std::string name = (kernels.size() > 1 ? kernels.at(thread.first) + ", " : "") + names.at(thread);
        const std::size_t row =
            index_in(rows, known_rows, fmt::format("{} {}", thread.first, name),
                     {{"name", name}, {"lanes", 0}, {"alone", names.at(thread).find(": ") != std::string::npos}});
        const int lane = rows[row]["lanes"];
        places_of_threads[thread] = {row, lane};
        rows[row]["lanes"] = lane + 1;
    }

    json kinds = json::array(), places = json::array(), spans = json::array();
    std::map<std::string, std::size_t> known_kinds, known_places;
    for (const json* event : events) {
        const auto& [row, lane] = places_of_threads.at(thread_of(*event));
        const json& args = event->at("args");
        const std::string kind = event->at("name"), line = args.at("line");
        spans.push_back({row, lane, index_in(kinds, known_kinds, kind, kind), rounded(event->at("ts")),
                         event->contains("dur") ? rounded(event->at("dur")) : -1,
                         index_in(places, known_places, line, {{"line", line}, {"source", args.at("source")}}),
                         args.at("times")});
    }
    return {{"unit", about.value("backend", "cpu") == "gpu" ? json("microseconds") : about.at("unit")},
            {"kinds", kinds},
            {"places", places},
            {"rows", rows},
            {"spans", spans},
            {"left_out", left_out}};
}

}  // namespace flashladder
