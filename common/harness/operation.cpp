#include "harness/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "harness/dtype.h"

namespace flashladder {

Problem Problem::in(DType other) const {
    Problem same = *this;
    return same.dtype = other, same;
}

std::string title(const Problem& problem) { return problem.operation->title(problem); }
std::string to_string(const Problem& problem) { return fmt::format("{} {}", title(problem), to_string(problem.dtype)); }

std::size_t Tensor::elements() const {
    std::size_t product = 1;
    for (const std::int64_t extent : extents) product *= static_cast<std::size_t>(extent);
    return product;
}

Problem Operation::problem(const GivenSizes& given, DType dtype) const {
    Problem problem{this, {}, dtype};
    const std::vector<Size> all = sizes();
    for (const auto& [name, value] : given)
        if (std::ranges::find(all, name, &Size::name) == all.end()) {
            std::vector<std::string> names;
            for (const Size& size : all) names.push_back(size.name);
            throw std::invalid_argument(
                fmt::format("{} has no size {} (it has {})", this->name(), name, fmt::join(names, ", ")));
        }
    for (const Size& size : all)
        if (const auto said = given.find(size.name); said != given.end())
            problem.sizes[size.name] = said->second;
        else
            problem.sizes[size.name] = size.same_as.empty() ? size.value : problem.sizes.at(size.same_as);
    return problem;
}

Problem Operation::with(Problem problem, const GivenSizes& given) {
    for (const auto& [name, value] : given) problem.sizes.at(name) = value;
    return problem;
}

std::vector<Tensor> Operation::tensors(const Problem& problem) const {
    std::vector<Tensor> all = all_tensors(problem);
    std::erase_if(all, [&](const Tensor& tensor) { return tensor.is_extra && !problem.extras.contains(tensor.name); });
    return all;
}

std::vector<std::pair<std::string, Data>> Operation::checks(DType dtype, std::uint64_t seed) const {
    const Problem some = cut_down(problem({}, dtype));
    return {{fmt::format("random, {}", title(some)), inputs(some, seed)}};
}

const Operation& find_operation(std::string_view name) {
    std::vector<std::string> names;
    for (const Operation* operation : operations()) {
        if (operation->name() == name) return *operation;
        names.push_back(operation->name());
    }
    throw std::invalid_argument(fmt::format("there is no operation {} (there are {})", name, fmt::join(names, ", ")));
}

}  // namespace flashladder
