// The program `stages`: the verbs of ./ladder that run solutions, or make documents of what they did.
#include <fmt/format.h>

#include <cstdio>

#include "bench.h"
#include "command_line.h"
#include "count.h"
#include "docs.h"

namespace {

using namespace flashladder;

int do_it(const CommandLine& line, const std::vector<std::string>& arguments) {
    if (line.verb == "run") return run_ladder(line.run);
    if (line.verb == "launch") return launch_once(find_chapter(line.chapter), line.launch);
    if (line.verb == "profile") return profile_rung(find_chapter(line.chapter), line.profile);
    if (line.verb == "timeline") return show_timeline(find_chapter(line.chapter), line.timeline);
    if (line.verb == "bench") return bench(line.bench, arguments);
    if (line.verb == "count") return count_rungs({line.rungs, line.json, line.check_json, line.check_sample});
    if (line.verb == "docs") return line.check ? check_docs() : write_docs();
    throw std::invalid_argument(fmt::format("./ladder {} is not for this program, but for bin/ladder", line.verb));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const CommandLine line = parse(argc, argv);
        return line.exit_status ? *line.exit_status : do_it(line, {argv + 1, argv + argc});
    } catch (const std::exception& error) {
        fmt::print(stderr, "ladder: {}\n", error.what());
        return 1;
    }
}
