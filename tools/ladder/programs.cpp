#include "programs.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sstream>

#include "files.h"
#include "harness/project_root.h"

namespace flashladder {

std::filesystem::path build_folder() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
    return result + "'";
}

int run_command(const std::string& command) {
    std::fflush(stdout);  // what was printed before comes before
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_logged(const std::string& command, const std::filesystem::path& log) {
    return run_command(fmt::format("({}) > {} 2>&1 < /dev/null", command, quoted(log.string())));
}

namespace {
std::string build_log(const std::string& target) { return (build_folder() / (target + "-build.log")).string(); }
}  // namespace

bool try_to_build(const std::string& target) {
    const std::string command = fmt::format("cmake --build {} --target {}", quoted(build_folder().string()), target);
    return run_logged(command, build_log(target)) == 0;
}

bool build_target(const std::string& target, const std::string& file) {
    if (try_to_build(target)) return true;
    fmt::print("{} does not compile:\n\n{}", file, without_noise(read_file(build_log(target))));
    return false;
}

std::string without_noise(const std::string& log) {
    std::istringstream text(log);
    std::string result;
    for (std::string line; std::getline(text, line);) {
        const std::string first_word = line.substr(0, line.find(' '));
        const bool command = line.starts_with("/") && !first_word.ends_with(":");  // else a file, of which something is said
        const bool noise = line.starts_with("[") || line.starts_with("FAILED:") || line.starts_with("ninja:") ||
                           line.starts_with("cc1plus:") || command;
        if (!noise || line.find("error: ") != std::string::npos) result += line + "\n";
    }
    return result;
}

std::string first_error(const std::string& words, const std::string& file) {
    std::istringstream text(words);
    std::vector<std::string> lines;
    const std::string root = project_root() + "/";
    for (std::string line; std::getline(text, line);) {
        for (std::size_t at; (at = line.find(root)) != std::string::npos;) line.erase(at, root.size());
        lines.push_back(line);
    }
    const auto is_error = [](const std::string& line) { return line.find("error: ") != std::string::npos; };
    const auto error = std::ranges::find_if(lines, is_error);
    if (error == lines.end()) return "";
    std::string result = *error + "\n";
    for (auto line = error + 1; line != lines.end() && line->starts_with(" "); ++line) result += *line + "\n";
    // What a static_assert has compared: g++, clang.
    for (const char* numbers : {"note: the comparison reduces to", "note: expression evaluates to"})
        for (auto line = error + 1; line != lines.end() && !is_error(*line); ++line)
            if (line->find(numbers) != std::string::npos) result += *line + "\n";
    if (error->starts_with(file + ":")) return result;
    // g++ says before it from where in the file a template was used, and clang behind it.
    const auto of_file = [&](const std::string& line) { return line.find(file + ":") != std::string::npos; };
    const auto before = std::find_if(std::reverse_iterator(error), lines.rend(), of_file);
    const auto next = std::find_if(error + 1, lines.end(), is_error);
    const auto behind = std::find_if(error, next, of_file);
    const std::string from = before != lines.rend() ? *before : behind != next ? *behind : "";
    return from.empty() ? result : from.substr(from.find(file)) + "\n" + result;
}

bool build_or_first_error(const std::string& target, const std::string& file) {
    if (try_to_build(target)) return true;
    const std::string error = first_error(read_file(build_log(target)), file);
    if (error.empty()) return build_target(target, file);  // an error of another kind, which it tells whole
    fmt::print("{} does not compile:\n\n{}", file, error);
    return false;
}

BackgroundBuild::BackgroundBuild(const std::string& target) : process_(fork()) {
    if (process_ != 0) return;
    if (nice(19) == -1) {}  // what is waited for goes first
    // ninja itself, not by way of cmake: it ends its compilers when it is told to end
    for (const auto& [stream, mode] : {std::pair(stdin, "r"), {stdout, "w"}, {stderr, "w"}})
        if (!std::freopen("/dev/null", mode, stream)) _exit(1);
    execlp("ninja", "ninja", "-C", build_folder().c_str(), target.c_str(), nullptr);
    _exit(127);
}

BackgroundBuild::~BackgroundBuild() {
    if (process_ <= 0) return;
    kill(process_, SIGTERM);
    wait();
}

bool BackgroundBuild::wait() const {
    int status = 1;
    if (process_ > 0) waitpid(process_, &status, 0);
    process_ = 0;
    return status == 0;
}

std::string first_line_of(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
    std::array<char, 1024> buffer{};
    if (!pipe || !fgets(buffer.data(), buffer.size(), pipe.get())) return "";
    std::string line = buffer.data();
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

bool has_python() { return !first_line_of("command -v python3").empty(); }

int run_python_tool(const std::string& tool, const std::vector<std::string>& arguments) {
    if (!has_python()) {
        fmt::print("tools/{} needs python3, which is not there\n", tool);
        return 1;
    }
    std::string command = fmt::format("python3 {}", quoted(fmt::format("{}/tools/{}", project_root(), tool)));
    for (const std::string& argument : arguments) command += fmt::format(" {}", quoted(argument));
    return run_command(command);
}

}  // namespace flashladder
