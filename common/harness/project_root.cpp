#include "harness/project_root.h"

#include <filesystem>
#include <stdexcept>

namespace flashladder {
namespace {

bool is_root(const std::filesystem::path& folder) {
    return std::filesystem::exists(folder / "CMakePresets.json") && std::filesystem::is_directory(folder / "solutions");
}

}  // namespace

std::string project_root() {
    namespace fs = std::filesystem;
    std::error_code ignored;
    for (fs::path start : {fs::read_symlink("/proc/self/exe", ignored).parent_path(), fs::current_path()})
        for (fs::path folder = start; !folder.empty(); folder = folder.parent_path()) {
            if (is_root(folder)) return folder.string();
            if (folder == folder.parent_path()) break;
        }
    throw std::runtime_error(
        "the project's folder (with CMakePresets.json and solutions/) is neither above this program nor above the "
        "working directory");
}

}  // namespace flashladder
