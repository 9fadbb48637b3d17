// Sizes of problems on the command line: --n is what the operation of the chapter at hand calls so.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "harness/operation.h"

namespace CLI {
class App;
}

namespace flashladder {

class GivenOptions {
public:
    /// Options for the sizes of all operations. One that is not said is not there afterwards.
    void add_to(CLI::App* verb);

    bool empty() const;
    /// Those that were said, by the names that they have in this operation. Throws std::invalid_argument, naming it, if one
    /// is none of its sizes.
    GivenSizes of(const Operation& operation) const;
    /// Whether all are sizes of the operation.
    bool fit(const Operation& operation) const;

private:
    std::map<std::string, std::int64_t> values_;  // by option
    std::map<std::string, bool> flags_;
};

}  // namespace flashladder
