#include "machine_code.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "files.h"
#include "programs.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// "LDS.U.128 R4, [R2] ;" gives 16.
std::size_t width_of(const std::string& instruction) {
    const std::string name = instruction.substr(0, instruction.find(' '));
    constexpr std::pair<const char*, std::size_t> suffixes[] = {{".128", 16}, {".64", 8}, {"16", 2}, {"8", 1}};
    for (const auto& [suffix, bytes] : suffixes)
        if (name.ends_with(suffix)) return bytes;
    return 4;
}

/// The lines that `//## File "a.cu", line 3 inlined at "b.cu", line 7` names.
std::vector<std::string> lines_in(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t open = text.find('"'); open != text.npos;) {
        const std::size_t close = text.find('"', open + 1), number = text.find("line ", close);
        if (close == text.npos || number == text.npos) break;
        const fs::path file = text.substr(open + 1, close - open - 1);
        lines.push_back(fmt::format("{}:{}", file.lexically_normal().string(),
                                    std::strtoul(text.c_str() + number + 5, nullptr, 10)));
        open = text.find('"', number);
    }
    return lines;
}

/// As cmake/Architectures.cmake chooses: what the comment at the file's head says that it `Supports`.
std::string architecture_of(const std::string& file) {
    const std::string text = read_file(file).substr(0, 4000);
    const std::size_t begin = text.find("// Supports ");
    if (begin == text.npos) return "sm_80";
    std::size_t end = text.find('\n', begin);
    while (end != text.npos && text.compare(end + 1, 5, "//   ") == 0) end = text.find('\n', end + 1);
    return text.substr(begin, end - begin).find("sm_90a") == std::string::npos ? "sm_80" : "sm_90a";
}

}  // namespace

std::map<std::string, SharedWidths> shared_widths(const std::string& disassembly) {
    std::map<std::string, SharedWidths> widths;
    std::vector<std::string> lines;  // of the instructions that follow
    bool says_more = false;          // the line before was one of these too: inlined calls go on
    std::istringstream in(disassembly);
    for (std::string text; std::getline(in, text);) {
        if (text.find("//## File ") != text.npos) {
            if (!says_more) lines.clear();
            for (const std::string& line : lines_in(text)) lines.push_back(line);
            says_more = true;
            continue;
        }
        says_more = false;
        const std::size_t load = text.find(" LDS"), store = text.find(" STS");
        if (load != text.npos && text.compare(load, 5, " LDSM") != 0)
            for (const std::string& line : lines)
                widths[line].load = std::max(widths[line].load, width_of(text.substr(load + 1)));
        if (store != text.npos && text.compare(store, 5, " STSM") != 0)
            for (const std::string& line : lines)
                widths[line].store = std::max(widths[line].store, width_of(text.substr(store + 1)));
    }
    return widths;
}

std::optional<MachineCode> machine_code(const std::vector<std::string>& files, const std::string& options) {
    // NVIDIA's installer leaves PATH alone. Not all toolkits have nvdisasm; then the target resource-report may have
    // brought it.
    const std::string nvcc = first_line_of("PATH=$PATH:/usr/local/cuda/bin; command -v nvcc");
    if (nvcc.empty()) return std::nullopt;
    const fs::path others = build_folder().parent_path() / "gpu" / "binary-tools";
    const std::string nvdisasm =
        first_line_of(fmt::format("PATH={}:$PATH; command -v nvdisasm || find {} -type f -name nvdisasm",
                                  quoted(fs::path(nvcc).parent_path().string()), quoted(others.string())));
    if (nvdisasm.empty()) return std::nullopt;
    const std::string version = quoted(nvcc) + R"( --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')";
    MachineCode code{"nvcc " + first_line_of(version), {}};
    const fs::path binary = fs::temp_directory_path() / fmt::format("ladder-{}.cubin", getpid()),
                   log = binary.string() + ".log";
    bool compiled = true;
    for (const std::string& file : files) {
        if (!file.ends_with(".cu")) continue;
        compiled =
            run_logged(fmt::format("{} -cubin -lineinfo -w -arch={} {} -o {} {} && {} --print-line-info-inline {}",
                                   quoted(nvcc), architecture_of(file), options, quoted(binary.string()),
                                   quoted(fs::absolute(file).string()), quoted(nvdisasm), quoted(binary.string())),
                       log) == 0;
        if (!compiled) break;
        for (const auto& [line, widths] : shared_widths(read_file(log.string()))) {
            code.lines[line].load = std::max(code.lines[line].load, widths.load);
            code.lines[line].store = std::max(code.lines[line].store, widths.store);
        }
    }
    for (const fs::path& file : {binary, log}) fs::remove(file);
    if (!compiled) return std::nullopt;
    return code;
}

}  // namespace flashladder
