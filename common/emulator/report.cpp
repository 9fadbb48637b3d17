#include "report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "calls.h"
#include "emulator.h"

namespace emulator {
namespace {

struct Frame {
    std::string function, line;
};

struct Module {
    std::uintptr_t address = 0;       // asked for
    std::uintptr_t load_address = 0;  // 0 for a program that is not position independent
    std::string path;
};

int match_module(dl_phdr_info* info, std::size_t, void* data) {
    auto& module = *static_cast<Module*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
        if (header.p_type != PT_LOAD || module.address - begin >= header.p_memsz) continue;
        module.load_address = info->dlpi_addr;
        module.path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
        return 1;
    }
    return 0;
}

Module module_of(std::uintptr_t address) {
    Module module{address, 0, {}};
    dl_iterate_phdr(match_module, &module);
    return module;
}

/// addr2line (binutils), which reads the debug information of one file once and answers until this program ends: to run
/// it for each report took most of the time of a test that is to fail.
class Addr2line {
public:
    explicit Addr2line(const std::string& path) {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
        // /proc/self/exe would be the child, and /proc/$PPID/exe may be what runs a program of another processor, such as
        // qemu or Rosetta. So the child inherits the file.
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_adddup2(&actions, file, 3);
        std::array<const char*, 8> command{"addr2line", "-a", "-C", "-f", "-i", "-e", "/proc/self/fd/3", nullptr};
        if (posix_spawnp(&child_, command[0], &actions, nullptr, const_cast<char**>(command.data()), environ) == 0)
            answers_ = fdopen(ends[0], "r");
        if (!answers_) close(ends[0]);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        close(file);
    }
    ~Addr2line() {
        if (answers_) fclose(answers_);  // and it ends
        if (answers_ && asker_ == getpid()) waitpid(child_, nullptr, 0);
    }
    Addr2line(const Addr2line&) = delete;
    Addr2line& operator=(const Addr2line&) = delete;

    /// After a fork there are two who would read the same answers.
    bool is_of_this_process() const { return asker_ == getpid(); }

    /// The frames that were inlined at each address, innermost first.
    std::vector<std::vector<Frame>> ask(std::span<const std::uintptr_t> addresses) {
        std::vector<std::vector<Frame>> result(addresses.size());
        constexpr std::size_t at_a_time = 64;  // neither side's pipe gets full
        for (std::size_t from = 0; from < addresses.size(); from += at_a_time) {
            const std::size_t n = std::min(at_a_time, addresses.size() - from);
            std::string question;
            for (const std::uintptr_t address : addresses.subspan(from, n)) question += fmt::format("{:#x}\n", address);
            question += fmt::format("{}\n", no_address);
            if (!answers_ || send(fileno(answers_), question.data(), question.size(), MSG_NOSIGNAL) < 0) break;
            read_answers(std::span(result).subspan(from, n));
        }
        return result;
    }

private:
    static constexpr const char* no_address = "0xffffffffffffffff";  // asked for at last: then all has been answered

    bool read_line(std::string& line) {
        std::array<char, 4096> buffer;
        line.clear();
        while (fgets(buffer.data(), buffer.size(), answers_)) {
            line += buffer.data();
            if (line.back() != '\n') continue;
            line.pop_back();
            return true;
        }
        return false;
    }

    void read_answers(std::span<std::vector<Frame>> result) {
        std::size_t i = 0;  // of the address that the lines read so far are about, from 1
        for (Frame frame; read_line(frame.function);) {
            if (frame.function == no_address) {
                read_line(frame.function), read_line(frame.line);
                return;
            }
            if (frame.function.starts_with("0x")) {
                ++i;  // -a: the address stands above its frames
                continue;
            }
            if (!read_line(frame.line) || i > result.size()) return;
            const std::size_t comment = frame.line.find(" (discriminator");
            if (comment != std::string::npos) frame.line.resize(comment);
            const bool known = !frame.line.starts_with("??") && !frame.line.ends_with(":?");
            if (known) result[i - 1].push_back(frame);
        }
    }

    const pid_t asker_ = getpid();
    pid_t child_ = 0;
    FILE* answers_ = nullptr;
};

/// All addresses must be of one module, the first one's.
std::vector<std::vector<Frame>> ask_addr2line(std::vector<std::uintptr_t> addresses) {
    static std::map<std::string, std::unique_ptr<Addr2line>> of_modules;
    if (addresses.empty()) return {};
    const Module module = module_of(addresses.front());
    if (module.path.empty()) return std::vector<std::vector<Frame>>(addresses.size());
    for (std::uintptr_t& address : addresses) address -= module.load_address;
    auto& addr2line = of_modules[module.path];
    if (!addr2line || !addr2line->is_of_this_process()) addr2line = std::make_unique<Addr2line>(module.path);
    return addr2line->ask(addresses);
}

/// The same, with what was asked before remembered: whoever counts asks after each launch for much the same addresses.
std::vector<std::vector<Frame>> frames(const std::vector<std::uintptr_t>& addresses) {
    static std::unordered_map<std::uintptr_t, std::vector<Frame>> known;
    std::vector<std::uintptr_t> unknown;
    for (const std::uintptr_t address : addresses)
        if (!known.contains(address)) unknown.push_back(address);
    const std::vector<std::vector<Frame>> answers = ask_addr2line(unknown);
    for (std::size_t i = 0; i < unknown.size(); ++i) known[unknown[i]] = answers[i];
    std::vector<std::vector<Frame>> result;
    for (const std::uintptr_t address : addresses) result.push_back(known[address]);
    return result;
}

/// True for a line such as "struct Row {": what is inlined from there, the compiler has made, a copy of the class.
/// addr2line does not tell the names of such functions.
bool is_head_of_class(const std::string& line) {
    static std::unordered_map<std::string, bool> known;
    const auto [found, is_new] = known.try_emplace(line);
    const std::size_t colon = line.rfind(':');
    if (is_new && colon != line.npos) {
        const auto number = static_cast<unsigned>(std::strtoul(line.c_str() + colon + 1, nullptr, 10));
        const std::string text = source_line(line.substr(0, colon), number);
        for (const char* word : {"struct ", "class ", "union "}) {
            const std::size_t at = text.find(word);
            found->second |= at != text.npos && (at == 0 || text[at - 1] == ' ');
        }
    }
    return found->second;
}

/// False for what stands in the emulator or in a system's header, and for copies that the compiler has made: they are
/// never the last of the frames that were inlined.
bool is_of_kernel(const Frame& frame, bool last) {
    constexpr std::array<const char*, 4> others = {"common/emulator/", "/include/c++/", "/usr/include/", "/usr/lib"};
    return std::none_of(others.begin(), others.end(), [&](const char* folder) {
        return frame.line.find(folder) != std::string::npos;
    }) && (last || !is_head_of_class(frame.line));
}

/// The innermost frame of the kernel, or null.
const Frame* frame_of_kernel(const std::vector<Frame>& inlined) {
    for (const Frame& frame : inlined)
        if (is_of_kernel(frame, &frame == &inlined.back())) return &frame;
    return nullptr;
}

/// Without namespaces and parameters.
std::string short_name(std::string name) {
    const std::string anonymous = "(anonymous namespace)::";
    for (std::size_t at; (at = name.find(anonymous)) != std::string::npos;) name.erase(at, anonymous.size());
    name.resize(std::min(name.size(), name.find('(')));
    name.resize(std::min(name.size(), name.find('<')));
    return name.substr(name.find_last_of(": ") + 1);  // npos + 1 is 0
}

/// Removes return addresses that are not this program's own.
void keep_own(std::vector<const void*>& stack) {
    const Module own = module_of(reinterpret_cast<std::uintptr_t>(&call_stack));
    std::erase_if(stack, [&](const void* pc) {
        const Module module = module_of(reinterpret_cast<std::uintptr_t>(pc));
        return module.path.empty() || module.load_address != own.load_address;
    });
}

/// Compilers are asked to leave the project's path out (-ffile-prefix-map); this removes the "./" that may remain.
std::string relative(std::string path) {
    while (path.starts_with("./")) path.erase(0, 2);
    return path;
}

/// Of the lines of a stack those behind `where`, four at most and the last.
std::vector<std::string> behind(const Place& where, std::vector<std::string> lines) {
    constexpr std::ptrdiff_t most = 4;
    // An instruction's own function lies between its line and the emulator.
    const auto place = std::find(lines.begin(), lines.end(), to_string(where));
    if (place == lines.end()) return {};
    lines.erase(lines.begin(), place + 1);
    if (std::ssize(lines) > most) lines.erase(lines.begin() + most, lines.end() - 1);
    return lines;
}

/// The lines behind `where` on a stack, up to the kernel's own. Of a stack that does not lead there, none, or else
/// those that it has.
std::vector<std::string> lines_to_kernel(const Place& where, std::vector<const void*> stack, const void* kernel,
                                         bool or_those_it_has = false) {
    if (where.pc) stack.erase(stack.begin(), std::find(stack.begin(), stack.end(), where.pc));
    std::vector<std::uintptr_t> addresses;
    for (const void* pc : stack) addresses.push_back(reinterpret_cast<std::uintptr_t>(pc) - 1);
    const std::string name = function_name(kernel);
    std::vector<std::string> lines;
    for (const std::vector<Frame>& inlined : frames(addresses)) {
        // The last of this name: addr2line gives what was inlined first the name of the whole function.
        const auto last = std::find_if(inlined.rbegin(), inlined.rend(),
                                       [&](const Frame& frame) { return short_name(frame.function) == name; });
        for (auto frame = inlined.begin(); frame != inlined.end(); ++frame) {
            if (is_of_kernel(*frame, frame + 1 == inlined.end())) lines.push_back(relative(frame->line));
            if (last == inlined.rend() || &*frame != &*last) continue;
            return behind(where, std::move(lines));
        }
    }
    return or_those_it_has ? behind(where, std::move(lines)) : std::vector<std::string>();
}

}  // namespace

std::string to_string(const std::source_location& where) { return to_string(where.file_name(), where.line()); }
std::string to_string(const char* file, unsigned line) { return fmt::format("{}:{}", relative(file), line); }

std::string to_string(const Place& where) { return where.pc ? lines_of({where.pc}).front() : to_string(where.line); }

std::vector<std::string> lines_of_calls(const std::vector<const void*>& stack) {
    std::vector<std::uintptr_t> addresses;
    for (const void* pc : stack) addresses.push_back(reinterpret_cast<std::uintptr_t>(pc) - 1);
    std::vector<std::string> lines;
    for (const std::vector<Frame>& inlined : frames(addresses))
        for (const Frame& frame : inlined)
            if (is_of_kernel(frame, &frame == &inlined.back())) lines.push_back(relative(frame.line));
    return lines;
}

std::vector<std::string> lines_of(const std::vector<const void*>& pcs) {
    std::vector<std::uintptr_t> addresses;
    for (const void* pc : pcs) addresses.push_back(reinterpret_cast<std::uintptr_t>(pc) - 1);  // in the call itself
    std::vector<std::string> lines;
    for (const std::vector<Frame>& inlined : frames(addresses)) {
        const Frame* kernel = frame_of_kernel(inlined);
        lines.push_back(kernel ? relative(kernel->line) : "");
    }
    return lines;
}

std::string source_line(const std::string& file, unsigned line) {
    std::ifstream source(file);
    // Names of files begin at either folder (cmake/Backend.cmake): what `ladder test` tries lies in the second.
    for (const char* folder : {FLASHLADDER_ROOT "/", FLASHLADDER_BUILD "/"})
        if (!source) source.open(folder + file);
    std::string text;
    for (unsigned i = 0; i < line; ++i)
        if (!std::getline(source, text)) return "";
    return text;
}

std::string text_of(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    unsigned line = 0;
    if (colon != std::string::npos) std::from_chars(place.data() + colon + 1, place.data() + place.size(), line);
    std::string text = line == 0 ? "" : source_line(place.substr(0, colon), line);
    text.erase(0, text.find_first_not_of(" \t"));
    if (text.ends_with(';')) text.pop_back();
    return text;
}

std::string function_name(const void* entry) {
    const auto found = frames({reinterpret_cast<std::uintptr_t>(entry)}).front();
    if (found.empty()) return "(unnamed kernel)";
    return short_name(found.back().function);
}

std::vector<const void*> call_stack() {
    std::vector<const void*> all;
    _Unwind_Backtrace(  // ends with the fiber's first function
        [](_Unwind_Context* context, void* data) {
            auto& all = *static_cast<std::vector<const void*>*>(data);
            all.push_back(reinterpret_cast<const void*>(_Unwind_GetIP(context)));
            return all.size() < 100 ? _URC_NO_REASON : _URC_END_OF_STACK;
        },
        &all);
    keep_own(all);
    return all;
}

std::vector<std::string> calls_to(const Place& where, const void* kernel) {
    if (where.calls) return calls_known_of(where, kernel);
    std::vector<const void*> stack = call_stack();
    // Of what has crashed there is no stack any more, but what was inlined there.
    if (where.pc && std::find(stack.begin(), stack.end(), where.pc) == stack.end()) stack = {where.pc};
    return lines_to_kernel(where, std::move(stack), kernel);
}

std::vector<std::string> calls_known_of(const Place& where, const void* kernel) {
    std::vector<const void*> stack = kept_calls(where.calls);
    const bool only_inlined = stack.empty() && where.pc;
    if (only_inlined) stack = {where.pc};
    keep_own(stack);
    return lines_to_kernel(where, std::move(stack), kernel, only_inlined);
}

std::string name_of(const Kernel& kernel) {
    return kernel.entry || !kernel.name ? function_name(kernel.entry) : kernel.name;
}

}  // namespace emulator
