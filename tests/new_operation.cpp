// The proof that an operation is a folder, and a rung of it too: row-softmax, as CONTRIBUTING.md says it is done, in a copy
// of the project. It touches no file that is there (fixtures/row_softmax), and all verbs know it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "command_result.h"
#include "environment.h"
#include "files.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// The copy with the operation in it, while this lives.
class WithOperation {
public:
    explicit WithOperation(std::string root) : root_(std::move(root)) {
        for (const auto& file : fs::recursive_directory_iterator(FIXTURE)) {
            if (!file.is_regular_file()) continue;
            const fs::path to = root_ / file.path().lexically_relative(FIXTURE);
            REQUIRE_MESSAGE(!fs::exists(to), to.string(), " is in the project: the operation must only add files");
            fs::create_directories(to.parent_path());
            fs::copy_file(file.path(), to);
            added_.push_back(to);
        }
    }
    /// Nor do the programs know it any more, which other tests run.
    ~WithOperation() {
        for (const fs::path& file : added_) fs::remove(file);
        for (const fs::path& file : added_)
            for (fs::path folder = file.parent_path(); fs::exists(folder) && fs::is_empty(folder); folder = folder.parent_path())
                fs::remove(folder);
        const CommandResult built = run("cmake --build build/cpu --target ladder stages");
        CHECK_MESSAGE(built.status == 0, built.output);
    }
    WithOperation(const WithOperation&) = delete;

    CommandResult run(const std::string& command) const {
        const std::string log = (fs::temp_directory_path() / fmt::format("new-operation-{}.log", getpid())).string();
        const int status = std::system(fmt::format("cd '{}' && {} > '{}' 2>&1", root_.string(), command, log).c_str());
        const CommandResult result{WEXITSTATUS(status), read_file(log)};
        fs::remove(log);
        return result;
    }
    CommandResult ladder(const std::string& arguments) const { return run("build/cpu/bin/ladder " + arguments); }
    std::string path(const std::string& file) const { return (root_ / file).string(); }

private:
    fs::path root_;
    std::vector<fs::path> added_;
};

TEST_CASE("an operation and a rung of it are added, and list, test, hint, profile, count, timeline, launch and bench know them") {
    const std::string root = environment("LADDER_TEST_PROJECT", "");
    REQUIRE_MESSAGE(!root.empty(), "run this through ctest, which makes the copy that LADDER_TEST_PROJECT names");
    const WithOperation project(root);
    const CommandResult built = project.run("cmake --preset cpu && cmake --build build/cpu --target ladder stages");
    REQUIRE_MESSAGE(built.status == 0, built.output);

    const CommandResult reset = project.ladder("reset 99");
    CHECK_MESSAGE(reset.says("chapters/99-row-softmax/row_softmax.cu is the starter now"), reset.output);
    const CommandResult list = project.ladder("list");
    CHECK_MESSAGE(list.says("99-row-softmax"), list.output);
    CHECK(project.ladder("hint 99.1").says("Hint 1 of 3: Which lane's sum"));
    CHECK(project.ladder("diff 99").says("99-row-softmax is the lowest rung"));

    const CommandResult red = project.ladder("test 99 --seed 1");
    CHECK(red.status == 1);
    CHECK_MESSAGE(red.says("FAIL  EXERCISE 99.1: the sum of all lanes"), red.output);
    CHECK_MESSAGE(red.says("your code goes to chapters/99-row-softmax/row_softmax.cu:"), red.output);
    CHECK(project.ladder("solve 99").status == 0);
    const CommandResult green = project.ladder("test 99 --seed 1");
    CHECK_MESSAGE(green.status == 0, green.output);

    const CommandResult profile = project.ladder("profile 99 --rows 8 --n 64 --seed 1");
    CHECK_MESSAGE(profile.status == 0, profile.output);
    CHECK_MESSAGE(profile.says("99-row-softmax, 8 x 64 f32, on the emulator"), profile.output);
    CHECK_MESSAGE(profile.says("requested bytes         6144     6144"), profile.output);  // closed form, counted
    CHECK(project.ladder("profile 99 --d 64").says("--d is no size of row_softmax (it has --rows, --n)"));
    const CommandResult count = project.ladder("count 99");
    CHECK_MESSAGE(count.says("99-row-softmax  f32    64 x 256"), count.output);
    const CommandResult launch = project.ladder("launch 99 --rows 3 --n 100 --seed 1");
    CHECK_MESSAGE(launch.says("99-row-softmax, 3 x 100 f32: error "), launch.output);
    CHECK(project.ladder("launch 99 --rows 0").says("99-row-softmax: rows is 0, but must be at least 1"));
    const CommandResult timeline = project.ladder("timeline 99 --rows 2 --n 64 --seed 1");
    CHECK_MESSAGE(timeline.says("99-row-softmax, 2 x 64 f32: block 0"), timeline.output);
    const CommandResult bench = project.ladder("bench 99 --n 128 --seed 1");
    CHECK_MESSAGE(bench.status == 0, bench.output);
    CHECK_MESSAGE(bench.says("64 x 128 (cut down from 4096 x 128)\n"), bench.output);
    CHECK_MESSAGE(bench.says("exp a element"), bench.output);
}

}  // namespace
}  // namespace flashladder
