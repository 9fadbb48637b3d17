// How far long work is.
#pragma once

#include <string>

namespace flashladder {

/// One line on a terminal that the next one replaces; nothing in a log.
void progress(const std::string& text);

}  // namespace flashladder
