#include "check.h"

#include <fmt/format.h>

#include <stdexcept>

#ifdef FLASHLADDER_GPU

namespace flashladder {

int check_program(const CheckOptions&) {
    throw std::runtime_error("programs are checked on the emulator: --backend cpu");
}

}  // namespace flashladder

#else

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "files.h"
#include "merged_accesses.h"
#include "programs.h"
#include "table.h"
#include "translate.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// What CMake has written down about kernels: the folder with compile.rsp, link.rsp and the headers of CUDA's names.
fs::path check_folder() { return build_folder() / "check"; }

/// A folder of this process's own, removed in the end.
class OwnFolder {
public:
    OwnFolder() : path_(check_folder() / std::to_string(getpid())) { fs::create_directories(path_); }
    OwnFolder(const OwnFolder&) = delete;
    ~OwnFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    fs::path operator/(const std::string& name) const { return path_ / name; }

private:
    fs::path path_;
};

/// The program's files and the headers beside them, translated.
class Sources {
public:
    Sources(const OwnFolder& folder, const std::vector<std::string>& include_folders)
        : folder_(folder), include_folders_(include_folders) {}

    /// Where the translation of the file lies, whose lines are said to be of `name`.
    fs::path translated(const fs::path& name) {
        const auto [entry, is_new] = translated_.try_emplace(fs::canonical(name), fs::path());
        if (!is_new) return entry->second;
        const fs::path target = entry->second =
            folder_ / fmt::format("{}-{}", translated_.size(), name.filename().string());
        const auto resolve = [&](std::string_view included, bool in_quotes) {
            return find_header(name.parent_path(), fs::path(included), in_quotes);
        };
        std::string escaped;
        for (const char c : name.string()) escaped += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
        write_file(target, fmt::format("#line 1 \"{}\"\n{}", escaped, translate(read_file(name.string()), resolve)));
        return target;
    }

private:
    /// The translation of a header, if it is neither CUDA's nor the system's.
    std::optional<std::string> find_header(const fs::path& beside, const fs::path& name, bool in_quotes) {
        if (fs::exists(check_folder() / "include" / name)) return std::nullopt;
        std::vector<fs::path> folders(include_folders_.begin(), include_folders_.end());
        if (in_quotes) folders.insert(folders.begin(), beside);
        for (const fs::path& folder : folders)
            if (fs::is_regular_file(folder / name)) return translated(folder / name).string();
        return std::nullopt;
    }

    const OwnFolder& folder_;
    std::vector<std::string> include_folders_;
    std::map<fs::path, fs::path> translated_;
};

void check_file(const std::string& file) {
    const fs::path path = file;
    constexpr std::array known = {".cu", ".cpp", ".cc", ".cxx"};
    if (!fs::exists(path)) throw std::runtime_error(fmt::format("there is no {}", file));
    if (!fs::is_regular_file(path) || std::find(known.begin(), known.end(), path.extension()) == known.end())
        throw std::runtime_error(fmt::format("{} is no .cu file", file));
}

// ---- what a compiler's error means

/// Whether a name is one of CUDA's, by how it begins.
bool is_cudas(std::string_view name) {
    constexpr std::array beginnings = {"cuda",
                                       "__",
                                       "cub",
                                       "thrust",
                                       "curand",
                                       "cublas",
                                       "cufft",
                                       "cusparse",
                                       "cusolver",
                                       "cudnn",
                                       "cooperative_groups",
                                       "nvtx",
                                       "nvrtc",
                                       "nvcuda",
                                       "nvml",
                                       "atomic",
                                       "tex1D",
                                       "tex2D",
                                       "tex3D",
                                       "surf1D",
                                       "surf2D",
                                       "wmma",
                                       "npp",
                                       "cutlass",
                                       "nv/",
                                       "nvToolsExt"};
    const bool driver = name.size() > 2 && name.starts_with("cu") && std::isupper(static_cast<unsigned char>(name[2]));
    const bool header = name.starts_with("cu") && name.ends_with(".h");
    return driver || header ||
           std::any_of(beginnings.begin(), beginnings.end(), [&](auto b) { return name.starts_with(b); });
}

/// What the compiler does not know, of a line that says "error:". Names of a namespace of CUDA's come with that.
std::string unknown_name(const std::string& line) {
    const std::size_t error = line.find("error: ");
    if (error == line.npos) return "";
    constexpr std::array complaints = {"was not declared", "is not a member of",    "has not been declared",
                                       "does not name a",  "undeclared identifier", "unknown type name",
                                       "no member named",  "no type named",         "there are no arguments to",
                                       "not found",        "is not a class",        "is not a namespace"};
    const std::size_t file_end = line.find(": No such file");
    if (file_end != line.npos) return line.substr(error + 7, file_end - error - 7);
    if (std::none_of(complaints.begin(), complaints.end(), [&](auto c) { return line.find(c) != line.npos; }))
        return "";
    std::vector<std::string> quoted;
    for (std::size_t open = line.find('\'', error); open != line.npos && quoted.size() < 2;) {
        const std::size_t close = line.find('\'', open + 1);
        if (close == line.npos) break;
        quoted.push_back(line.substr(open + 1, close - open - 1));
        open = line.find('\'', close + 1);
    }
    if (quoted.empty()) return "";
    if (quoted.size() == 2) {  // a class with its arguments: g++ says it first, clang last
        const bool class_first = line.find("has no member named") != line.npos;
        std::string& name = quoted[class_first ? 0 : 1];
        for (const std::string_view word : {"const ", "class ", "struct "})
            if (name.starts_with(word)) name.erase(0, word.size());
        name = name.substr(0, name.find('<'));
        if (class_first) return name + "::" + quoted[1];
    }
    if (quoted.size() == 2 && line.find("member") != line.npos && quoted[0].find("::") == std::string::npos &&
        is_cudas(quoted[1]))
        return quoted[1] + "::" + quoted[0];
    return quoted[0];
}

void explain(const std::string& compiler_said) {
    std::set<std::string> missing;
    for (std::size_t begin = 0; begin < compiler_said.size();) {
        const std::size_t end = std::min(compiler_said.find('\n', begin), compiler_said.size());
        const std::string name = unknown_name(compiler_said.substr(begin, end - begin));
        if (is_cudas(name)) missing.insert(name);
        begin = end + 1;
    }
    for (const std::string& name : missing) fmt::print(stderr, "ladder: {} is not on the emulator\n", name);
    if (!missing.empty()) fmt::print(stderr, "ladder: docs/emulator.md lists what is\n");
}

// ---- compiling and running

std::string compiler() { return read_file(check_folder() / "compiler"); }

/// The options that compilers share.
std::string compile_options(const CheckOptions& options) {
    std::string text;
    for (const std::string& include_folder : options.include_folders) text += " -I" + quoted(include_folder);
    for (const std::string& definition : options.definitions) text += " -D" + quoted(definition);
    return text;
}

/// False if it does not compile; why has been printed.
bool compile(const fs::path& source, const std::string& name, const CheckOptions& options, const fs::path& object) {
    const fs::path log = object.string() + ".log", folder = fs::path(name).parent_path();
    // In English, for explain(). Reports name files as they were typed, and not the folder that the compiler ran in.
    std::string command = fmt::format("LC_ALL=C {} {} -c -x c++ {} -o {} -iquote {}", compiler(),
                                      quoted("@" + (check_folder() / "compile.rsp").string()), quoted(source),
                                      quoted(object), quoted(folder.empty() ? "." : folder.string()));
    if (fs::path(name).is_relative())
        command += " " + quoted(fmt::format("-fdebug-prefix-map={}=.", fs::current_path().string()));
    command += compile_options(options);
    const int status = run_logged(command, log);
    const std::string said = read_file(log);
    fmt::print(stderr, "{}", said);
    if (status != 0) explain(said);
    return status == 0;
}

bool link(const std::vector<fs::path>& objects, const std::string& file, const fs::path& program) {
    const fs::path log = program.string() + ".log";
    std::string command = "LC_ALL=C " + compiler();
    for (const fs::path& object : objects) command += " " + quoted(object);
    command += fmt::format(" {} -o {}", quoted("@" + (check_folder() / "link.rsp").string()), quoted(program));
    if (run_logged(command, log) == 0) return true;
    const std::string said = read_file(log);
    if (said.find("undefined reference to `main'") != said.npos)
        fmt::print(stderr, "ladder: {} has no main()\n", file);
    else
        fmt::print(stderr, "{}", said);
    return false;
}

struct Run {
    int status;
    std::string reports, counts;  // "" where there are none
};

Run run(const fs::path& program, const CheckOptions& options, std::uint64_t seed, bool counted) {
    const fs::path reports = program.string() + ".reports", counts = program.string() + ".counts";
    std::string command =
        fmt::format("LADDER_SEED={} LADDER_RACES={} LADDER_REPORTS={} ", seed, options.races ? 1 : 0, quoted(reports));
    if (counted) command += fmt::format("LADDER_COUNTS={} ", quoted(counts));
    command += quoted(program);
    for (const std::string& argument : options.arguments) command += " " + quoted(argument);
    const int status = run_command(command);
    const auto text = [](const fs::path& file) { return fs::exists(file) ? read_file(file) : ""; };
    return {status, text(reports), counted ? text(counts) : ""};
}

// ---- counts

struct LineCounts {
    double requested = 0, used = 0, moved = 0, wavefronts = 0, conflicts = 0, barriers = 0;
    int launches = 0;

    void add(const nlohmann::json& work) {
        ++launches;
        if (work.is_null()) return;  // a kernel that has done nothing
        constexpr double sector = 32;
        const nlohmann::json none = nlohmann::json::object();
        const nlohmann::json &all_global = work.contains("global") ? work.at("global") : none,
                             &all_shared = work.contains("shared") ? work.at("shared") : none;
        for (const nlohmann::json& global : all_global) {
            requested += global.at("requested_bytes").get<double>();
            used += global.at("used_bytes").get<double>();
            moved += sector * global.at("sectors").get<double>();
        }
        for (const nlohmann::json& shared : all_shared) {
            wavefronts += shared.at("wavefronts").get<double>();
            conflicts += shared.at("conflicts").get<double>();
        }
        barriers += work.value("barriers", 0.0);
    }
    /// Bytes that the memories have to move.
    double cost() const { return moved + 128 * wavefronts; }
    std::vector<std::string> cells() const {
        const auto bytes = [](double n) {
            return n == 0 ? "" : n < 10000 ? fmt::format("{} B", n) : readable_bytes(n);
        };
        const auto number = [](double n) { return n == 0 ? "" : fmt::format("{:.0f}", n); };
        const auto percent = [](double a, double b) { return b == 0 ? "" : fmt::format("{:.0f}%", 100 * a / b); };
        return {
            bytes(requested), bytes(moved), percent(used, moved), number(wavefronts), percent(conflicts, wavefronts),
            number(barriers)};
    }
};

std::string source_text(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) return "";
    const fs::path file = place.substr(0, colon);
    return source_line((file.is_absolute() ? file : fs::current_path() / file).string() + place.substr(colon));
}

std::vector<std::pair<std::string, LineCounts>> worst_first(const std::map<std::string, LineCounts>& counts) {
    std::vector<std::pair<std::string, LineCounts>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.second.cost() > b.second.cost(); });
    return sorted;
}

void print_counts(const std::string& text, const CheckOptions& options) {
    const int most = options.lines;
    std::map<std::string, LineCounts> kernels, lines;
    const nlohmann::json work = nlohmann::json::parse(text);
    for (const auto& launch : work.at("launches")) {
        kernels[launch.at("kernel")].add(launch.at("work"));
        for (const auto& line : launch.at("lines")) lines[line.at("line")].add(line.at("work"));
    }
    if (kernels.empty()) return;
    const std::vector<std::string> columns = {"requested", "moved", "coalesced", "wavefronts", "conflicts", "barriers"};
    const auto table_of = [&](std::vector<std::string> first, const char* last) {
        first.insert(first.end(), columns.begin(), columns.end());
        if (last) first.push_back(last);
        return Table(first);
    };
    Table by_kernel = table_of({"kernel", "launches"}, nullptr), by_line = table_of({"line"}, "source");
    for (const auto& [kernel, counts] : worst_first(kernels)) {
        std::vector<std::string> row = {kernel, std::to_string(counts.launches)};
        for (const std::string& cell : counts.cells()) row.push_back(cell);
        by_kernel.add(row);
    }
    int shown = 0;
    for (const auto& [line, counts] : worst_first(lines)) {
        if (shown++ == most) break;
        std::vector<std::string> row = {fs::path(line).filename().string()};
        for (const std::string& cell : counts.cells()) row.push_back(cell);
        row.push_back(source_text(line));
        by_line.add(row);
    }
    fmt::print("\n{}\n{}", by_kernel.plain(), by_line.plain());
    const int left = static_cast<int>(lines.size()) - most;
    if (left > 0) fmt::print("{} more line{}: --lines {}\n", left, left == 1 ? "" : "s", lines.size());
    const std::string mergeable = describe_mergeable(work.at("launches"), fs::current_path(), std::size_t(most), [&] {
        return machine_code(options.files, compile_options(options));
    });
    fmt::print("{}{}\n", mergeable.empty() ? "" : "\n", mergeable);
}

}  // namespace

int check_program(const CheckOptions& options) {
    for (const std::string& file : options.files) check_file(file);
    const std::string& file = options.files.front();
    if (!file.ends_with(".cu")) throw std::runtime_error(fmt::format("{} is no .cu file", file));
    const OwnFolder folder;
    Sources sources(folder, options.include_folders);
    std::vector<fs::path> objects;
    for (const std::string& source : options.files) {
        objects.push_back(folder / fmt::format("{}.o", objects.size()));
        if (compile(sources.translated(source), source, options, objects.back())) continue;
        fmt::print(stderr, "ladder: {} does not compile\n", source);
        return 1;
    }
    const fs::path program = folder / fs::path(file).stem().string();
    if (!link(objects, file, program)) return 1;

    for (int i = 0; i < options.seeds; ++i) {
        const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
        const Run result = run(program, options, seed, options.counts && i == 0);
        if (!result.reports.empty()) {
            fmt::print("{}: by seed {}: {}\n", file, seed, first_line(result.reports));
            return 1;
        }
        if (result.status != 0) {
            fmt::print("{}: by seed {}: the program {} {}\n", file, seed,
                       result.status < 128 ? "has returned" : "was ended by signal",
                       result.status < 128 ? result.status : result.status - 128);
            return 1;
        }
        if (!result.counts.empty()) print_counts(result.counts, options);
    }
    const std::uint64_t last = options.seed + static_cast<std::uint64_t>(options.seeds) - 1;
    fmt::print("{}: {}no bad access by seed{}\n", file, options.races ? "no race, " : "",
               options.seeds == 1 ? fmt::format(" {}", options.seed) : fmt::format("s {} to {}", options.seed, last));
    return 0;
}

}  // namespace flashladder

#endif
