// The `ladder` program as a learner uses it: in a copy of the project, with chapters solved, broken and begun.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "command_result.h"
#include "exercises.h"
#include "files.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// A copy of the project, built by copy_project.cmake, with chapter 01 as the starter.
class Project {
public:
    Project() {
        const char* folder = std::getenv("LADDER_TEST_PROJECT");
        REQUIRE_MESSAGE(folder, "run this through ctest, which makes the copy that LADDER_TEST_PROJECT names");
        root_ = folder;
        fs::remove(chapter(1) + ".1");
        write_file(chapter(1), make_starter(solution(), "all"));
    }

    std::string solution() const { return read_file(root_ + "/solutions/01-minimal-flash/attention.cu"); }
    std::string chapter(int number) const {
        for (const auto& entry : fs::directory_iterator(root_ + "/chapters"))
            if (entry.path().filename().string().starts_with(fmt::format("{:02}-", number)))
                return entry.path().string() + "/attention.cu";
        return "";
    }

    CommandResult ladder(const std::string& arguments) const {
        const std::string log = (fs::temp_directory_path() / fmt::format("ladder-{}.log", getpid())).string();
        const int status =
            std::system(fmt::format("cd / && '{}/build/cpu/bin/ladder' {} > {} 2>&1", root_, arguments, log).c_str());
        const CommandResult result{WEXITSTATUS(status), read_file(log)};
        fs::remove(log);
        return result;
    }
    std::string solution(int number) const {
        return read_file(fmt::format("{}/solutions/{}/attention.cu", root_,
                                     fs::path(chapter(number)).parent_path().filename().string()));
    }
    std::string root() const { return root_; }
    std::string program() const { return root_ + "/build/cpu/bin/ladder"; }

private:
    std::string root_;
};

/// Another chapter than 01, which is put back at the end of the scope.
class Borrowed {
public:
    Borrowed(const Project& project, int number) : file_(project.chapter(number)), starter_(read_file(file_)) {}
    Borrowed(const Borrowed&) = delete;
    ~Borrowed() { write_file(file_, starter_); }
    void write(std::string_view text) const { write_file(file_, text); }

private:
    std::string file_, starter_;
};

/// `./ladder watch NN`, as a shell starts it behind an &.
class Watch {
public:
    Watch(const Project& project, const std::string& chapter) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);  // whom it leaves behind, we get
        fs::remove(log_);
        process_ = fork();
        if (process_ != 0) return;
        signal(SIGINT, SIG_IGN);
        if (!std::freopen("/dev/null", "r", stdin) || !std::freopen(log_.c_str(), "w", stdout) || dup2(1, 2) < 0)
            _exit(1);
        execl(project.program().c_str(), "ladder", "watch", chapter.c_str(), "--seed", "1", nullptr);
        _exit(127);
    }
    Watch(const Watch&) = delete;
    ~Watch() {
        kill(process_, SIGKILL);
        fs::remove(log_);
    }

    std::string output() const { return fs::exists(log_) ? read_file(log_) : ""; }
    /// Waits until it has said this after `from` bytes of output. Returns where that ends.
    std::size_t await(const std::string& words, std::size_t from) const {
        for (int i = 0; i < 1200; ++i) {
            const std::string text = output();
            if (const std::size_t at = text.find(words, std::min(from, text.size())); at != std::string::npos)
                return at + words.size();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        FAIL_CHECK("it never says '", words, "', but: ", output());
        return output().size();
    }
    /// Its status after SIGINT.
    int interrupt() const {
        kill(process_, SIGINT);
        int status = 0;
        waitpid(process_, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    std::string log_ = (fs::temp_directory_path() / fmt::format("ladder-watch-{}.log", getpid())).string();
    pid_t process_;
};

TEST_CASE("what does not exist: one clear line, and not status 0") {
    const Project project;
    const std::pair<const char*, const char*> wrong[] = {
        {"test 99", "there is no chapter 99 (there are 00, 01"},
        {"test nonsense", "there is no chapter nonsense"},
        {"hint 1.9", "there is no exercise 1.9 (chapter 01 has 1.1, 1.2)"},
        {"hint 14b.9", "there is no exercise 14b.9 (chapter 14b has 14b.1, 14b.2)"},
        {"watch 99", "there is no chapter 99"},
        {"hint 77", "there is no chapter 77"},
        {"solve 99", "there is no chapter 99"},
        {"reset 99", "there is no chapter 99"},
        {"profile 99", "there is no chapter 99"},
        {"profile 01 --d 80", "01-minimal-flash: head_dim 80"},
        {"profile 01 --causal", "causal"},
        {"profile 02 --shared 1000", "only 1000 bytes of shared memory"},
        {"profile 02 --n 64 --json /dev/null/file", "/dev/null"},
        {"profile 02 --n 64 --roofline /dev/null/file", "/dev/null"},
        {"profile 02 --n 64 --page /proc/nothing/file.html", "/proc/nothing/file.html cannot be written"},
        {"profile 02 --n 64 --page", "--page"},
        {"profile 01 --d 80 --page /tmp/never.html", "01-minimal-flash: head_dim 80"},
        {"profile 02 --card X100", "no card 'X100'; there are H100, H200, A100"},
        {"timeline 99", "there is no chapter 99"},
        {"timeline 01 --d 80", "01-minimal-flash: head_dim 80"},
        {"timeline 02 --n 64 --block 999999", "there is no block 999999: tiled_flash has 1 (0 to 0)"},
        {"timeline 02 --n 64 --block=-1", "--block"},
        {"timeline 02 --n 64 --trace /dev/null/file", "/dev/null"},
        {"timeline 02 --n 64 --svg /proc/nothing/file.svg", "/proc/nothing/file.svg cannot be written"},
        {"timeline 02 --n 64 --page /proc/nothing/file.html", "/proc/nothing/file.html cannot be written"},
        {"timeline 02 --n 64 --page", "--page"},
        {"timeline 01 --d 80 --page /tmp/never.html", "01-minimal-flash: head_dim 80"},
        {"profile 99 --mine", "there is no chapter 99"},
        {"timeline 99 --mine", "there is no chapter 99"},
        {"launch 99 --mine", "there is no chapter 99"},
        {"launch 03 --heads 3 --kv-heads 2", "kv_heads 2"},
        {"launch 01 --n 0", "n_q is 0"},
        {"launch 03 --n -5", "n_q is -5, but must be at least 1"},
        {"launch 03 --heads -2", "heads is -2, but must be at least 1"},
        {"launch 03 --n-k -7", "n_k is -7, but must be at least 1"},
        {"launch 03 --kv-heads 0", "kv_heads is 0, but must be at least 1"},
        {"launch 04 --batch 65536 --n 1", "batch is 65536, but at most 65535"},
        {"profile 03 --n -5", "n_q is -5, but must be at least 1"},
        {"profile 03 --kv-heads -3", "kv_heads is -3, but must be at least 1"},
        {"bench 99", "there is no chapter 99"},
        {"bench --d 84", "27-merge: head_dim 84 is not supported (only 64, 128, 256), nor is another rung able to"},
        {"bench 01 --causal", "01-minimal-flash: causal is not supported"},
        {"bench --heads 6 --kv-heads 4", "heads 6 is not a multiple of kv-heads 4"},
        {"bench --n 0", "--n is 0"},
        {"bench --batch=-1", "--batch is -1"},
        {"bench --dtype fp8", "dtype 'fp8' is not f32, bf16 or f16"},
        {"bench 04 --dtype f32", "04-tensor-cores: dtype f32 is not supported"},
        {"bench --dtype f32 --n 4096", "only if they are named"},
        {"bench 00 --json /proc/nothing/results.json", "/proc/nothing/results.json cannot be written"},
        {"bench --mine", "--mine takes one rung, not 0"},
        {"diff 99", "there is no chapter 99"},
        {"count 99", "there is no chapter 99"},
        {"count 01 --json /tmp/counts.json", "--json and --check take no rung"},
        {"count --check /nonexistent/file", "/nonexistent/file"},
        {"count --check /proc/version", "/proc/version is no result file of ladder count"},
        {"count --json /proc/nothing/counts.json", "/proc/nothing/counts.json cannot be written"},
        {"run --seed 1 --json /nonexistent/folder/file --no-timing --bogus", "--bogus"},
    };
    for (const auto& [arguments, words] : wrong) {
        const CommandResult result = project.ladder(arguments);
        CHECK_MESSAGE(result.status != 0, std::string(arguments));
        CHECK_MESSAGE(result.says(words), std::string(arguments), " says: ", result.output);
    }
    CHECK(project.ladder("climb").status != 0);
    CHECK(project.ladder("test 99").one_line());
    CHECK(project.ladder("test 01 --seeds 0").status != 0);
    CHECK(project.ladder("launch 03 --n -5").one_line());
    CHECK(project.ladder("profile 03 --heads -2").one_line());
    for (const char* seed : {"abc", "7x", "-1"}) {
        setenv("LADDER_SEED", seed, 1);
        const CommandResult result = project.ladder("launch 01 --n 1");
        unsetenv("LADDER_SEED");
        CHECK(result.status == 1);
        CHECK(result.output == fmt::format("ladder: LADDER_SEED takes a whole number, not '{}'\n", seed));
    }
}

TEST_CASE("list: by exercise, what the last test said of this very text and of no other, and what is next") {
    const Project project;
    const std::string starter = read_file(project.chapter(1));
    const auto line = [&] {
        const std::string text = project.ladder("list").output;
        const std::size_t at = text.find("01-minimal-flash");
        REQUIRE(at != std::string::npos);
        return text.substr(at, text.find('\n', at) - at);
    };
    const auto ends_with_next = [&](const std::string& words) {
        return project.ladder("list").last_line().starts_with("next: " + words);
    };
    const std::string begun = replace_once(starter, "m_ij = 0,", "m_ij = 1,");
    const std::size_t line_of_1_2 =
        1 + std::size_t(std::count(starter.begin(), starter.begin() + long(starter.find("// EXERCISE 1.2")), '\n'));
    const std::string at_1_2 = fmt::format("exercise 1.2 at chapters/01-minimal-flash/attention.cu:{}", line_of_1_2);
    CHECK(line().ends_with("not begun"));
    write_file(project.chapter(1), starter + "// a comment\n");
    CHECK(line().ends_with("not begun"));
    write_file(project.chapter(1), starter + "int changed;\n");
    CHECK(line().ends_with("0 of 2 begun, open 1.1 1.2, changed outside the exercises"));
    write_file(project.chapter(1), begun);
    CHECK(line().ends_with("1 of 2 begun: 1.1, open 1.2"));
    CHECK(ends_with_next("./ladder test 01, " + at_1_2));

    CHECK(project.ladder("test 01").status == 1);
    CHECK(line().ends_with("1 of 2 begun: 1.1, open 1.2  red at 1.1"));
    CHECK(ends_with_next("./ladder test 01, exercise 1.1 at chapters/01-minimal-flash/attention.cu:"));
    write_file(project.chapter(1), begun + "\n");
    CHECK(line().ends_with("1.1, open 1.2"));
    CHECK(ends_with_next("./ladder test 01, " + at_1_2));
    write_file(project.chapter(1), begun);
    CHECK(line().ends_with("red at 1.1"));

    write_file(project.chapter(1), replace_once(begun, "// END 1.2", ""));
    CHECK(line().ends_with("1 of 2 begun: 1.1, markers gone 1.2"));
    write_file(project.chapter(1), project.solution());
    CHECK(line().ends_with("the solution"));
    CHECK(ends_with_next("read chapters/00-standard-attention/README.md; ./ladder test 00, exercise 0.1 at "));
    write_file(project.chapter(1), project.solution() + "\n");
    CHECK(line().ends_with("2 of 2 begun: 1.1 1.2"));
    CHECK(project.ladder("list").last_line() == "next: ./ladder test 01");
    fs::remove(project.chapter(0) + ".away");
    fs::rename(project.chapter(0), project.chapter(0) + ".away");
    write_file(project.chapter(1), project.solution());
    CHECK(project.ladder("list").says("00-standard-attention         missing\n"));
    CHECK(ends_with_next("./ladder reset 00 makes chapters/00-standard-attention/attention.cu"));
    fs::rename(project.chapter(0) + ".away", project.chapter(0));
}

TEST_CASE("an older version that is moved back is what is tested, though its time is older than what was built") {
    const Project project;
    const std::string aside = project.chapter(1) + ".aside";
    fs::copy_file(project.chapter(1), aside, fs::copy_options::overwrite_existing);
    fs::last_write_time(aside, fs::last_write_time(aside) - std::chrono::hours(1));
    write_file(project.chapter(1), project.solution());
    CHECK(project.ladder("test 01").status == 0);
    fs::rename(aside, project.chapter(1));
    CHECK(project.ladder("test 01").says("FAIL  EXERCISE 1.1"));
}

TEST_CASE("watch: every save is tested; red with a hint, green, a syntax error with its line; nothing is left behind") {
    const Project project;
    const Watch watch(project, "01");
    std::size_t at = watch.await("FAIL  EXERCISE 1.1", 0);
    at = watch.await("your code goes to chapters/01-minimal-flash/attention.cu:", at);
    at = watch.await("it begins: Thread r has row r of Q_i", at);
    at = watch.await("repeats this run", at);

    write_file(project.chapter(1), project.solution());  // beside it and renamed, as some editors do
    at = watch.await("chapters/01-minimal-flash/attention.cu, saved ", at);
    at = watch.await("ok    EXERCISE 1.1", at);
    at = watch.await("the exercises are green; now all else", at);

    // While all else is tested. In place, as other editors do.
    const std::string wrong = replace_once(project.solution(), "fmaxf(m_old, m_ij);", "fmaxf(m_old, m_ij;");
    const std::size_t line =
        1 + std::size_t(std::count(wrong.begin(), wrong.begin() + long(wrong.find("fmaxf(m_old, m_ij;")), '\n'));
    std::FILE* file = std::fopen(project.chapter(1).c_str(), "w");
    REQUIRE(file);
    CHECK(std::fputs(wrong.c_str(), file) >= 0);
    std::fclose(file);
    const std::size_t again = watch.await("saved again", at);
    CHECK(watch.output().substr(at, again - at).find("all green") == std::string::npos);
    at = watch.await("does not compile:\n\n", again);
    at = watch.await(fmt::format("chapters/01-minimal-flash/attention.cu:{}:", line), at);
    at = watch.await("error: ", at);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK(watch.output().find("error: ", at) == std::string::npos);  // the first one alone

    write_file(project.chapter(1), project.solution() + "\n");
    at = watch.await("chapters/01-minimal-flash/attention.cu, saved ", at);  // now something is built
    CHECK(watch.interrupt() == 130);
    CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
    CHECK(errno == ECHILD);
    CHECK(project.ladder("list").says("2 of 2 begun: 1.1 1.2\n"));  // and no result
}

std::string without_numbers(const std::string& line) {
    return std::regex_replace(line, std::regex("0x[0-9a-f]+|[0-9]+"), "#");
}

TEST_CASE("README's first five minutes are what happens, but for numbers") {
    const Project project;
    const std::string readme = read_file(README), fence = "```";
    const std::size_t begin = readme.find("$ ./ladder test 00 --seed 1\n");
    REQUIRE(begin != std::string::npos);
    std::istringstream recorded(readme.substr(begin, readme.find(fence, begin) - begin));
    const std::string solution = read_file(project.root() + "/solutions/00-standard-attention/attention.cu");
    write_file(project.chapter(0),
               replace_once(solution, "        __syncthreads();  // the tiles are about to be overwritten\n", ""));
    std::istringstream said(project.ladder("test 00 --seed 1").output);
    write_file(project.chapter(0), make_starter(solution, "all"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(said, line);) lines.push_back(without_numbers(line));
    std::size_t n = 0;
    std::string line;
    for (std::getline(recorded, line); std::getline(recorded, line); ++n)
        CHECK_MESSAGE(std::ranges::count(lines, without_numbers(line)) > 0, "not said any more: ", line);
    CHECK(n > 10);
}

TEST_CASE("hint and help") {
    const Project project;
    project.ladder("reset 00");
    const CommandResult question = project.ladder("hint 0.2"), direction = project.ladder("hint 0.2");
    CHECK(question.status == 0);
    CHECK(question.says("\nHint 1 of 3: "));
    CHECK(question.says("the same again gives the next one"));
    CHECK_FALSE(question.says("Hint 2"));
    CHECK(direction.says("\nHint 1 of 3: "));
    CHECK(direction.says("\nHint 2 of 3: "));
    project.ladder("hint 0.2");
    const CommandResult all = project.ladder("hint 0.2");
    CHECK(all.says("\nHint 3 of 3: "));
    CHECK(all.says("./ladder solve 00"));
    CHECK_FALSE(project.ladder("hint 0.1").says("Hint 2"));  // each exercise has its own
    project.ladder("reset 00");
    CHECK_FALSE(project.ladder("hint 0.2").says("Hint 2"));
    project.ladder("reset 00");
    CHECK(project.ladder("--help").says("hint"));
}

TEST_CASE("profile: the worst line first, counts beside the closed form, all of it as JSON") {
    const Project project;
    const std::string json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    const CommandResult result = project.ladder("profile 01 --n 64 --lines 1 --json " + json);
    CHECK(result.status == 0);
    CHECK(result.says("dot += Q_i[r * d + x] * K_j[c"));  // of 33 wavefronts 31 are conflicts
    CHECK(result.says("more lines"));
    CHECK(result.says("closed form"));
    const auto row = nlohmann::json::parse(read_file(json)).at("rows").at(0);
    fs::remove(json);
    CHECK(row.at("stage") == "01-minimal-flash");
    CHECK(row.at("counts").at("requested_bytes") == row.at("closed_form").at("requested_bytes"));
    CHECK(row.at("counts").at("total").at("exponentials") == 64 * 64 + 2 * 2 * 64);
    CHECK(row.at("launches").at(0).at("lines").size() > 5);
}

TEST_CASE("profile: what it costs by a model; without a GPU it says what it lacks and does the rest") {
    const Project project;
    const std::string json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    const CommandResult result = project.ladder("profile 01 --n 64 --card A100 --copies 100 --json " + json);
    CHECK(result.status == 0);
    CHECK(result.says("on an A100 by a model"));
    CHECK(result.says("for 100 such problems at once"));
    CHECK(result.says("Bound by shared memory."));
    CHECK(result.says("Not beside the profiler's counts: no "));
    const auto costs = nlohmann::json::parse(read_file(json)).at("rows").at(0).at("costs");
    fs::remove(json);
    CHECK(costs.at("bound") == "shared memory");
    CHECK(costs.at("copies") == 100);
    CHECK(costs.at("flops") == 4 * 64 * 64 * 64);  // tools/pictures/roofline.py draws by it
    CHECK(costs.at("units").size() == 8);
}

TEST_CASE("profile: a system without python3 lacks the profiler's counts, and nothing else") {
    const Project project;
    const std::string path = std::getenv("PATH");
    setenv("PATH", "/nowhere", 1);
    const CommandResult result = project.ladder("profile 01 --n 64");
    setenv("PATH", path.c_str(), 1);
    CHECK(result.status == 0);
    CHECK(result.says("Bound by "));
    CHECK(result.says("Not beside the profiler's counts: no python3"));
}

TEST_CASE("timeline: a table of who did what; by itself it writes no file, and says how to") {
    const Project project;
    const CommandResult result = project.ladder("timeline 00 --n 64 --d 32 --seed 1");
    CHECK(result.status == 0);
    CHECK(result.says("00-standard-attention, B 1 H 1 N 64 d 32 f32: block 0 on"));
    CHECK(result.says("an order, not time"));
    CHECK(result.says("multiply  warps"));
    CHECK(result.says("softmax   warps      4  exponential"));
    CHECK(result.says("--trace FILE"));
    // Before any work:
    for (const char* wrong : {"--block 1000", "--trace /dev/null/file", "--svg /proc/nothing/file.svg",
                              "--page /proc/nothing/file.html"})
        CHECK(project.ladder(std::string("timeline 00 --n 64 ") + wrong).one_line());
}

TEST_CASE("timeline: of every rung; the last block too") {
    const Project project;
    for (int rung = 0; rung <= 14; ++rung) {
        const CommandResult result = project.ladder(fmt::format("timeline {} --n 128 --seed 1", rung));
        CHECK_MESSAGE(result.status == 0, result.output);
        CHECK(result.says("store"));
        CHECK(result.says(rung < 9 ? " warps " : rung == 9 ? "warpgroup 0" : "producer"));
        CHECK(result.says("consumer 0") == (rung > 9));
    }
    CHECK(project.ladder("timeline 00 --n 64 --d 64 --block 1").status == 0);  // softmax alone has so many
}

TEST_CASE("timeline: the trace; no consumer multiplies before it has waited for the tile") {
    const Project project;
    const std::string file = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    for (int seed = 1; seed <= 5; ++seed) {
        const CommandResult result = project.ladder(fmt::format("timeline 10 --seed {} --trace {}", seed, file));
        CHECK(result.status == 0);
        CHECK(result.says("The trace is in " + file));
        const auto trace = nlohmann::json::parse(read_file(file));
        fs::remove(file);
        for (const char* key : {"rung", "shape", "backend", "gpu", "commit", "date", "unit"})
            CHECK(trace.at("otherData").contains(key));
        CHECK(trace.at("otherData").at("backend") == "cpu");

        std::map<int, std::vector<nlohmann::json>> products, waits;  // of the warps of consumers; for tiles
        std::vector<nlohmann::json> copies;                          // Q for both consumers, then K and V in turns
        std::set<std::string> names;
        for (const auto& event : trace.at("traceEvents")) {
            if (event.at("ph") == "X") CHECK(event.at("dur").get<double>() >= 0);
            const auto& args = event.at("args");
            if (event.at("name") == "thread_name") names.insert(args.at("name"));
            if (event.at("ph") == "M") continue;
            if (event.at("name") == "copy") copies.push_back(event);
            if (event.at("name") == "product") products[args.at("warp")].push_back(event);
            const bool for_tile = args.at("source").get<std::string>().find("_full[") != std::string::npos;
            // Of no times: a wait that was given up, to be begun again.
            if (event.at("name") == "wait" && for_tile && args.at("times") > 0) waits[args.at("warp")].push_back(event);
        }
        for (const char* name : {"producer, warp 0: copy", "consumer 0, warp 4: product", "consumer 1, warp 8"})
            CHECK(names.contains(name));
        REQUIRE(copies.size() == 2 + 2 * 4);
        CHECK(products.size() == 8);
        const auto begin = [](const nlohmann::json& event) { return event.at("ts").get<double>(); };
        const auto end = [&](const nlohmann::json& event) { return begin(event) + event.at("dur").get<double>(); };
        for (const auto& [warp, of_warp] : products) {
            REQUIRE(of_warp.size() == 8);  // S and P V of each tile
            REQUIRE(waits[warp].size() == 1 + 8);
            CHECK(end(waits[warp][0]) > end(copies[warp < 8 ? 0 : 1]));
            for (std::size_t i = 0; i < of_warp.size(); ++i) {
                CHECK(end(waits[warp][i + 1]) > end(copies[i + 2]));
                CHECK(begin(of_warp[i]) >= end(waits[warp][i + 1]));
                if (i + 1 < of_warp.size()) CHECK(end(of_warp[i]) <= begin(waits[warp][i + 2]));
            }
        }
    }
}

TEST_CASE("timeline: a picture, or what is missing for one; the rest is there in any case") {
    const Project project;
    const std::string picture = (fs::temp_directory_path() / fmt::format("ladder-{}.svg", getpid())).string();
    const CommandResult result = project.ladder("timeline 09 --n 64 --svg " + picture);
    CHECK(result.status == (fs::exists(picture) ? 0 : 1));
    CHECK(result.says("warpgroup 0"));
    if (fs::exists(picture)) {
        const std::string svg = read_file(picture);
        CHECK(svg.find("warpgroup 0, warp 0: copy") != std::string::npos);
        CHECK(svg.find("09-warpgroup-mma, block 0") != std::string::npos);
        CHECK(result.says("The picture is in " + picture));
        fs::remove(picture);
    } else {
        CHECK((result.says("pictures need matplotlib") || result.says("needs python3")));
    }
    const CommandResult roofline = project.ladder("profile 01 --n 64 --roofline " + picture);
    CHECK(roofline.status == (fs::exists(picture) ? 0 : 1));
    CHECK(roofline.says("Bound by "));
    fs::remove(picture);
}

TEST_CASE("launch runs a rung once; LADDER_COUNTS writes what any program launches") {
    const Project project;
    const std::string json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    setenv("LADDER_COUNTS", json.c_str(), 1);
    const CommandResult result = project.ladder("launch 00 --n 32 --d 32");
    unsetenv("LADDER_COUNTS");
    CHECK(result.status == 0);
    CHECK(result.says("00-standard-attention, B 1 H 1 N 32 d 32 f32: error"));
    const auto launches = nlohmann::json::parse(read_file(json)).at("launches");
    fs::remove(json);
    REQUIRE(launches.size() == 3);
    CHECK(launches.at(1).at("kernel") == "softmax");
    CHECK(launches.at(1).at("work").at("exponentials") == 32 * 32);
}

TEST_CASE("bench without a GPU: counts, and says so; what is wrong with the question before any work") {
    const Project project;
    const std::string json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    const CommandResult result = project.ladder("bench 01 3 --d 64 --n 64 --heads 4 --json " + json);
    CHECK(result.status == 0);
    CHECK(result.says("Counts, not times, because there is no GPU"));
    CHECK(result.says("B 1 H 1 N 64 d 64 (cut down from "));
    CHECK(result.says("B 1 H 1 N 64 d 64 causal (cut down from "));  // only 03 can
    CHECK(!result.says("02-shared-memory-tiling"));
    const auto results = nlohmann::json::parse(read_file(json));
    fs::remove(json);
    REQUIRE(results.at("rows").size() == 4);  // 00, 01, 03; causal 03
    CHECK(results.at("rows").at(0).at("stage") == "00-standard-attention");
    CHECK(results.at("rows").at(1).at("origin") == "solution");
    CHECK(results.at("rows").at(1).at("counts").at("total").at("exponentials") == 64 * 64 + 2 * 2 * 64);
    for (const char* key : {"gpu", "commit", "date"}) CHECK(results.contains(key));

    for (const char* wrong : {"bench 99", "bench --d 84", "bench --n 0", "bench 00 --json /proc/nothing/results.json"})
        CHECK(project.ladder(wrong).one_line());
}

TEST_CASE("bench --mine: your kernel beside the solution; a wrong one is not counted, and it is said") {
    const Project project;
    const std::string question = "bench 1 --d 32 --n 64 --mine --json ",
                      json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    const CommandResult starter = project.ladder(question + json);
    CHECK(starter.status == 1);
    CHECK(starter.says("01-minimal-flash (yours) is wrong, not counted: B 1 H 1 N 64 d 32 f32: O[batch 0"));
    const auto origins = [&] {
        const auto results = nlohmann::json::parse(read_file(json));
        std::vector<std::string> all;
        for (const auto& row : results.at("rows")) all.push_back(row.at("origin"));
        return all;
    };
    CHECK(origins() == std::vector<std::string>{"solution", "solution"});  // of 00 and 01

    CHECK(project.ladder("solve 01").status == 0);
    const CommandResult solved = project.ladder(question + json);
    CHECK_MESSAGE(solved.status == 0, solved.output);
    CHECK(solved.says("01-minimal-flash (yours)"));
    CHECK(origins() == std::vector<std::string>{"solution", "solution", "chapter"});
    const auto rows = nlohmann::json::parse(read_file(json)).at("rows");
    CHECK(rows.at(1).at("counts") == rows.at(2).at("counts"));  // built alike
    fs::remove(json);

    write_file(project.chapter(1), replace_once(project.solution(), "const Registration", "// const Registration"));
    CHECK(project.ladder("bench 1 --d 32 --n 64 --mine").says("chapters/01-minimal-flash/attention.cu registers no stage"));
    write_file(project.chapter(1), "this is no C++\n");
    const CommandResult broken = project.ladder("bench 1 --d 32 --n 64 --mine");
    CHECK(broken.status == 1);
    CHECK(broken.says("chapters/01-minimal-flash/attention.cu does not compile:"));
}

TEST_CASE("profile --mine: scalar loads ask for the same bytes in more sectors; by the lines of your file") {
    const Project project;
    const Borrowed chapter(project, 2);
    const std::string
        json = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string(),
        question = "profile 2 --mine --n 64 --seed 1 --lines 30 --json " + json, solution = project.solution(2),
        wide = "values = reinterpret_cast<const float4&>(tensor[std::size_t(first_row + r) * d + x]);",
        scalar = "for (int k = 0; k < 4; ++k) (&values.x)[k] = tensor[std::size_t(first_row + r) * d + x + k];";
    const auto asked = [](const nlohmann::json& row, const char* what) {
        std::uint64_t sum = 0;
        for (const auto& kind : row.at("counts").at("total").at("global")) sum += kind.at(what).get<std::uint64_t>();
        return sum;
    };
    const auto rows = [&] { return nlohmann::json::parse(read_file(json)).at("rows"); };

    chapter.write(replace_once(solution, wide, scalar));
    const CommandResult loads = project.ladder(question);
    CHECK_MESSAGE(loads.status == 0, loads.output);
    CHECK(!loads.says("Yours is wrong"));
    CHECK(loads.says("if (first_row + r < N) for (int k = 0; k < 4; ++k)"));  // the text of the learner's line
    REQUIRE(rows().size() == 2);
    const auto yours = rows().at(0), theirs = rows().at(1);
    CHECK(yours.at("origin") == "chapter");
    CHECK(theirs.at("origin") == "solution");
    CHECK(asked(yours, "requested_bytes") == asked(theirs, "requested_bytes"));
#ifndef __clang__  // which copies the solution's part by part, too
    // Of what is read from Q, K and V, which is nearly all that is read, each warp now takes 16 sectors four times.
    CHECK(asked(yours, "sectors") > 3 * asked(theirs, "sectors"));
    CHECK(asked(yours, "accesses") > 2 * asked(theirs, "accesses"));
#endif
    CHECK(yours.at("counts").at("total").at("shared") == theirs.at("counts").at("total").at("shared"));
    for (const auto& line : yours.at("launches").at(0).at("lines"))
        CHECK(!line.at("line").get<std::string>().starts_with("solutions/"));
    const std::string line = loads.output.substr(loads.output.find("sectors of 32 bytes"));
    CHECK(line.find(fmt::format(" {} ", asked(yours, "sectors"))) <
          line.find(fmt::format(" {} ", asked(theirs, "sectors"))));
    CHECK(line.find(fmt::format(" {} ", asked(theirs, "sectors"))) < line.find('\n'));

    chapter.write(solution);
    CHECK(project.ladder(question).status == 0);
    CHECK(rows().at(0).at("counts").at("total") == rows().at(1).at("counts").at("total"));  // built alike
    CHECK(rows().at(0).at("right") == true);
    fs::remove(json);

    chapter.write(replace_once(solution, "S[r][c] += dot(q[r], k);", "S[r][c] += 2 * dot(q[r], k);"));
    CHECK(project.ladder("profile 2 --mine --n 64").says("Yours is wrong: B 1 H 1 N 64 d 64 f32: O[batch 0"));
    const CommandResult wrong = project.ladder("launch 2 --mine --n 64 --seed 1");
    CHECK(wrong.status == 1);
    CHECK(wrong.output.starts_with("02-shared-memory-tiling (yours), B 1 H 1 N 64 d 64 f32: error "));
    CHECK(wrong.says("O[batch 0"));
    const std::string store = "l[i + row + r] = l_new[r]";
    const auto begin = solution.begin();
    const auto store_line = 1 + std::count(begin, begin + static_cast<long>(solution.find(store)), '\n');
    const std::string place = fmt::format("attention.cu:{}: ", store_line);
    chapter.write(replace_once(solution, store, "l[i + row + r + (1 << 28)] = l_new[r]"));
    const CommandResult failing = project.ladder("profile 2 --mine --n 64 --seed 1");
    CHECK(failing.status == 1);
    CHECK(
        failing.output.starts_with("chapters/02-shared-memory-tiling/attention.cu fails:\n\n"
                                   "  chapters/02-shared-memory-tiling/" +
                                   place));
    CHECK(failing.says("out of bounds: 4-byte write"));
    const CommandResult launched = project.ladder("launch 2 --mine --n 64 --seed 1");
    CHECK(launched.status == 1);
    CHECK(launched.output.starts_with("chapters/02-shared-memory-tiling/attention.cu fails:\n\n"));
    CHECK(launched.says(place));
    CHECK(project.ladder("timeline 2 --mine --n 64 --seed 1")
              .says(place + "kernel: cudaErrorIllegalAddress: out of bounds"));
    chapter.write(replace_once(solution, "void launch(const ForwardArgs& args) {", "void launch(const ForwardArgs& args) {\n    if (args.lse != args.Q) return;"));
    CHECK(project.ladder("timeline 2 --mine --n 64").says("launch() launches no kernel yet: there is nothing to record"));
    CHECK(project.ladder("profile 2 --mine --n 64").says("launches no kernel yet: there is nothing to count"));
    chapter.write(solution);
    CHECK(project.ladder("launch 2 --mine --n 64").status == 0);
    CHECK(project.ladder("launch 2 --mine --n 0").says("n_q is 0, but must be at least 1"));
    chapter.write(replace_once(solution, "const Registration", "// const Registration"));
    CHECK(project.ladder("profile 2 --mine").output ==
          "ladder: chapters/02-shared-memory-tiling/attention.cu registers no stage: its last lines should\n");
    chapter.write("this is no C++\n");
    const CommandResult broken = project.ladder("profile 2 --mine");
    CHECK(broken.status == 1);
    CHECK(broken.output.starts_with("chapters/02-shared-memory-tiling/attention.cu does not compile:"));
}

/// What the page of --page has for its script; the file is gone then.
nlohmann::json data_of_page(const std::string& file) {
    const std::string text = read_file(file), begins = "id=\"data\">";
    fs::remove(file);
    const std::size_t from = text.find(begins);
    REQUIRE(from != std::string::npos);
    return nlohmann::json::parse(text.substr(from + begins.size(), text.find("</script>", from) - from - begins.size()));
}

TEST_CASE("--page: what it shows of your kernel is what is printed; a kernel that fails leaves no older run there") {
    const Project project;
    const Borrowed chapter(project, 2);
    const std::string file = (fs::temp_directory_path() / fmt::format("ladder-{}.html", getpid())).string(),
                      solution = project.solution(2);
    const auto page = [&](const std::string& verb) {
        const CommandResult result = project.ladder(fmt::format("{} 2 --mine --n 64 --seed 1 --page {}", verb, file));
        CHECK(result.says("The page is in " + file));
        return std::pair(data_of_page(file), result);
    };

    // With more exponentials than the solution has, and with what would end a script.
    chapter.write(replace_once(solution, "m_ij = fmaxf(m_ij, S[r][c]);", "m_ij = fmaxf(m_ij, S[r][c] + 0 * expf(S[r][c]));  // </script>"));
    const auto [profile, printed] = page("profile");
    CHECK(printed.status == 0);
    CHECK(profile.at("title") == "02-shared-memory-tiling (yours), B 1 H 1 N 64 d 64 f32");
    const auto& own = profile.at("files").at(0);
    CHECK(own.at("path") == "chapters/02-shared-memory-tiling/attention.cu");
    CHECK(own.at("text") == read_file(project.chapter(2)));
    const std::map<std::string, std::string> names = {{"requested bytes", "requested bytes"},
                                                      {"wavefronts", "shared wavefronts"},
                                                      {"conflicts", "of them bank conflicts"},
                                                      {"exponentials", "exponentials"},
                                                      {"divisions", "divisions"},
                                                      {"barriers", "barriers of blocks"}};
    std::size_t compared = 0;
    for (std::size_t c = 0; c < profile.at("counts").size(); ++c) {
        const auto& count = profile.at("counts").at(c);
        std::uint64_t sum = 0;
        for (const auto& of_file : profile.at("files"))
            for (const auto& line : of_file.at("lines")) sum += line.at(c + 1).get<std::uint64_t>();
        CHECK(sum == count.at("total"));
        const auto name = names.find(count.at("name"));
        if (name == names.end()) continue;
        const std::size_t at = printed.output.find("\n" + name->second + " ");
        REQUIRE_MESSAGE(at != std::string::npos, name->second);
        std::istringstream line(printed.output.substr(at + 1 + name->second.size()));
        std::uint64_t yours = 0, theirs = 0;
        line >> yours >> theirs;
        CHECK_MESSAGE(yours == sum, name->second);
        CHECK_MESSAGE(theirs == count.at("solution"), name->second);
        CHECK((yours > theirs) == (name->second == "exponentials"));
        ++compared;
    }
    CHECK(compared >= 5);
    for (const auto& table : profile.at("tables"))
        for (const auto& row : table.at("rows"))
            for (const auto& cell : row) CHECK(printed.says(cell.get<std::string>()));

    const auto [timeline, told] = page("timeline");
    CHECK(told.status == 0);
    CHECK(timeline.at("rows").size() == 4);  // warps
    CHECK(timeline.at("left_out").at(0).get<std::string>().ends_with(" warps are drawn."));
    CHECK(timeline.at("spans").size() > 30);
    bool of_own = false;
    for (const auto& at : timeline.at("places"))
        of_own |= at.at("line").get<std::string>().starts_with("chapters/02-shared-memory-tiling/attention.cu:");
    CHECK(of_own);
    // The table counts all warps, and the rows are four of them.
    std::map<std::string, int> printed_times, drawn_times;
    for (const auto& row : timeline.at("tables").at(0).at("rows")) printed_times[row.at(3)] += std::stoi(row.at(4).get<std::string>());
    for (const auto& span : timeline.at("spans")) drawn_times[timeline.at("kinds").at(span.at(2).get<std::size_t>())] += span.at(6).get<int>();
    const int warps = std::stoi(timeline.at("tables").at(0).at("rows").at(0).at(2).get<std::string>());
    CHECK(warps >= 4);
    REQUIRE(drawn_times.contains("load"));
    for (const auto& [kind, times] : drawn_times) CHECK_MESSAGE(times * warps == 4 * printed_times[kind], kind);

    chapter.write(replace_once(solution, "S[r][c] += dot(q[r], k);", "S[r][c] += 2 * dot(q[r], k);"));
    CHECK(page("profile").first.at("report").get<std::string>().starts_with("Yours is wrong: B 1 H 1 N 64 d 64 f32: O[batch 0"));
    chapter.write(replace_once(solution, "l[i + row + r] = l_new[r]", "l[i + row + r + (1 << 28)] = l_new[r]"));
    for (const char* verb : {"profile", "timeline"}) {
        const auto [failed, result] = page(verb);
        CHECK(result.status == 1);
        CHECK(failed.at("title") == "chapters/02-shared-memory-tiling/attention.cu fails");
        CHECK(failed.at("report").get<std::string>().find("out of bounds: 4-byte write") != std::string::npos);
        CHECK(result.says(failed.at("report").get<std::string>()));
    }
}

TEST_CASE("timeline --mine: how long copies may last, and how many products there are beside them, whatever the seed") {
    const Project project;
    const Borrowed chapter(project, 7);
    const std::string solution = project.solution(7);
    const auto numbers = [&](const std::string& text, const char* what, int seed) {  // yours, and the solution's
        chapter.write(text);
        const CommandResult result = project.ladder(fmt::format("timeline 7 --mine --n 512 --seed {}", seed));
        CHECK_MESSAGE(result.status == 0, result.output);
        CHECK(result.says("07-async-copies (yours), B 1 H 1 N 512"));
        const std::size_t at = result.output.find(what);
        REQUIRE(at != std::string::npos);
        std::istringstream line(result.output.substr(at + std::string(what).size()));
        std::pair<double, double> found;
        line >> found.first >> found.second;
        CHECK(!line.fail());
        return found;
    };
    const char *meanwhile = "matrix instructions of a warp meanwhile, on average", *beside = "beside a product";
    for (const int seed : {1, 2}) {
        const auto [same, solutions] = numbers(solution, meanwhile, seed);
        CHECK(same > 0.9 * solutions);
        CHECK(same < 1.1 * solutions);
        const std::string one_slot =
            replace_once(solution, "Config<128, 64, 2, d == 64>>", "Config<128, 64, 1, d == 64>>");
        CHECK(numbers(one_slot, meanwhile, seed).first < solutions / 2);
    }
    std::string waits =
        replace_once(solution, "V, t + stages - 1);\n", "V, t + stages - 1);\nptx::cp_async_wait<0>();\n");
    waits = replace_once(waits, "K, t + stages);\n", "K, t + stages);\nptx::cp_async_wait<0>();\n");
    const auto [yours, solutions] = numbers(waits, beside, 1);
    CHECK(yours < solutions / 4);
}

TEST_CASE("diff: from the rung below, without exercise markers") {
    const Project project;
    const CommandResult result = project.ladder("diff 3 --answers");
    CHECK(result.status == 0);
    CHECK(result.says("--- solutions/02-shared-memory-tiling/attention.cu\n+++ solutions/03-row-swapped-loops/attention.cu"));
    CHECK(result.says("+            const float rescale = expf(m[r] - reference);"));
    CHECK(!result.says("STARTER"));
    CHECK(project.ladder("diff 00").says("the lowest rung"));
    CHECK(project.ladder("diff 13 --answers").says("\nMoved to common/lcsf/turns.h: Turns"));
}

TEST_CASE("diff: what an exercise is to become is not shown before the chapter is green") {
    const Project project;
    const std::string answer = "+            const float rescale = expf(m[r] - reference);";
    const CommandResult open = project.ladder("diff 03");
    CHECK(open.status == 0);
    CHECK(open.says("ladder: your chapter 03 is not green yet: its exercises are open here too"));
    CHECK(open.says("\n+++ chapters/03-row-swapped-loops/attention.cu"));
    CHECK(open.says("EXERCISE 3.1"));
    CHECK(!open.says(answer));
    CHECK(project.ladder("diff 03 --answers").says(answer));
    const Borrowed chapter(project, 3);
    chapter.write(project.solution(3));
    const CommandResult solved = project.ladder("diff 03");
    CHECK(solved.says(answer));
    CHECK(!solved.says("not green yet"));
}

TEST_CASE("a starter is red and names its lowest open exercise; solved, it is green; reset, it is the starter again") {
    const Project project;
    const std::string starter = read_file(project.chapter(1));
    CHECK(project.ladder("list").says("not begun"));

    const CommandResult red = project.ladder("test 01");
    CHECK(red.status == 1);
    CHECK(red.says("FAIL  EXERCISE 1.1"));
    CHECK(red.says("a hint: ./ladder hint 1.1"));
    CHECK(red.says("also red, and not begun: 1.2"));

    // The first exercise done by hand: the next one is named.
    const std::string solution = project.solution();
    const std::size_t from = solution.find("            float m_ij = -INFINITY, l_ij = 0;"),
                      to = solution.find("            // END 1.1");
    const std::size_t begin = starter.find("            const float m_ij = 0,"), end = starter.find("            // END 1.1");
    write_file(project.chapter(1), starter.substr(0, begin) + solution.substr(from, to - from) + starter.substr(end));
    const CommandResult next = project.ladder("test 01");
    CHECK(next.status == 1);
    CHECK(next.says("ok    EXERCISE 1.1"));
    CHECK(next.says("a hint: ./ladder hint 1.2"));

    const CommandResult solve = project.ladder("solve 01");
    CHECK(solve.says("your version is kept as chapters/01-minimal-flash/attention.cu.1"));
    CHECK(read_file(project.chapter(1) + ".1").find("m_ij = fmaxf") != std::string::npos);
    CHECK(read_file(project.chapter(1)) == solution);
    const CommandResult green = project.ladder("test 01");
    CHECK_MESSAGE(green.status == 0, green.output);
    CHECK(green.says("all green"));

    CHECK(project.ladder("reset 01").status == 0);
    CHECK(read_file(project.chapter(1)) == starter);
}

TEST_CASE("a syntax error in a chapter stops that chapter alone") {
    const Project project;
    write_file(project.chapter(1), read_file(project.chapter(1)) + "this is no C++\n");
    const CommandResult broken = project.ladder("test 01");
    CHECK(broken.status == 1);
    CHECK(broken.output.starts_with("chapters/01-minimal-flash/attention.cu does not compile:"));
    CHECK(broken.says("error"));
    CHECK(project.ladder("test 01 --solution").status == 0);  // of the same rung
    CHECK(project.ladder("run --no-timing").status == 0);
}

TEST_CASE("of several seeds the first that fails is reported, with what repeats the run") {
    const Project project;
    write_file(project.chapter(1), replace_once(project.solution(), "    launch_kernel(minimal_flash,",
                                                "    static int launches = 0;\n    if (++launches == 1) return;\n"
                                                "    launch_kernel(minimal_flash,"));
    const CommandResult result = project.ladder("test 01 --seed 5 --seeds 2");
    CHECK(result.status == 1);
    CHECK(result.says("FAIL  EXERCISE 1.1"));
    CHECK(result.says("seed 5: --seed 5 --seeds 2 repeats this run"));
}

TEST_CASE("a kernel that goes out of bounds is reported, not swallowed") {
    const Project project;
    write_file(project.chapter(1), replace_once(project.solution(), "l[row] = l_new, m[row] = m_new;",
                                                "l[row] = l_new, m[row + (1 << 28)] = m_new;"));
    const CommandResult result = project.ladder("test 01");
    CHECK(result.status == 1);
    CHECK(result.says("out of bounds: 4-byte write"));
    CHECK(result.says("kernel     minimal_flash"));
    CHECK(result.says("source     chapters/01-minimal-flash/attention.cu:"));
}

TEST_CASE("a deadlock is told whole: who waits, for which barrier, the line that made it, and what to do") {
    const Project project;
    const Borrowed chapter(project, 8);
    chapter.write(replace_once(project.solution(8), "ptx::barrier_arrive_expect_tx(smem.Q_full, sizeof(smem.Q));", ""));
    for (const char* more : {"", " --verbose"}) {
        const CommandResult result = project.ladder(std::string("test 08 --seed 1") + more);
        CAPTURE(result.output);
        CHECK(result.status == 1);
        CHECK(result.says("deadlock: no thread can go on"));
        CHECK(result.says("made at chapters/08-bulk-tensor-copies/attention.cu:"));
        CHECK(result.says("reproduce  LADDER_SEED="));
        CHECK(result.says("a hint: ./ladder hint 8.3"));
        CHECK(!result.says("ladder: "));
    }
}

TEST_CASE("the results go to a file, and to one that cannot be written not silently") {
    const Project project;
    const std::string file = (fs::temp_directory_path() / fmt::format("ladder-{}.json", getpid())).string();
    CHECK(project.ladder("run --no-timing --seed 3 --json " + file).status == 0);
    CHECK(read_file(file).find("\"stage\": \"01-minimal-flash\"") != std::string::npos);
    fs::remove(file);
    const CommandResult result = project.ladder("run --no-timing --json /proc/nothing/results.json");
    CHECK(result.status == 1);
    CHECK(result.output == "ladder: /proc/nothing/results.json cannot be written\n");  // before any work
}

}  // namespace
}  // namespace flashladder
