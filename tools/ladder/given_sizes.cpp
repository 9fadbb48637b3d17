#include "given_sizes.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace flashladder {
namespace {

const Size* size_of(const std::vector<Size>& sizes, const std::string& option) {
    const auto found = std::ranges::find(sizes, option, &Size::option);
    return found == sizes.end() ? nullptr : &*found;
}

}  // namespace

void GivenOptions::add_to(CLI::App* verb) {
    std::map<std::string, std::pair<std::string, bool>> all;  // what each means, and whether it is a flag
    for (const Operation* operation : operations())
        for (const Size& size : operation->sizes()) {
            const std::string text = operations().size() == 1 ? size.meaning : fmt::format("{}: {}", operation->name(), size.meaning);
            auto& [meaning, is_flag] = all[size.option];
            meaning += (meaning.empty() ? "" : "; ") + text;
            is_flag = size.is_flag;
        }
    for (const auto& [option, about] : all) {
        const std::string name = option;
        if (about.second)
            verb->add_flag_function("--" + option, [this, name](std::int64_t times) { flags_[name] = times > 0; }, about.first);
        else
            verb->add_option_function<std::int64_t>(
                "--" + option, [this, name](std::int64_t value) { values_[name] = value; }, about.first);
    }
}

bool GivenOptions::empty() const { return values_.empty() && flags_.empty(); }

GivenSizes GivenOptions::of(const Operation& operation) const {
    const std::vector<Size> sizes = operation.sizes();
    GivenSizes given;
    const auto add = [&](const std::string& option, std::int64_t value) {
        const Size* size = size_of(sizes, option);
        if (!size) {
            std::vector<std::string> names;
            for (const Size& each : sizes) names.push_back("--" + each.option);
            throw std::invalid_argument(
                fmt::format("--{} is no size of {} (it has {})", option, operation.name(), fmt::join(names, ", ")));
        }
        given[size->name] = value;
    };
    for (const auto& [option, value] : values_) add(option, value);
    for (const auto& [option, value] : flags_) add(option, value);
    return given;
}

bool GivenOptions::fit(const Operation& operation) const {
    const std::vector<Size> sizes = operation.sizes();
    const auto is_size = [&](const auto& said) { return size_of(sizes, said.first) != nullptr; };
    return std::ranges::all_of(values_, is_size) && std::ranges::all_of(flags_, is_size);
}

}  // namespace flashladder
