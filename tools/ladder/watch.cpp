#include "watch.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "files.h"
#include "harness/project_root.h"
#include "programs.h"

namespace flashladder {
namespace {

using namespace std::chrono_literals;

/// What tells one saved state of a file from the next.
struct Saved {
    std::int64_t seconds, nanoseconds, bytes;
    bool operator==(const Saved&) const = default;
};

/// Nothing while the file is not there: editors put another in its place. Asked again and again, because no folder of
/// another machine tells of its changes.
std::optional<Saved> saved(const std::string& path) {
    struct stat status;
    if (stat(path.c_str(), &status) != 0) return {};
    return Saved{status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_size};
}

volatile sig_atomic_t signal_that_ends = 0;

void end_of(int signal) { signal_that_ends = signal; }
void wake(int) {}

/// From here on these signals end the watch, even if a shell has told its background jobs to ignore them.
void listen() {
    struct sigaction action = {};
    action.sa_handler = end_of;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    action.sa_handler = wake;  // a run has ended: no need to sleep on
    sigaction(SIGCHLD, &action, nullptr);
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a run has started, and leaves, becomes ours to wait for
}

/// `ladder test` in a process group of its own.
class TestRun {
public:
    TestRun(const Chapter& chapter, const TestOptions& options)
        : log_((build_folder() / fmt::format("watch-{}.log", chapter.number())).string()) {
        std::filesystem::remove(log_);  // of the run before
        std::fflush(stdout);
        process_ = fork();
        if (process_ == 0) _exit(in_child(chapter, options));
        if (process_ < 0) throw std::runtime_error("no process can be started");
        setpgid(process_, process_);  // it does so too: whoever comes first
    }
    TestRun(const TestRun&) = delete;

    /// Nothing is left of it.
    ~TestRun() {
        if (!ended_) kill(-process_, SIGTERM);
        const auto patience = std::chrono::steady_clock::now() + 2s;
        while (waitpid(-1, nullptr, WNOHANG) >= 0) {  // until there is no child
            if (std::chrono::steady_clock::now() > patience) kill(-process_, SIGKILL);
            std::this_thread::sleep_for(5ms);
        }
    }

    bool ended() {
        if (!ended_) ended_ = waitpid(process_, nullptr, WNOHANG) == process_;
        return ended_;
    }
    /// What it has printed so far.
    std::string output() const { return saved(log_) ? read_file(log_) : ""; }

private:
    int in_child(const Chapter& chapter, const TestOptions& options) const {
        setpgid(0, 0);
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) signal(number, SIG_DFL);
        const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666),
                  nothing = open("/dev/null", O_RDONLY);
        if (log < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
            return 1;
        int status = 1;
        try {
            status = test_chapter(chapter, options);
        } catch (const std::exception& error) {
            fmt::print("ladder: {}\n", error.what());
        }
        std::fflush(stdout);
        return status;
    }

    std::string log_;
    pid_t process_ = -1;
    bool ended_ = false;
};

std::string clock_time() { return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr))); }

/// Where results are shown.
class Screen {
public:
    explicit Screen(std::string file) : file_(std::move(file)) {}

    void begin() {
        time_ = clock_time();
        if (is_terminal_)
            draw(fmt::format("{}, saved {}: testing{}", file_, time_, body_.empty() ? "" : "; below: before"));
        else
            append(fmt::format("{}, saved {}\n", file_, time_));
        shown_ = 0;
    }
    void show(const std::string& output) {
        if (output.size() <= shown_) return;
        body_ = output;
        if (is_terminal_)
            draw(fmt::format("{}, saved {}: testing", file_, time_));
        else
            append(output.substr(shown_));
        shown_ = output.size();
    }
    void interrupted() {
        if (!is_terminal_) append("saved again\n\n");
    }
    void end() {
        if (is_terminal_)
            draw(fmt::format("{}, saved {}: tested; Ctrl-C ends", file_, time_));
        else
            append("\n");
    }

private:
    static void append(const std::string& text) {
        fmt::print("{}", text);
        std::fflush(stdout);
    }

    /// All of it in one write, over what was there: nothing flickers. Of what is too long the end, which says why.
    void draw(const std::string& title) const {
        winsize window = {};
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0)
            window.ws_row = 24, window.ws_col = 80;
        const std::size_t width = std::max<std::size_t>(1, window.ws_col);
        std::vector<std::string> lines;
        for (std::size_t begin = 0; begin < body_.size();) {
            const std::size_t end = std::min(body_.find('\n', begin), body_.size());
            for (std::size_t at = begin; at == begin || at < end; at += width)
                lines.push_back(body_.substr(at, std::min(width, end - at)));
            begin = end + 1;
        }
        const std::size_t most = std::max<std::size_t>(3, window.ws_row) - 2;
        std::string text = fmt::format("\033[H{}\033[K\n", title.substr(0, width));
        for (std::size_t i = lines.size() - std::min(most, lines.size()); i < lines.size(); ++i)
            text += fmt::format("{}\033[K\n", lines[i]);
        append(text + "\033[J");
    }

    std::string file_, time_, body_;
    std::size_t shown_ = 0;
    const bool is_terminal_ = isatty(STDOUT_FILENO);
};

}  // namespace

int watch_chapter(const Chapter& chapter, TestOptions options) {
    check_is_there(chapter);
    options.watched = true;
    listen();
    const std::string path = project_root() + "/" + chapter.file();
    Screen screen(chapter.file());
    std::optional<Saved> last;
    std::optional<TestRun> run;
    while (!signal_that_ends) {
        if (const auto now = saved(path); now && now != last) {
            last = now;
            if (run) screen.interrupted();
            run.reset();
            screen.begin();
            run.emplace(chapter, options);
        }
        const bool ended = run && run->ended();
        if (run) screen.show(run->output());
        if (ended) screen.end(), run.reset();
        usleep(200'000);  // std::this_thread::sleep_for() would sleep on after a signal
    }
    run.reset();
    return 128 + signal_that_ends;
}

}  // namespace flashladder
