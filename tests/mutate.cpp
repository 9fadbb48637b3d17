// Small mistakes in every solution (mutations.h): each is red, or mutations/NN.json says why it changes nothing.
//   line, what   of the mistake; `line` is the solution's, without spaces at its ends
//   why          it is none, or one that no test can see
// LADDER_MUTATIONS=12 takes so many, drawn by the seed; all: each. LADDER_MUTATIONS_RUNG=05,06: of these rungs alone.
// LADDER_MUTATIONS_LINES=90-120: of these lines of a solution, to go on where one has stopped.
// LADDER_MUTATIONS_JSON=FILE gets what became of each.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "environment.h"
#include "chapters.h"
#include "files.h"
#include "mutations.h"
#include "test_seed.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t of_each_rung = 80;  // some do not compile; 60 that do is what we want
constexpr double soon = 0.5;              // seconds of a test case
constexpr int longest = 300;              // seconds of a processor; the machine may do other things beside
constexpr int out_of_time = 128 + SIGXCPU;

/// A shell command in the build folder: its exit status, and what it has printed.
struct Done {
    int status = 0;
    std::string output;
};
Done shell(const std::string& command) {
    Done done;
    FILE* pipe = popen(fmt::format("cd '{}' && {{ {}\n}} 2>&1", BUILD, command).c_str(), "r");
    REQUIRE(pipe != nullptr);
    char piece[4096];
    while (const std::size_t n = std::fread(piece, 1, sizeof piece, pipe)) done.output.append(piece, n);
    done.status = WEXITSTATUS(pclose(pipe));
    return done;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

/// How a program with another text in the place of a rung's kernel is made: the commands of a target that has one, which
/// compile it, or a file that includes it.
struct Recipe {
    std::string source, object, program;  // as the commands name them
    std::string commands;
};
Recipe recipe_of(const std::string& target, const std::string& source, const std::string& compiled) {
    Recipe recipe{source, "", "bin/" + target, ""};
    std::istringstream lines(shell(fmt::format("ninja -t commands {}", target)).output);
    for (std::string line; std::getline(lines, line);) {
        if (const std::size_t at = line.find(" -c " + compiled); at != std::string::npos)
            recipe.object = line.substr(line.rfind(' ', at - 1) + 1, at - 1 - line.rfind(' ', at - 1));
        else if (recipe.object.empty() || line.find(recipe.object) == std::string::npos)
            continue;
        recipe.commands += line + " &&\n";
    }
    REQUIRE_MESSAGE(!recipe.object.empty(), "ninja knows no command that compiles ", source);
    recipe.commands += "true";
    return recipe;
}
/// The same for another source file and program.
std::string commands_for(const Recipe& recipe, const std::string& name) {
    const std::string path = "mutations/" + name, source = fmt::format("{}/{}.cu", BUILD, path);
    const std::string commands = replaced(replaced(recipe.commands, recipe.object, path + ".o"), recipe.source, source);
    return replaced(commands, "-o " + recipe.program + " ", "-o " + path + " ");
}

struct Rung {
    std::string name;
    Recipe quick, whole;  // without variants, and not optimised; and with all
    // Test cases of the quick program, as doctest takes them: those that take so little time that they come first, since
    // most mistakes are seen by them; and those that need variants.
    std::string soon_done, need_variants;
};

/// Names in a list of doctest's, in a shell's quotes.
void add_to_list(std::string& list, std::string name) {
    for (char& c : name)
        if (c == ',' || c == '\'' || c == '\\') c = '?';
    list += (list.empty() ? "" : ",") + name;
}

/// The name of the first case that has failed, and the check's words.
std::pair<std::string, std::string> first_failure(const std::string& output) {
    const std::size_t error = output.find("ERROR: "), begin = output.rfind("TEST CASE:", error);
    if (error == std::string::npos || begin == std::string::npos) return {"", output.substr(0, output.find('\n'))};
    const auto trimmed = [&](std::size_t from) {
        from = output.find_first_not_of(' ', from);
        return output.substr(from, output.find('\n', from) - from);
    };
    return {trimmed(begin + 10), trimmed(error)};
}

/// Builds what programs with mistakes are made of, with the solution in the kernel's place.
void build_parts(const std::map<std::string, std::string>& solutions) {
    fs::create_directories(fmt::format("{}/trials", BUILD));
    std::string targets, wholes;
    for (const auto& [name, text] : solutions) {
        const std::string number = number_of(name);
        write_file(fmt::format("{}/trials/{}.cu", BUILD, number), text);
        targets += fmt::format(" trial-{} test-{}", number, name);
        wholes += " chapter-" + number;
    }
    const Done built = shell("ninja" + targets);
    REQUIRE_MESSAGE(built.status == 0, built.output);
    // What chapter-NN is made of; of the learner's kernel nothing is asked.
    shell("ninja -k 0" + wholes);
}

Rung prepared(const std::string& name) {
    const std::string number = number_of(name), target = "trial-" + number, whole = "chapter-" + number;
    Rung rung{name, {}, {}, {}, {}};
    const std::string trial = fmt::format("{}/trials/{}.cu", BUILD, number),
                      chapter = fmt::format("{}/{}", SOURCE, find_chapter(name).file());
    rung.quick = recipe_of(target, trial, trial);
    rung.whole = recipe_of(whole, chapter, chapter);

    const Done run = shell(fmt::format("bin/{} --seed={} --duration=true", target, test_seed()));
    std::istringstream lines(run.output);
    std::vector<std::pair<double, std::string>> cases;
    std::set<std::string> need_variants;
    std::string current;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("TEST CASE:")) current = line.substr(line.find_first_not_of(' ', 10));
        if (line.find("compiled without variants") != std::string::npos) need_variants.insert(current);
        if (const std::size_t at = line.find(" s: "); at != std::string::npos && std::isdigit(line.front()))
            cases.emplace_back(std::stod(line), line.substr(at + 4));
    }
    REQUIRE_MESSAGE(!cases.empty(), run.output);
    for (const std::string& name : need_variants) add_to_list(rung.need_variants, name);
    for (const auto& [seconds, name] : cases)
        if (seconds < soon && !need_variants.contains(name)) add_to_list(rung.soon_done, name);
    return rung;
}

struct Fate {
    std::string verdict;  // "red", "green", "endless", "killed by signal 11", "does not compile"
    std::string by, message;
};

Fate fate_of(const Rung& rung, const std::string& name, const std::string& text) {
    write_file(fmt::format("{}/mutations/{}.cu", BUILD, name), text);
    const std::uint64_t seed = test_seed();
    const auto remove_files = [&] {
        for (const char* file : {"", ".o", ".o.d"}) fs::remove(fmt::format("{}/mutations/{}{}", BUILD, name, file));
    };
    const auto red_by = [&](int seeds, const std::string& filter) -> std::optional<Fate> {
        const Done run = shell(fmt::format("ulimit -S -t {}; mutations/{} --abort-after=1 --seed={} --seeds={} {}", longest,
                                           name, seed, seeds, filter));
        if (run.status == 0) return {};
        const auto [by, message] = first_failure(run.output);
        if (run.status == out_of_time) return Fate{"endless", by, ""};
        if (run.status > 128) return Fate{fmt::format("killed by signal {}", run.status - 128), by, message};
        return Fate{"red", by, message};
    };
    for (const bool quick : {true, false}) {
        const Done built = shell(commands_for(quick ? rung.quick : rung.whole, name));
        if (built.status != 0) return {"does not compile", "", built.output.substr(0, 300)};
        std::optional<Fate> fate;
        if (quick && !rung.soon_done.empty()) fate = red_by(1, fmt::format("'--test-case={}'", rung.soon_done));
        if (quick && !fate)
            fate = red_by(1, fmt::format("'--test-case-exclude={},{}'", rung.soon_done, rung.need_variants));
        if (!quick) fate = red_by(2, "");
        remove_files();
        if (fate) return *fate;
    }
    return {"green", "", ""};
}

std::string line_of(const std::string& text, int line) {
    std::istringstream lines(text);
    std::string found;
    for (int i = 0; i < line; ++i) std::getline(lines, found);
    const std::size_t begin = found.find_first_not_of(' ');
    return begin == std::string::npos ? "" : found.substr(begin);
}

TEST_CASE("no small mistake in a kernel is green") {
    const std::string asked = environment("LADDER_MUTATIONS", "12"), rungs = environment("LADDER_MUTATIONS_RUNG", ""),
                      lines = environment("LADDER_MUTATIONS_LINES", "1-100000");
    const auto dash = lines.find('-');
    REQUIRE_MESSAGE(dash != lines.npos, "LADDER_MUTATIONS_LINES is like 90-120");
    const int first_line = std::stoi(lines), last_line = std::stoi(lines.substr(dash + 1));
    struct Drawn {
        std::string rung;
        Mutation mutation;
    };
    std::vector<Drawn> drawn;
    std::map<std::string, std::string> solutions;
    for (const auto& folder : fs::directory_iterator(fmt::format("{}/solutions", SOURCE))) {
        const std::string name = folder.path().filename();
        if (!fs::exists(fmt::format("{}/{}.json", MUTATIONS, name))) continue;  // nothing to learn by filling it in
        if (!rungs.empty() && ("," + rungs + ",").find("," + number_of(name) + ",") == std::string::npos) continue;
        solutions[name] = read_file(fmt::format("{}/{}.cu", folder.path().string(), find_chapter(name).operation));
        for (const Mutation& mutation : most_telling(mutations(solutions[name]), of_each_rung))
            if (first_line <= mutation.line && mutation.line <= last_line) drawn.push_back({name, mutation});
    }
    REQUIRE(!drawn.empty());
    std::mt19937_64 random(test_seed());
    if (asked != "all") {
        std::ranges::shuffle(drawn, random);
        drawn.resize(std::min(drawn.size(), static_cast<std::size_t>(std::stoul(asked))));
    }
    std::ranges::stable_sort(drawn, {}, [](const Drawn& d) { return std::pair(d.rung, d.mutation.at); });

    std::map<std::string, Json> judged;
    for (const auto& [name, text] : solutions)
        judged[name] = Json::parse(read_file(fmt::format("{}/{}.json", MUTATIONS, name)));
    const auto reason = [&](const Drawn& d) -> std::string {
        for (const Json& known : judged.at(d.rung))
            if (known.at("what") == d.mutation.what && known.at("line") == line_of(solutions[d.rung], d.mutation.line))
                return known.at("why");
        return "";
    };

    fs::create_directories(fmt::format("{}/mutations", BUILD));
    std::erase_if(solutions, [&](const auto& solution) {
        return std::ranges::none_of(drawn, [&](const Drawn& d) { return d.rung == solution.first; });
    });
    build_parts(solutions);
    std::map<std::string, std::future<Rung>> preparing;
    for (const auto& [name, text] : solutions) preparing[name] = std::async(std::launch::async, prepared, name);
    std::map<std::string, Rung> ready;
    for (auto& [name, rung] : preparing) ready.emplace(name, rung.get());

    Json results = Json::array();
    std::map<std::string, std::size_t> sums;
    const std::string file = environment("LADDER_MUTATIONS_JSON", "");
    std::atomic<std::size_t> next = 0;
    std::mutex writing;
    const auto work = [&] {
        for (std::size_t k; (k = next++) < drawn.size();) {
            const auto& [rung, mutation] = drawn[k];
            const std::string& solution = solutions[rung];
            const Fate fate =
                fate_of(ready.at(rung), fmt::format("{}-{}", number_of(rung), k), mutated(solution, mutation));
            const std::string verdict = fate.verdict == "green" && !reason(drawn[k]).empty() ? "judged" : fate.verdict;
            const std::lock_guard lock(writing);
            fmt::print("{} line {:3} {:<5} {:<16} {:<60} {}\n", number_of(rung), mutation.line, mutation.exercise,
                       verdict, mutation.what, fate.by);
            std::fflush(stdout);
            ++sums[verdict];
            results.push_back({{"rung", rung},
                               {"line", mutation.line},
                               {"exercise", mutation.exercise},
                               {"what", mutation.what},
                               {"verdict", verdict},
                               {"by", fate.by},
                               {"message", fate.message}});
            // After each: who stops it has what is there.
            if (!file.empty()) write_file(file, Json{{"mutations", results}, {"sums", sums}}.dump(
                                                     2, ' ', false, Json::error_handler_t::replace) + "\n");  // cut texts
        }
    };
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) workers.emplace_back(work);
    for (std::thread& worker : workers) worker.join();

    for (const Json& result : results)
        if (result.at("verdict") == "green") {
            const std::string rung = result.at("rung");
            const int line = result.at("line");
            FAIL_CHECK(fmt::format("{}, line {}: {}: all tests are green\n  {}", rung, line,
                                   result.at("what").get<std::string>(), line_of(solutions[rung], line)));
        }
    for (const auto& [verdict, times] : sums) fmt::print("{}: {}\n", verdict, times);
}

}  // namespace
}  // namespace flashladder
