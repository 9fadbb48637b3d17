// The spans of `ladder timeline`, from moments and activities made up by hand.
#include "spans.h"

#include <doctest/doctest.h>

#include <map>
#include <tuple>

namespace flashladder {
namespace {

Span span(int warp, const char* what, const char* line, double begin, double end, double happened, int times = 1) {
    return {0, warp, what, line, begin, end, happened, times};
}
using Line = std::tuple<int, std::string, double, double, double>;
std::vector<Line> as_lines(const std::vector<Span>& spans) {
    std::vector<Line> lines;
    for (const Span& s : spans) lines.emplace_back(s.warp, s.what, s.begin, s.end, s.happened);
    return lines;
}

TEST_CASE("what a warp does in a row on one line is one span, whatever other warps do meanwhile") {
    const auto spans =
        collapse({span(0, "load", "a:1", 1, 1, 1), span(1, "load", "a:1", 2, 2, 2), span(0, "load", "a:1", 3, 3, 9),
                  span(0, "load", "a:2", 4, 4, 4), span(0, "store", "a:2", 5, 5, 5), span(0, "load", "a:1", 6, 6, 6)});
    CHECK(as_lines(spans) == std::vector<Line>{{0, "load", 1, 3, 9},
                                               {1, "load", 2, 2, 2},
                                               {0, "load", 4, 4, 4},
                                               {0, "store", 5, 5, 5},
                                               {0, "load", 6, 6, 6}});
    CHECK(spans[0].times == 2);
    CHECK(spans[1].times == 1);
}

TEST_CASE("a wait that was given up joins the next; two that came to something remain two") {
    const auto spans = collapse({span(0, "wait", "a:1", 1, 1, 1, 0), span(0, "wait", "a:1", 2, 2, 2, 0),
                                 span(0, "wait", "a:1", 3, 5, 5), span(0, "wait", "a:1", 6, 7, 7)});
    CHECK(as_lines(spans) == std::vector<Line>{{0, "wait", 1, 5, 5}, {0, "wait", 6, 7, 7}});
    CHECK(spans[0].times == 1);
}

TEST_CASE("launches are kept apart") {
    Span later = span(0, "load", "a:1", 2, 2, 2);
    later.launch = 1;
    CHECK(collapse({span(0, "load", "a:1", 1, 1, 1), later}).size() == 2);
}

TEST_CASE("moments are numbered without gaps, and what takes no time takes one") {
    std::vector<Span> spans = {span(0, "load", "", 10, 10, 10), span(0, "copy", "", 20, 20, 70),
                               span(1, "wait", "", 30, 80, 80)};
    number_moments(spans);
    CHECK(as_lines(spans) == std::vector<Line>{{0, "load", 0, 1, 1}, {0, "copy", 1, 2, 4}, {1, "wait", 2, 5, 5}});
}

TEST_CASE("moments of a GPU: waits and products have two ends") {
    const auto spans = spans_of({{0, 1, "load", "a:1"},
                                 {0, 2, "wait", "a:2"},
                                 {0, 5, "waited", "a:2"},
                                 {4, 1, "barrier", "a:6"},
                                 {4, 3, "barrier passed", "a:6"},
                                 {4, 4, "arrive", "a:7"}});
    CHECK(
        as_lines(spans) ==
        std::vector<Line>{{0, "copy", 1, 1, 1}, {4, "barrier", 1, 3, 3}, {0, "wait", 2, 5, 5}, {4, "arrive", 4, 4, 4}});
}

TEST_CASE("moments of a GPU: a wait for all products but the last ends the others") {
    const auto spans = spans_of({{4, 1, "product", "a:1"},
                                 {4, 2, "product", "a:2"},
                                 {4, 5, "product done but last", "a:3"},
                                 {4, 6, "product", "a:4"},
                                 {4, 9, "product done", "a:5"}});
    CHECK(as_lines(spans) ==
          std::vector<Line>{{4, "product", 1, 1, 5}, {4, "product", 2, 2, 9}, {4, "product", 6, 6, 9}});
}

TEST_CASE("moments of a GPU: one end of a wait is lost, and nothing reaches into the next warp") {
    const auto spans = spans_of({{0, 1, "waited", "a:1"},
                                 {0, 2, "wait", "a:2"},
                                 {0, 4, "product", "a:3"},
                                 {0, 6, "wait", "a:2"},
                                 {4, 7, "waited", "a:2"},
                                 {4, 8, "product done", "a:4"}});
    CHECK(as_lines(spans) == std::vector<Line>{{0, "wait", 1, 1, 1},
                                               {0, "wait", 2, 4, 4},
                                               {0, "product", 4, 4, 4},
                                               {0, "wait", 6, 6, 6},
                                               {4, "wait", 7, 7, 7}});
}

Timeline of(const std::vector<Span>& spans) {
    Timeline timeline;
    timeline.about["unit"] = "moments";
    timeline.kernels = {{"kernel", 8, true}};
    timeline.spans = spans;
    return timeline;
}

TEST_CASE("roles: who copies and does not multiply is the producer, and there are consumers only beside one") {
    const Span copies = span(0, "copy", "", 1, 1, 3), waits = span(1, "wait", "", 1, 2, 2),
               multiplies = span(6, "product", "", 4, 4, 5), too = span(8, "product", "", 4, 4, 5);
    Timeline specialized = of({copies, waits, multiplies, too});
    CHECK(roles(specialized) ==
          Roles{{{0, 0}, "producer"}, {{0, 1}, "producer"}, {{0, 6}, "consumer 0"}, {{0, 8}, "consumer 1"}});
    CHECK(roles(of({copies, span(2, "product", "", 4, 4, 5), multiplies})) ==
          Roles{{{0, 0}, "warpgroup 0"}, {{0, 2}, "warpgroup 0"}, {{0, 6}, "warpgroup 1"}});
    specialized.kernels[0].warpgroups = false;
    CHECK(roles(specialized).at({0, 6}) == "warps");
}

TEST_CASE("the trace: events on one thread never overlap, what goes on alone has threads of its own") {
    const Timeline timeline =
        of({span(0, "copy", "README.md:1", 0, 1, 8), span(0, "copy", "", 1, 2, 5), span(0, "arrive", "", 2, 3, 3),
            span(0, "copy", "", 6, 7, 9), span(0, "wait", "", 3, 7, 7)});
    const auto trace = chrome_trace(timeline);
    std::map<std::string, std::string> names;
    std::map<int, double> ends;
    std::map<int, int> events_on;
    for (const auto& event : trace.at("traceEvents")) {
        const int thread = event.at("tid");
        if (event.at("ph") == "M") {
            names[std::to_string(thread)] = event.at("args").at("name");
            continue;
        }
        ++events_on[thread];
        if (event.at("ph") != "X") continue;
        CHECK(event.at("ts").get<double>() >= ends[thread]);
        ends[thread] = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
    CHECK(events_on.size() == 3);  // the warp's own, and two for copies
    int copies = 0, own = 0;
    for (const auto& [thread, name] : names) {
        copies += name == "producer, warp 0: copy";
        own += name == "producer, warp 0";
    }
    CHECK(copies == 2);
    CHECK(own == 1);
    CHECK(names.at("0") == "kernel: block 0 of 8");
    const auto& first = trace.at("traceEvents").at(2);
    CHECK(first.at("name") == "copy");
    CHECK(first.at("dur") == 8);
    CHECK(first.at("args").at("role") == "producer");
    CHECK(first.at("args").at("source").get<std::string>().find("FlashLadder") != std::string::npos);
    CHECK(trace.at("otherData").at("unit") == "moments");
}

TEST_CASE("the trace: nanoseconds become microseconds, and a load that is only asked for is an instant") {
    Timeline timeline = of({span(0, "copy", "", 1000, 1000, 1000), span(0, "wait", "", 1500, 4000, 4000)});
    timeline.is_time = true;
    const auto events = chrome_trace(timeline).at("traceEvents");
    CHECK(events.at(2).at("ph") == "i");
    CHECK(events.at(2).at("ts") == 1.0);
    CHECK(events.back().at("ts") == 1.5);
    CHECK(events.back().at("dur") == 2.5);
}

TEST_CASE("copies and the products that begin before they arrive, by launch") {
    // Of three copies the first two last through a product of warp 4 and two of warp 5; those of another launch, or
    // before a copy and when it has arrived, do not count.
    std::vector<Span> spans = {span(4, "product", "", 0, 1, 1),  span(0, "copy", "", 1, 2, 8, 2),
                               span(4, "product", "", 3, 4, 9),  span(5, "product", "", 5, 6, 9, 2),
                               span(5, "product", "", 8, 9, 10), span(0, "copy", "", 11, 12, 20)};
    Span other = span(4, "product", "", 15, 16, 16);
    other.launch = 1;
    spans.push_back(other);
    const Overlap found = overlap(spans);
    CHECK(found.copies == 3);
    CHECK(found.beside_products == 2);
    CHECK(found.products == doctest::Approx(2 * (3 / 2.0) / 3));
    CHECK(overlap({other}).copies == 0);
}

TEST_CASE("the summary adds up what the warps of a role did") {
    const std::string text = summary(of({span(0, "copy", "", 0, 1, 8, 3), span(4, "product", "", 9, 10, 13),
                                         span(5, "product", "", 11, 12, 13, 2), span(5, "product", "", 20, 21, 24)})).plain();
    CHECK(text.find("producer        1  copy         3     0   8               8") != std::string::npos);
    CHECK(text.find("consumer 0      2  product      4     9  24               5") != std::string::npos);
}

}  // namespace
}  // namespace flashladder
