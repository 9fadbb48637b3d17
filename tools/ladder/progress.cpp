#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace flashladder {

void progress(const std::string& text) {
    if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K{}", text);
}

}  // namespace flashladder
