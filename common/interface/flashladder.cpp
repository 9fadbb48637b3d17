#include "interface/flashladder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/dtype.h"
#include "harness/device_buffer.h"
#include "launch.h"
#include "operations/attention/stage.h"
#include "operations/gemm/stage.h"

namespace flashladder {
namespace {

thread_local bool refused = false;
const std::string gemm_stage = "14b-gemm";

/// Does the work; what it throws becomes text.
template <class Work>
const char* error_of(Work work) {
    thread_local std::string error;
    refused = false;
    try {
        work();
        return nullptr;
    } catch (const std::invalid_argument& exception) {
        error = exception.what();
        refused = true;
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

attention::AttentionShape shape_of(const FlashLadderForward& p) {
    return {p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.head_dim, p.causal != 0, parse_dtype(text(p.dtype, "dtype"))};
}

Strides strides_of(const long long (&strides)[3]) { return {strides[0], strides[1], strides[2]}; }

/// The stage that solves the problem. Throws std::invalid_argument if it cannot.
const attention::Stage& stage_of(const FlashLadderForward& p) {
    const attention::Stage& stage = attention::find_stage(text(p.stage, "stage"));
    const std::string why = why_unsupported(stage, shape_of(p), p.lse != nullptr);
    if (!why.empty()) throw std::invalid_argument(why);
    return stage;
}

void forward(const FlashLadderForward& p) {
    attention::find_stage(text(p.stage, "stage"))
        .launch(attention::ForwardArgs{shape_of(p), p.Q, p.K, p.V, p.O, p.lse, p.scale, p.scratch, static_cast<cudaStream_t>(p.stream),
                 strides_of(p.Q_strides), strides_of(p.K_strides), strides_of(p.V_strides), strides_of(p.O_strides)});
}

/// The bytes from a tensor's first element to behind its last one.
std::size_t extent_bytes(const attention::AttentionShape& s, int heads, int rows, Strides strides) {
    if (strides == Strides{}) strides = contiguous(heads, rows, s.head_dim);
    const auto last = [](std::int64_t stride, int extent) { return std::max<std::int64_t>(stride, 0) * (extent - 1); };
    return (last(strides.batch, s.batch) + last(strides.head, heads) + last(strides.row, rows) + s.head_dim) *
           bytes_per_element(s.dtype);
}

/// Device memory with what the host has at an address.
struct OnDevice : DeviceBuffer {
    OnDevice(const void* host, std::size_t bytes) : DeviceBuffer(bytes) {
        check_cuda(cudaMemcpy(data(), host, bytes, cudaMemcpyHostToDevice), "copy to the device");
    }
    void copy_to(void* host) const {
        check_cuda(cudaMemcpy(host, data(), bytes(), cudaMemcpyDeviceToHost), "copy from the device");
    }
};

std::string describe_stages() {
    nlohmann::json all = nlohmann::json::array();
    for (const Stage& any : stages()) {
        const auto* stage = dynamic_cast<const attention::Stage*>(&any);
        if (!stage) continue;
        const attention::Support& s = stage->supports;
        std::vector<std::string> dtypes;
        for (const DType dtype : s.dtypes) dtypes.push_back(to_string(dtype));
        nlohmann::json forms = nlohmann::json::array();
        for (const Stage& form : variants())
            if (form.folder() == s.stage)
                forms.push_back({{"variant", form.variant()},
                                 {"head_dims", dynamic_cast<const attention::Stage&>(form).supports.head_dims}});
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
    return error_of([&] { *bytes = stage_of(*problem).scratch_bytes(shape_of(*problem)); });
}

const char* flashladder_forward(const FlashLadderForward* problem) {
    return error_of([&] { forward(*problem); });
}

const char* flashladder_forward_from_host(const FlashLadderForward* problem) {
    return error_of([&] {
        FlashLadderForward p = *problem;
        const attention::AttentionShape s = shape_of(p);
        const attention::Stage& stage = stage_of(p);
        const std::pair<const char*, const void*> tensors[] = {{"Q", p.Q}, {"K", p.K}, {"V", p.V}, {"O", p.O}};
        for (const auto& [name, pointer] : tensors)
            if (!pointer) throw std::invalid_argument(stage.name() + ": " + name + " is a null pointer");
        const DeviceBuffer scratch(stage.scratch_bytes(s));
        const OnDevice Q(p.Q, extent_bytes(s, s.heads, s.n_q, strides_of(p.Q_strides)));
        const OnDevice K(p.K, extent_bytes(s, s.kv_heads, s.n_k, strides_of(p.K_strides)));
        const OnDevice V(p.V, extent_bytes(s, s.kv_heads, s.n_k, strides_of(p.V_strides)));
        const OnDevice O(p.O, extent_bytes(s, s.heads, s.n_q, strides_of(p.O_strides)));
        const OnDevice lse(p.lse, p.lse ? s.lse_elements() * sizeof(float) : 0);
        p.Q = Q.data(), p.K = K.data(), p.V = V.data(), p.O = O.data(), p.lse = static_cast<float*>(lse.data());
        p.scratch = scratch.data();
        forward(p);
        check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(p.stream)), "kernel");
        O.copy_to(problem->O), lse.copy_to(problem->lse);
    });
}

int flashladder_refused() { return refused; }

#ifdef FLASHLADDER_GPU
const char* flashladder_backend() { return "gpu"; }
#else
const char* flashladder_backend() { return "cpu"; }
#endif

const char* flashladder_gemm(const char* variant, int M, int N, int K, const void* A, const void* B, void* C,
                             void* scratch, void* stream) {
    return error_of([&] {
        const std::string form = text(variant, "variant"), name = gemm_stage + (form.empty() ? "" : "/" + form);
        const auto all = variants();
        if (!form.empty() && std::ranges::none_of(all, [&](const Stage& stage) { return stage.name() == name; }))
            throw std::invalid_argument(gemm_stage + ": there is no variant '" + form + "'");
        gemm::find_stage(name).launch(gemm::Args{{M, N, K}, A, B, C, scratch, static_cast<cudaStream_t>(stream)});
    });
}

const char* flashladder_gemm_variants(const char** json) {
    return error_of([&] {
        static const std::string names = [] {
            nlohmann::json all = {""};
            for (const Stage& form : variants())
                if (form.folder() == gemm_stage) all.push_back(form.variant());
            return all.dump();
        }();
        *json = names.c_str();
    });
}
