// Mutants: solutions with one mistake, which a rung's tests must find.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashladder {

/// The names of the mutants that tests/mutants/NN-name.json describes, whose text is `mutants`.
std::vector<std::string> mutant_names(std::string_view mutants);

/// The mutant `name` of a solution. Mutants are an array of {name, replace, with, caught_by, variants, of}: text that
/// occurs once in the solution, the test that fails, and whether it needs the rung's variants. Where the text is that of
/// a header of common/, `of` names it, and the mutant has the header instead of its #include, and so it has those of its
/// headers that include that one. Where it is that of the rung's variants.cu, whose text is `variants`, `of` is
/// "variants.cu", and the mutant is this file with the solution in it. Throws std::runtime_error where there is no such
/// mutant, or its text does not occur exactly once.
std::string make_mutant(std::string_view solution, std::string_view variants, std::string_view mutants,
                        std::string_view name);

}  // namespace flashladder
