// What is read from sources: the differences of kernels, the names of CUDA's that the emulator has, and how old a
// translation is.
#include "families.h"

#include <fmt/format.h>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "chapters.h"
#include "diff.h"
#include "files.h"
#include "harness/project_root.h"
#include "shared.h"
#include "translations.h"

namespace flashladder::tables {
namespace {

/// The functions that a header of the emulator declares under names of CUDA's, of which `pattern` finds each in turn.
std::string functions_of(const std::string& header, const std::string& pattern, const std::string& prefix = "") {
    std::string text = read_file(project_root() + "/common/emulator/" + header);
    static const std::regex named(R"(FLASHLADDER_NAMED(2?)\((\w*), (\w*)\))");  // half_functions.h; one may hold another
    for (int i = 0; i < 2; ++i) text = std::regex_replace(text, named, "$2half$1$3");
    std::set<std::string> names;
    const std::regex expression(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
        std::string name;
        for (std::size_t group = 1; group < match->size(); ++group)
            if ((*match)[group].matched) name = (*match)[group].str();
        if (name != "__attribute__" && name != "name") names.insert("`" + prefix + name + "`");
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string diff_block(const nlohmann::json&, const Arguments& arguments) {
    const Chapter chapter = find_chapter(arguments.at("rung"));
    return fmt::format(
        "<details><summary>The whole difference, answers and all: ./ladder diff {} --answers</summary>\n\n"
        "```diff\n{}```\n</details>\n",
        chapter.number(), diff_from_below(chapter, true));
}

std::string translation_age(const nlohmann::json&, const Arguments& arguments) {
    const std::string original = arguments.project + "/" + arguments.at("of");
    return age_in_words(read_file(translation_of(original)), read_file(original));
}

/// What programs of users may call. Names that macros put together are given by hand.
std::string emulator_functions(const nlohmann::json&, const Arguments&) {
    const std::string runtime = functions_of("runtime_api.h", R"(cudaError_t (cuda\w+)\()");
    const std::string device =
        functions_of("device_functions.h", R"((?:inline|__forceinline__) \w+(?: \w+)? (__\w+|atomic[A-Z]\w*|clock64)\()"
                                           R"(|FLASHLADDER_REDUCE\((__\w+))");
    const std::string arithmetic =
        functions_of("intrinsics.h", R"(inline (?:unsigned |long )*\w+ (\w+)\(|FLASHLADDER_(?:LOAD|STORE)\((__\w+))");
    const std::string vectors = functions_of("vector_types.h", R"(FLASHLADDER_VECTORS\((\w+), )");
    const auto half = [](const std::string& macro, const std::string& prefix) {
        return functions_of("half_functions.h", fmt::format(R"(FLASHLADDER_{}\((\w+), )", macro), prefix);
    };
    const std::string half_functions =
        functions_of("half_functions.h", R"(__forceinline__ \w+(?: \w+)? (__\w+|make_\w+)\()");
    const std::string random =
        functions_of("curand_kernel.h", R"(__forceinline__ \w+(?: \w+)? (curand\w*|skipahead\w*)\()");
    const std::string pipelines = functions_of("cuda/pipeline", R"(\w+ ((?:producer|consumer)_\w+|quit)\()");
    const std::string primitives = functions_of("cuda_pipeline_primitives.h", R"(inline \w+ (__\w+)\()") + ", " +
                                   functions_of("cuda_awbarrier_primitives.h", R"(inline \w+ (__\w+)\()");
    return fmt::format(
        "- The runtime API: {}.\n"
        "- Device code: {}; atomics also with `_block` and `_system`; `printf`, `assert`.\n"
        "- Arithmetic: {}; conversions of `float` and `double` to `int`, `uint`, `ll` and `ull` such as `__float2int_rn`, "
        "also `_rz`, `_ru`, `_rd`; what `<cmath>` has.\n"
        "- Vectors of 1 to 4 elements and their `make_`: {}; `dim3`.\n"
        "- `cooperative_groups.h` with `reduce.h`, `scan.h`, `memcpy_async.h`: blocks, tiles, coalesced groups, the grid; "
        "`cuda.h`: tensor maps.\n"
        "- `<cuda/barrier>` and `<cuda/pipeline>` with `cuda::memcpy_async` and `cuda::aligned_size_t`: barriers of a block, "
        "pipelines of a block or a thread: `make_pipeline`, {}, `pipeline_consumer_wait_prior`, `pipeline_producer_commit`. "
        "`cuda_pipeline.h`, `cuda_awbarrier_primitives.h`: {}.\n"
        "- `cuda_fp16.h`: `__half` and `__half2` with their operators and conversions; {}; {}, also with `_rn`, "
        "`_sat` and `2`; {}, also with `_nan` and `2`; {}, of pairs with `h2`; comparisons {}, also with `2`, `2_mask` "
        "and, of both of a pair, `__hb`; conversions to and from `short`, `ushort`, `int`, `uint`, `ll`, `ull` "
        "such as `__half2int_rn`, also `_rz`, `_ru`, `_rd`; atomics and shuffles. `cuda_bf16.h`: the same, with "
        "`bfloat16` for `half`.\n"
        "- `curand_kernel.h`: `curandStatePhilox4_32_10_t` with {}; `curand_Philox4x32_10`.\n",
        runtime, device, arithmetic, vectors, pipelines, primitives, half_functions, half("OPERATION", "__h"),
        half("EXTREME", "__h"),
        half("FUNCTION", "h"), half("COMPARISON", "__h"), random);
}

}  // namespace flashladder::tables
