#include "harness/flashladder.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/gemm.h"
#include "harness/stage.h"

namespace flashladder {
namespace {

/// Does the work; what it throws becomes text.
template <class Work>
const char* error_of(Work work) {
    thread_local std::string error;
    try {
        work();
        return nullptr;
    } catch (const std::exception& exception) {
        error = exception.what();
    } catch (...) {
        error = "unknown error";
    }
    return error.c_str();
}

std::string text(const char* value, const char* name) {
    if (!value) throw std::invalid_argument(std::string(name) + " is a null pointer");
    return value;
}

AttentionShape shape_of(const FlashLadderForward& p) {
    return {p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.head_dim, p.causal != 0, parse_dtype(text(p.dtype, "dtype"))};
}

Strides strides_of(const long long (&strides)[3]) { return {strides[0], strides[1], strides[2]}; }

std::string describe_stages() {
    nlohmann::json all = nlohmann::json::array();
    for (const Stage& stage : stages()) {
        const Support& s = stage.supports;
        std::vector<std::string> dtypes;
        for (const DType dtype : s.dtypes) dtypes.push_back(to_string(dtype));
        nlohmann::json forms = nlohmann::json::array();
        for (const Stage& form : variants())
            if (form.supports.stage == s.stage)
                forms.push_back({{"variant", form.supports.variant}, {"head_dims", form.supports.head_dims}});
        all.push_back({{"stage", s.stage},
                       {"head_dims", s.head_dims},
                       {"dtypes", dtypes},
                       {"causal", s.causal},
                       {"lse", s.lse},
                       {"grouped_query", s.grouped_query},
                       {"strides", s.strides},
                       {"compute_capability", s.compute_capability},
                       {"max_batch_heads", s.max_batch_heads},
                       {"max_n_k", s.max_n_k},
                       {"variants", forms}});
    }
    return all.dump();
}

}  // namespace
}  // namespace flashladder

using namespace flashladder;

const char* flashladder_stages(const char** json) {
    return error_of([&] {
        static const std::string description = describe_stages();
        *json = description.c_str();
    });
}

const char* flashladder_scratch_bytes(const FlashLadderForward* problem, size_t* bytes) {
    return error_of([&] {
        const Stage& stage = find_stage(text(problem->stage, "stage"));
        const AttentionShape shape = shape_of(*problem);
        const std::string why = why_unsupported(stage.supports, shape, problem->lse != nullptr);
        if (!why.empty()) throw std::invalid_argument(why);
        *bytes = stage.scratch_bytes(shape);
    });
}

const char* flashladder_forward(const FlashLadderForward* problem) {
    return error_of([&] {
        const FlashLadderForward& p = *problem;
        find_stage(text(p.stage, "stage"))
            .launch({shape_of(p), p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
                     strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides),
                     strides_of(p.O_strides)});
    });
}

const char* flashladder_gemm(const char* variant, int M, int N, int K, const void* A, const void* B, void* C,
                             void* scratch, void* stream) {
    return error_of([&] {
        gemm({M, N, K, A, B, C, static_cast<unsigned*>(scratch), static_cast<cudaStream_t>(stream),
              text(variant, "variant")});
    });
}

const char* flashladder_gemm_variants(const char** json) {
    return error_of([&] {
        static const std::string variants = nlohmann::json(gemm_variants()).dump();
        *json = variants.c_str();
    });
}
