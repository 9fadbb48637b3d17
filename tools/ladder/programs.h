// Other programs, which this one starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flashladder {

/// The build folder this program lies in, in its bin/.
std::filesystem::path build_folder();

/// A word for a shell that means this text.
std::string quoted(const std::string& text);

/// Runs a command in a shell. Returns its exit status, as a shell would.
int run_command(const std::string& command);

/// The same, all its output in a file.
int run_logged(const std::string& command, const std::filesystem::path& log);

/// Builds a target of this build folder. False if that fails.
bool try_to_build(const std::string& target);

/// The same; if it fails, the compiler's words of `file`, which it is made of, are printed.
bool build_target(const std::string& target, const std::string& file);

/// The same, but printed is the first error alone, with the line of `file` that it comes from.
bool build_or_first_error(const std::string& target, const std::string& file);

/// Of what a build said, the compiler's words: not ninja's own lines, nor the command that failed.
std::string without_noise(const std::string& log);

/// Of what a compiler said, its first error, and the lines that show it; first the line of `file`, a path from the
/// project's folder, if the error is in a header that it uses. "" if there is none.
std::string first_error(const std::string& words, const std::string& file);

/// Builds a target while other things are done.
class BackgroundBuild {
public:
    explicit BackgroundBuild(const std::string& target);
    BackgroundBuild(const BackgroundBuild&) = delete;
    ~BackgroundBuild();  // stops it, if it still goes on

    /// Whether it has been built; build_target() says why not.
    bool wait() const;

private:
    mutable int process_;  // 0: has ended
};

/// First line of a command's output, without its end; "" if it fails. Its errors go nowhere.
std::string first_line_of(const std::string& command);

bool has_python();

/// Runs tools/`tool`, which says itself what it lacks. Returns its exit status; without Python it says so: 1.
int run_python_tool(const std::string& tool, const std::vector<std::string>& arguments);

}  // namespace flashladder
