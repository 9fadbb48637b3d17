// Pages of `--page`: what is in them, from traces and counts made up by hand, and that nothing in a source breaks them.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "page.h"
#include "profile_page.h"
#include "spans.h"
#include "timeline_page.h"

namespace flashladder {
namespace {

using nlohmann::json;

/// What a browser takes for the text of the page's data: up to the first end of a script.
std::string data_in(const std::string& page) {
    const std::string begins = "id=\"data\">";
    const std::size_t from = page.find(begins) + begins.size();
    return page.substr(from, page.find("</script", from) - from);
}

TEST_CASE("a page has its data whole, whatever a source line says, and nothing is taken for HTML or a place to fill in") {
    const std::string wicked = "</script><script>alert(1)</script> <!-- {{kind}} {{data}} & \xff";
    const json data = {{"title", "a < b & {{data}}"}, {"about", ""}, {"report", wicked}};
    const std::string text = page("report", data);
    const json found = json::parse(data_in(text));
    CHECK(found.at("title") == data.at("title"));
    CHECK(found.at("report") == wicked.substr(0, wicked.size() - 1) + "\xEF\xBF\xBD");  // no UTF-8: said to be unknown
    CHECK(text.find("<title>a &lt; b &amp; {{data}}</title>") != std::string::npos);
    CHECK(text.find("alert(1)</") == std::string::npos);
    CHECK(text.find("at(\"report\").textContent = data.report;") != std::string::npos);
    CHECK(text.ends_with("</html>\n"));
}

TEST_CASE("a table says which of its columns have numbers") {
    Table table({"kernel", "moved", "times"});
    table.add({"a", "4.2 MB", ""});
    table.add({"b", "", "2.00"});
    const json found = to_json(table, "By kernel");
    CHECK(found.at("title") == "By kernel");
    CHECK(found.at("header") == json{"kernel", "moved", "times"});
    CHECK(found.at("rows").at(1) == json{"b", "", "2.00"});
    CHECK(found.at("numbers") == json{false, true, true});
}

Span span(int warp, const char* what, double begin, double end, double happened, const char* line = "README.md:1") {
    return {0, warp, what, line, begin, end, happened, 1};
}

TEST_CASE("a timeline's page: one warp of a role, copies under way in lanes of one row, indices for words") {
    Timeline timeline;
    timeline.about["unit"] = "moments";
    timeline.kernels = {{"kernel", 8, true}};
    timeline.spans = {span(0, "copy", 0, 1, 8),    span(1, "wait", 0, 2, 2), span(0, "copy", 1, 2, 5),
                      span(4, "product", 3, 4, 6, "README.md:2"), span(4, "arrive", 7, 8, 8)};
    const json found = timeline_page(chrome_trace(timeline));
    REQUIRE(found.at("rows").size() == 3);  // warp 1 is a producer, too
    CHECK(found.at("rows").at(0) == json{{"name", "producer, warp 0: copy"}, {"lanes", 2}, {"alone", true}});
    CHECK(found.at("rows").at(1).at("name") == "consumer 0, warp 4");
    CHECK(found.at("left_out") == json{"Of each role one warp is drawn."});
    CHECK(found.at("kinds") == json{"copy", "product", "arrive"});
    CHECK(found.at("places").size() == 2);
    CHECK(found.at("places").at(0).at("source").get<std::string>().find("FlashLadder") != std::string::npos);
    // row, lane, kind, begin, length, place, times
    CHECK(found.at("spans") == json{{0, 0, 0, 0.0, 8.0, 0, 1}, {0, 1, 0, 1.0, 4.0, 0, 1}, {2, 0, 1, 3.0, 3.0, 1, 1}, {1, 0, 2, 7.0, -1, 0, 1}});

    const json few = timeline_page(chrome_trace(timeline), 2);
    CHECK(few.at("spans").size() == 2);
    CHECK(few.at("left_out").at(1) == "Of 4 intervals these are the first 2: --trace FILE has them all.");
}

TEST_CASE("a timeline's page: four warps where they have no roles; kernels are named where there are several") {
    Timeline timeline;
    timeline.about["unit"] = "moments";
    timeline.kernels = {{"first", 8, false}, {"second", 8, false}};
    for (int warp = 0; warp < 6; ++warp) timeline.spans.push_back(span(warp, "load", warp, warp + 1, warp + 1));
    timeline.spans.push_back(span(0, "store", 7, 8, 8));
    timeline.spans.back().launch = 1;
    const json found = timeline_page(chrome_trace(timeline));
    REQUIRE(found.at("rows").size() == 5);
    CHECK(found.at("rows").at(3).at("name") == "first, warp 3");
    CHECK(found.at("rows").at(4).at("name") == "second, warp 0");
    CHECK(found.at("left_out") == json{"4 of 6 warps are drawn."});
}

TEST_CASE("a profile's page: the kernel's own file first, lines of all launches summed, sums that are the totals") {
    emulator::Work one, other;
    one.exponentials = 5;
    one.shared_of(emulator::Access::read) = {.accesses = 1, .requested_bytes = 128, .wavefronts = 4, .conflicts = 3};
    other.global_of(emulator::Access::write) = {.accesses = 1, .requested_bytes = 100, .used_bytes = 100, .sectors = 4};
    emulator::CountedWork work;
    work.launches.resize(2);
    work.launches[0].lines = {{"CMakeLists.txt:2", one}, {"README.md:3", other}};
    work.launches[1].lines = {{"/nowhere/math.h:7", other}, {"CMakeLists.txt:2", one}};
    for (auto& launch : work.launches)
        for (const auto& line : launch.lines) launch.total += line.work;

    const json found = profile_page(work, "README.md");
    std::vector<std::string> names;
    for (const json& count : found.at("counts")) names.push_back(count.at("name"));
    CHECK(names == std::vector<std::string>{"requested bytes", "moved bytes", "wavefronts", "conflicts", "exponentials",
                                            "divisions", "barriers", "named barriers", "matrix instructions"});
    const json& files = found.at("files");
    REQUIRE(files.size() == 3);
    CHECK(files.at(0).at("path") == "README.md");
    CHECK(files.at(0).at("text").get<std::string>().starts_with("# FlashLadder"));
    CHECK(files.at(0).at("lines") == json{{3, 100, 128, 0, 0, 0, 0, 0, 0, 0}});
    CHECK(files.at(1).at("text") == nullptr);
    CHECK(files.at(1).at("lines") == json{{7, 100, 128, 0, 0, 0, 0, 0, 0, 0, ""}});
    CHECK(files.at(2).at("lines") == json{{2, 0, 0, 8, 6, 10, 0, 0, 0, 0}});
    for (std::size_t c = 0; c < names.size(); ++c) {
        std::uint64_t sum = 0;
        for (const json& file : files)
            for (const json& line : file.at("lines")) sum += line.at(c + 1).get<std::uint64_t>();
        CHECK(sum == found.at("counts").at(c).at("total"));
    }
    CHECK(!found.at("counts").at(0).contains("solution"));

    emulator::CountedWork solution = work;
    solution.launches.resize(1);
    const json beside = profile_page(work, "README.md", &solution);
    CHECK(beside.at("counts").at(4).at("total") == 10);
    CHECK(beside.at("counts").at(4).at("solution") == 5);
}

}  // namespace
}  // namespace flashladder
