#include "crash.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "calls.h"
#include "cuda_runtime.h"
#include "machine.h"
#include "symbols.h"

namespace emulator {
namespace {

constexpr std::array signals{SIGFPE, SIGSEGV, SIGBUS, SIGABRT, SIGVTALRM};

/// Those of the signal handler, and of what puts a crash into words: a kernel's own may have overflowed.
alignas(64) std::array<char, 64 * 1024> handler_stack;
alignas(64) std::array<char, 256 * 1024> report_stack;

struct Crash {
    int signal = 0;
    std::uintptr_t address = 0, pc = 0, frame = 0;
} crash;
std::vector<const void*> thrown_from;

[[noreturn]] void report_crash() {
    Place where(reinterpret_cast<const void*>(crash.pc + 1));  // as if it were a return address
    if (crash.frame) where.calls = keep_calls_of_stopped(where.pc, reinterpret_cast<const void*>(crash.frame));
    if (crash.signal == SIGVTALRM)
        fail(cudaErrorLaunchTimeout, where, [] {
            return fmt::format(
                "endless: the launch has taken {} s of the processor and goes on: a loop never ends, here or where this "
                "is called",
                settings().longest_launch);
        });
    if (crash.signal == SIGABRT)
        fail(cudaErrorLaunchFailure, where, [] {
            return "stack smashed: this function has written past the end of a local array, or the like";
        });
    if (crash.signal == SIGFPE)
        fail(cudaErrorLaunchFailure, where, [] {
            return "division by zero: of whole numbers, or the smallest int by -1; what a GPU gives is undefined";
        });
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    if (current->stack_begin - crash.address <= page)
        fail(cudaErrorLaunchFailure, where, [] {
            return fmt::format("stack overflow: local variables and calls take more than the {} KB of a thread",
                               (current->stack_end - current->stack_begin) / 1024);
        });
    fail(cudaErrorIllegalAddress, where, [] {
        return fmt::format("{}: access at {:#x}: neither device nor shared memory",
                           crash.address < 4096 ? "null pointer" : "out of bounds", crash.address);
    });
}

/// Whether what runs is a kernel's own line: it can be left where it is. The emulator, which a kernel calls at every
/// access, might be half way through something.
bool is_in_kernel(std::uintptr_t pc) {
    const Symbol* function = find_symbol(Symbols::instance().functions, pc);
    if (!function) return false;
    const std::string_view name = function->name;
    return name.starts_with("_Z") && !is_library_function(name) && name.find("8emulator") == name.npos &&
           name.find("3fmt") == name.npos;
}

/// The kernel's function that has called what has ended in abort(): the innermost return address on the thread's stack
/// that is a kernel's. Frame pointers lead nowhere: what is on the stack of who has smashed it is not what was there. Some
/// other number there may happen to be an address of a function: a kernel's has a line.
std::uintptr_t caller_of_abort(std::uintptr_t stack_pointer) {
    for (std::uintptr_t at = stack_pointer; at + sizeof at <= current->stack_end; at += sizeof at) {
        const std::uintptr_t address = *reinterpret_cast<const std::uintptr_t*>(at);
        if (is_in_kernel(address - 1) && !to_string(Place(reinterpret_cast<const void*>(address))).empty())
            return address - 1;
    }
    return 0;
}

/// What has happened where.
Crash crash_of(int signal, const siginfo_t& info, const mcontext_t& machine) {
    Crash found{signal, reinterpret_cast<std::uintptr_t>(info.si_addr)};
#if defined(__x86_64__)
    found.pc = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
    found.frame = static_cast<std::uintptr_t>(machine.gregs[REG_RBP]);
    const auto stack_pointer = static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
    found.pc = machine.pc;
    found.frame = machine.regs[29];
    const std::uintptr_t stack_pointer = machine.sp;
#endif
    if (signal == SIGABRT && current) found.pc = caller_of_abort(stack_pointer), found.frame = 0;
    return found;
}

/// Lets report_crash() run instead of what has crashed, once the handler has returned.
void handle(int signal, siginfo_t* info, void* data) {
    mcontext_t& machine = static_cast<ucontext_t*>(data)->uc_mcontext;
    const Crash now = crash_of(signal, *info, machine);
    if (signal == SIGVTALRM && (!current || reporting || !is_in_kernel(now.pc))) return;  // it comes again soon
    // Not a kernel's doing: it happens again, and ends the program.
    if (!current || reporting || (signal == SIGABRT && now.pc == 0)) {
        ::signal(signal, SIG_DFL);
        return;
    }
    crash = now;
    const auto top = reinterpret_cast<std::uintptr_t>(report_stack.data() + report_stack.size());
    const auto entry = reinterpret_cast<std::uintptr_t>(&report_crash);
#if defined(__x86_64__)
    machine.gregs[REG_RIP] = static_cast<greg_t>(entry);
    machine.gregs[REG_RSP] = static_cast<greg_t>(top - sizeof(void*));  // as behind a call; the return address is 0
#elif defined(__aarch64__)
    machine.pc = entry;
    machine.sp = top;
    machine.regs[30] = 0;
#endif
}

}  // namespace

CrashGuard::CrashGuard(int seconds) : is_limited_(seconds > 0) {
    stack_t stack{};
    stack.ss_sp = handler_stack.data();
    stack.ss_size = handler_stack.size();
    sigaltstack(&stack, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &before_[i]);
    constexpr int soon = 3000;  // microseconds: no multiple of what a loop may take
    const itimerval limit{{0, soon}, {seconds, 0}};
    if (is_limited_) setitimer(ITIMER_VIRTUAL, &limit, nullptr);
}

CrashGuard::~CrashGuard() {
    const itimerval none{};
    if (is_limited_) setitimer(ITIMER_VIRTUAL, &none, nullptr);
    for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
    sigaltstack(&stack_before_, nullptr);
}

Place thrown_at() {
    for (const void* pc : thrown_from)
        if (const Place place(pc); !to_string(place).empty()) return place;
    return {};
}

}  // namespace emulator

/// Every throw comes here first, that of the standard library too: later, the stack below the handler is gone.
/// Compilers do not agree on the types of the function with this name. Weak: a static standard library keeps its own.
extern "C" [[noreturn, gnu::weak]] void note_throw(void* exception, void* type,
                                                   void (*destructor)(void*)) __asm__("__cxa_throw");
void note_throw(void* exception, void* type, void (*destructor)(void*)) {
    if (emulator::current) {
        const emulator::Reporting reporting;
        emulator::thrown_from = emulator::call_stack();
    }
    static const auto real = reinterpret_cast<decltype(&note_throw)>(dlsym(RTLD_NEXT, "__cxa_throw"));
    real(exception, type, destructor);
    __builtin_unreachable();
}
